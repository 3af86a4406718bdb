"""The typer application: the table of commands, their help, and errors in one line.

A command's module is imported only when the command runs, so that `planner --help` starts at once. Its target
is a function, or a typer application for a command with subcommands.

Typer 0.29 imports pydantic (0.15 s of CPU) to convert the first value of any parameter, even a default.
`PlainConverter` converts plain values without it and leaves all others to typer, which also words errors. It
uses private attributes of typer's parameters, so it is active only for the releases in `TESTED`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import planner
from planner.cli._output import print_message
from planner.errors import BadInput, ClusterWarning, PlannerError, PlannerWarning, enable_ascii_fallback
from planner.flags import FlagSection

COMMANDS = {  # name -> target, one line of help
    "calibrate": ("planner.cli.profile:calibrate_app", "Measure compute and network of your machines."),
    "check": ("planner.cli.answers:check_run", "Compare a measured run with its prediction and keep it."),
    "compare": ("planner.cli.answers:compare", "Compare GPUs, machines or providers for one model."),
    "diff": ("planner.cli.answers:diff", "Show what differs between two answers."),
    "fit": ("planner.cli.models:show_fit", "Show which training methods fit on which GPUs."),
    "hardware": ("planner.cli.hardware:app", "List or show machines; write a file of your own."),
    "models": ("planner.cli.models:app", "List, show or import networks; their training memory."),
    "order": ("planner.servers.cli:order", "Order the transfers of a profile: TIC, TAC and rivals."),
    "partition": ("planner.servers.cli:partition", "Partition a model over workers, replicas and servers."),
    "prices": ("planner.cli.hardware:prices_app", "Import, show and compare prices of machines."),
    "profile": ("planner.cli.profile:app", "Import and show profiles of training steps."),
    "record": ("planner.cli.profile:record", "Record training steps of a PyTorch program."),
    "recommend": ("planner.cli.answers:recommend", "Recommend what to rent, and how to run it."),
    "saturation": ("planner.cli.answers:saturation", "Find the number of workers worth their cost."),
    "simulate": ("planner.cli.answers:simulate", "Predict speed, cost and memory of one plan."),
    "sweep": ("planner.cli.answers:sweep", "Score a grid of plans; resumable."),
    "validate": (
        "planner.cli.validate:validate_command",
        "Compare predictions with published and measured runs.",
    ),
}


UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy of it that newer typers hold


@contextmanager
def _one_line_usage_errors(ctx: Any = None) -> Iterator[None]:
    """Context manager that turns typer's three-line usage errors into one-line errors."""
    try:
        yield
    except UsageError as error:
        if type(error).show is not UsageError.show:  # help, where a command is given nothing at all
            raise
        message = _unknown_flag_message(error) or error.format_message().rstrip(".")
        message = message.replace("Value error, ", "").replace(
            "Got unexpected extra argument", "Unexpected argument"
        )
        if error.ctx:
            message = _add_variable_names(message, error.ctx)
        # where a flag lacks its value, typer does not say in which command
        command = error.ctx.command_path if error.ctx else f"planner {ctx.invoked_subcommand if ctx else ''}"
        see = " See" if message.endswith("?") else "; see"
        raise BadInput(f"{message[:1].lower()}{message[1:]}{see} `{command.strip()} --help`") from error


def _unknown_flag_message(error: Any) -> str:
    """Message for an unknown flag: similar flags, or commands that have it; empty for other errors."""
    name: str = getattr(error, "option_name", "")
    if not hasattr(error, "possibilities") or not name.startswith("-"):
        return ""
    import difflib

    def flag_spellings(command: Any) -> list[str]:
        """All spellings of a command's flags."""
        return [flag for param in command.params for flag in (*param.opts, *param.secondary_opts)]

    own = [flag for flag in flag_spellings(error.ctx.command) if flag.startswith("--")] if error.ctx else []
    near = difflib.get_close_matches(name, [*own, "--help"], n=2, cutoff=0.75)
    if near:
        return f"there is no flag {name}; did you mean {' or '.join(near)}?"
    others = [command for command in COMMANDS if name in flag_spellings(load_command(command))]
    owners = " or ".join(f"`planner {command}`" for command in others[:2])
    return f"there is no flag {name}" + (f" here; {owners} has it" if others else "")


def _add_variable_names(message: str, ctx: Any) -> str:
    """Adds to an error message the environment variable that set a flag."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name)
        if param.envvar and source is not None and source.name == "ENVIRONMENT":
            flag = rf"('?){re.escape(param.opts[0])}\1(?![\w-])( / '-\w')?"
            message = re.sub(flag, rf"\g<0> (from {param.envvar})", message, count=1)
    return message


METAVARS = {
    "<int range>": "N",
    "<int>": "N",
    "<float range>": "NUMBER",
    "<float>": "NUMBER",
    "<str>": "TEXT",
    "<path>": "FILE",
}
_BOUNDS = re.compile(r"\s*\[[\d.]*<?=?x[<>]=?[\d.]+\]|(?<=\d); [\d.]*<?=?x[<>]=?[\d.]+(?=\])")


class Command(TyperCommand):
    """A command with help grouped by section, and errors that name the source of a wrong value."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; errors name the source of a wrong value."""
        try:
            return super().invoke(ctx)
        except PlannerError as error:
            error.args = (_add_variable_names(str(error), ctx),)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of options, grouped by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                argument = param.param_type_name == "argument"
                title = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
                title = "Help" if param.name == "help" else title
                spelling, words = record
                if argument:
                    spelling = param.metavar or spelling
                for kind, metavar in METAVARS.items():
                    spelling = spelling.replace(kind, metavar)
                sections.setdefault(title, []).append((spelling, _BOUNDS.sub("", words)))
        order = ["Arguments", "Common", "Options", *FlagSection, "Help"]
        for title in sorted(sections, key=order.index):
            with formatter.section(title):
                formatter.write_dl(sections[title])


