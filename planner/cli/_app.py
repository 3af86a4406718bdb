"""The typer application and its door.

`COMMANDS` lists every command with its one line of help; the module `planner/cli/<name>.py` is imported only
when that command runs, so that `planner --help` starts at once. Such a module defines either a function
`command` or, for a command with subcommands, a typer application `app`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import planner
from planner.cli._fast import speed_up
from planner.cli._say import say
from planner.errors import BadInput, ClusterWarning, PlannerError, PlannerWarning
from planner.files.printable import plain_where_needed

COMMANDS = {
    "calibrate": "Fit the constants of overhead, window, compute or network.",
    "check": "Compare a real run with its prediction, and keep it.",
    "compare": "Compare machines and clusters for one model.",
    "diff": "Say what changes from one answer to another.",
    "hardware": "List the machines of the catalogue, or show one.",
    "models": "List, show or import networks; what training them holds.",
    "order": "Order a profile's transfers: TIC, TAC and rivals.",
    "partition": "Split a model over workers, replicas and servers.",
    "prices": "Import, show and compare prices of machines.",
    "profile": "Import and show profiles of training steps.",
    "record": "Record training steps of your own program.",
    "recommend": "Rank what to rent for a budget by cost per sample.",
    "saturation": "How many workers before throughput saturates.",
    "simulate": "Predict the throughput of one plan.",
    "sweep": "Score a grid of plans; can be resumed.",
    "validate": "Compare predictions with published and measured results.",
}

OF_SERVERS = ("order", "partition")  # commands of `planner.servers`


def module_of(name: str) -> str:
    """The module that holds a command."""
    package = "planner.servers.cli" if name in OF_SERVERS else "planner.cli"
    return f"{package}.{name.replace('-', '_')}"


UsageError: Any = typer.BadParameter.__mro__[1]  # of click, or of the copy of it that newer typers hold


@contextmanager
def _usage_errors_as_ours(ctx: Any = None) -> Iterator[None]:
    """What typer says of flags in three lines, said in one as everything else."""
    try:
        yield
    except UsageError as error:
        if type(error).show is not UsageError.show:  # help, where a command is given nothing at all
            raise
        said = _without_option(error) or error.format_message().rstrip(".").replace("Value error, ", "")
        if error.ctx:
            said = _with_variables(said, error.ctx)
        # where a flag lacks its value, typer does not say in which command
        command = error.ctx.command_path if error.ctx else f"planner {ctx.invoked_subcommand if ctx else ''}"
        see = " See" if said.endswith("?") else "; see"
        raise BadInput(f"{said[:1].lower()}{said[1:]}{see} `{command.strip()} --help`") from error


def _without_option(error: Any) -> str:
    """What to say of a flag that the command does not have: the flags that are spelt like it, or else the
    commands that have it. Empty for any other error."""
    name: str = getattr(error, "option_name", "")
    if not hasattr(error, "possibilities") or not name.startswith("-"):
        return ""
    import difflib

    def flags(command: Any) -> list[str]:
        return [flag for param in command.params for flag in (*param.opts, *param.secondary_opts)]

    own = [flag for flag in flags(error.ctx.command) if flag.startswith("--")] if error.ctx else []
    near = difflib.get_close_matches(name, [*own, "--help"], n=2, cutoff=0.75)
    if near:
        return f"there is no flag {name}; did you mean {' or '.join(near)}?"
    others = [command for command in COMMANDS if name in flags(load(command))]
    return f"there is no flag {name}" + (f" here; {_listed(others)} has it" if others else "")


def _listed(commands: list[str]) -> str:
    """`recommend`, or the first of several."""
    return " or ".join(f"`planner {command}`" for command in commands[:2])


def _with_variables(said: str, ctx: Any) -> str:
    """An error with the environment variable behind every flag that it names, where one gave the value."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(param.name)
        if param.envvar and source is not None and source.name == "ENVIRONMENT":
            flag = rf"('?){re.escape(param.opts[0])}\1(?![\w-])( / '-\w')?"
            said = re.sub(flag, rf"\g<0> (from {param.envvar})", said, count=1)
    return said


class Command(TyperCommand):
    """A command that says where a wrong value came from."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PlannerError as error:
            error.args = (_with_variables(str(error), ctx),)
            raise


class LazyGroup(TyperGroup):
    """Lists commands from `COMMANDS` and imports a command's module when it is asked to run."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _usage_errors_as_ours():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors_as_ours(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # for "did you mean"
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if command is not None and name else command, rest


def load(name: str) -> Any:
    """The command `name` as click sees it, from its module."""
    module = importlib.import_module(module_of(name))
    app: typer.Typer | None = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=Command)(module.command)
    app.info.help = COMMANDS[name]
    app.info.no_args_is_help = True
    app.rich_markup_mode = None
    app._add_completion = False
    command = typer.main.get_command(app)
    command.name = name
    speed_up(command)
    return command


def _version(value: bool) -> None:
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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What to rent and how to run it before training a deep network."""


def main() -> None:
    """Run the command line. What we have to say is one line on stderr; Ctrl-C leaves with 130."""
    plain_where_needed(sys.stdout, sys.stderr)
    shown: list[type] = []  # kinds of warnings
    warnings.showwarning = partial(_show_warning, shown, warnings.showwarning)
    try:
        try:
            command = typer.main.get_command(app)
            speed_up(command)
            command(prog_name="planner")
        finally:
            sys.stdout.flush()
    except PlannerError as error:
        _leave(str(error), error.exit_code)
    except KeyboardInterrupt as stop:
        _leave(str(stop) or "interrupted", 130)
    except SystemExit as leaving:  # typer turns Ctrl-C into this
        if leaving.code == 130 and ClusterWarning in shown:  # nobody pressed Ctrl-C, and why is said
            sys.exit(PlannerError.exit_code)
        if leaving.code == 130:
            say(_interruption(leaving))
        raise
    except BrokenPipeError:  # the reader, `head` perhaps, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _leave("out of memory; ask for less at once (fewer workers, servers or --jobs)", 2)
    except OSError as error:
        _leave(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "), 2)


def _show_warning(
    shown: list[type], usual: Any, message: Any, category: type, *where: Any, **more: Any
) -> None:
    shown.append(category)
    if issubclass(category, PlannerWarning):
        say(str(message))
    else:
        usual(message, category, *where, **more)


def _interruption(leaving: BaseException) -> str:
    """What the interruption behind an exit says."""
    cause: BaseException | None = leaving
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return str(cause or "") or "interrupted"


def _leave(message: str, code: int) -> None:
    say(message)
    sys.exit(code)