class LazyGroup(TyperGroup):
    """Lists commands from `COMMANDS` and imports a command's module only to run it."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parses the arguments; usage errors take one line."""
        with _one_line_usage_errors():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; usage errors take one line."""
        with _one_line_usage_errors(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command with its help only, not imported; None if unknown."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the arguments and imports its module."""
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # for "did you mean"
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if command is not None and name else command, rest


def load_command(name: str) -> Any:
    """Imports a command's module and returns its click command."""
    from planner.cli._options import declare_options

    module, _, attribute = COMMANDS[name][0].partition(":")
    target = getattr(importlib.import_module(module), attribute)
    app = target
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name)(target)
    for registered in app.registered_commands:
        assert registered.callback is not None
        path = f"{name} {registered.name or registered.callback.__name__}" if app is target else name
        registered.callback = declare_options(registered.callback, path)
        registered.cls = Command
    app.info.help = COMMANDS[name][1]
    app.info.no_args_is_help = True
    app.rich_markup_mode = None
    app._add_completion = False
    command = typer.main.get_command(app)
    command.name = name
    use_plain_converters(command)
    return command


def _print_version(value: bool) -> None:
    """Option callback that prints the version and exits."""
    if value:
        print(f"planner {planner.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="planner",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help costs 20 ms, rich help 150
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """What to rent and how to run it, before you spend money on training a neural network."""


def main() -> None:
    """Runs the command line. Errors are one line on stderr; Ctrl-C exits with status 130."""
    # a shell may start us with closed streams (`>&-`): what is written there goes nowhere
    sys.stdout, sys.stderr = (
        stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") for stream in (sys.stdout, sys.stderr)
    )
    enable_ascii_fallback(sys.stdout, sys.stderr)
    shown: list[type] = []  # kinds of warnings
    warnings.showwarning = partial(_show_warning, shown, warnings.showwarning)
    try:
        try:
            command = typer.main.get_command(app)
            use_plain_converters(command)
            command(prog_name="planner")
        finally:
            sys.stdout.flush()
    except PlannerError as error:
        _exit_with_message(str(error), error.exit_code)
    except KeyboardInterrupt as stop:
        _exit_with_message(str(stop) or "interrupted", 130)
    except SystemExit as leaving:  # typer turns Ctrl-C into this
        if leaving.code == 130 and ClusterWarning in shown:  # nobody pressed Ctrl-C, and why is said
            sys.exit(PlannerError.exit_code)
        if leaving.code == 130:
            print_message(_interruption_message(leaving))
        raise
    except BrokenPipeError:  # the reader, `head` perhaps, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _exit_with_message("out of memory; ask for less at once (fewer workers, servers or --jobs)", 2)
    except OSError as error:
        _exit_with_message(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 2)


def _show_warning(
    shown: list[type], usual: Any, message: Any, category: type, *where: Any, **more: Any
) -> None:
    """Prints planner's warnings on one line and others as Python does; adds their kinds to `shown`."""
    shown.append(category)
    if issubclass(category, PlannerWarning):
        print_message(str(message))
    else:
        usual(message, category, *where, **more)


def _interruption_message(leaving: BaseException) -> str:
    """Message of the KeyboardInterrupt that caused an exit."""
    cause: BaseException | None = leaving
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return str(cause or "") or "interrupted"


def _exit_with_message(message: str, code: int) -> None:
    """Prints a message on stderr and exits with this status."""
    print_message(message)
    sys.exit(code)


TESTED = ("0.29",)  # releases of typer; those before need no pydantic, those after were not tried


def is_tested_typer() -> bool:
    """Whether the plain converters were tested with the installed release of typer."""
    return typer.__version__.rpartition(".")[0] in TESTED


def use_plain_converters(command: Any) -> None:
    """Replaces typer's value converters with plain ones, in a command and its subcommands."""
    if not is_tested_typer():
        return
    for param in command.params:
        param._runtime_param = PlainConverter()
    make_help = command.get_help_option

    def get_help_option(ctx: Any) -> Any:  # the option --help is made when the command runs
        """Help option of a command, with a plain converter."""
        param = make_help(ctx)
        param._runtime_param = PlainConverter()
        return param

    command.get_help_option = get_help_option
    for inner in getattr(command, "commands", {}).values():
        use_plain_converters(inner)


class PlainConverter:
    """Converts text, numbers, paths and enums; leaves lists and every wrong value to typer.

    It ignores typer's checks of paths (`exists=True` and the like), which no command of planner uses.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Converted value of a parameter."""
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        single = not param.multiple and param.nargs == 1 and isinstance(kind, type)
        if single and (value is None or (isinstance(value, kind) and kind not in (int, float))):
            return value
        if single and issubclass(kind, Path | Enum | int | float) and kind is not bool:
            with suppress(ValueError):
                converted = kind(value)
                low, high = getattr(info, "min", None), getattr(info, "max", None)
                if (low is None or converted >= low) and (high is None or converted <= high):
                    return converted
        param._runtime_param = None  # typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
