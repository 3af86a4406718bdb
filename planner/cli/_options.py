"""Options of the commands: those of `options.toml`, and those generated from request flags.

A command is a function with plain defaults. Typer reads signatures, so each command gets one that declares
its options.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import ParameterInfo

from planner.cli._output import write_html
from planner.errors import BadInput
from planner.flags import COMMON, Flag, FlagSection, flags_of, option_name
from planner.memoize import memoize
from planner.report.output import Format, check_writable, emit
from planner.report.page import Table

if TYPE_CHECKING:
    from planner.report.page import Page
    from planner.search.request import Request

COMMON_PANEL = "Common"


def check_output(ctx: typer.Context, param: typer.CallbackParam, path: Any) -> Any:
    """Option callback that raises BadInput early if an output file is not writable or named twice."""
    if path is not None and str(path) != "-" and "://" not in str(path):  # the URL of a study
        check_writable(path)
        flag, file = param.opts[0], Path(os.path.realpath(path))
        flag_of: dict[Path, str] = ctx.meta.setdefault("planner.outputs", {})
        if flag_of.setdefault(file, flag) != flag and not file.is_char_device():
            raise BadInput(f"{flag_of[file]} and {flag} both name {path}; give each a file of its own")
    return path


def _check_report_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Any:
    """Option callback of --html and --timeline that raises BadInput for stdout and other suffixes."""
    if path is not None and str(path) == "-":
        raise BadInput("--html and --timeline need a file: '-' is stdout, which shows the answer")
    named = path is None or path.name.endswith((".json", ".json.gz")) or path.is_char_device()
    if param.name == "timeline" and not named:
        raise BadInput(f"--timeline is {path}; name it .json or .json.gz, which trace viewers open")
    return check_output(ctx, param, path)


def _check_launch_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Any:
    """Option callback that raises BadInput early for unknown launch formats."""
    if path is not None:
        from planner.launch import target_for

        target_for(path)  # refused before the work
    return check_output(ctx, param, path)


def _disable_color(value: bool) -> bool:
    """Option callback of --no-color that sets NO_COLOR."""
    if value:
        os.environ["NO_COLOR"] = "1"
    return value


CHECKS: dict[str, Callable[..., Any]] = {
    "output": check_output,
    "report": _check_report_file,
    "launch": _check_launch_file,
    "colour": _disable_color,
}


def declare_options(command: Callable[..., None], path: str) -> Callable[..., None]:
    """Adds the declarations of `options.toml` to the parameters of the command with this path, such as
    `models show`."""
    known = _declarations()
    module = import_module(command.__module__)

    def with_declaration(parameter: inspect.Parameter) -> inspect.Parameter:
        """Parameter with the typer option that `options.toml` declares for it."""
        name, default = parameter.name, parameter.default
        if isinstance(default, ParameterInfo):
            return parameter
        own = known.get(path, {}).get(name)
        declared = known["shared"][name] | {"section": FlagSection.OUTPUT} if own is None else own
        default = ... if default is inspect.Parameter.empty else default
        return parameter.replace(default=_parameter_info(name, default, declared, module))

    def run(**values: Any) -> None:
        """Calls the command with its options."""
        command(**values)

    return _with_signature(run, command, map(with_declaration, _parameters(command)))


@memoize
def _declarations() -> dict[str, dict[str, dict[str, Any]]]:
    """Declarations by command and parameter."""
    written = tomllib.loads(files("planner.cli").joinpath("options.toml").read_text("utf-8"))
    return {
        path: {name: {"help": one} if isinstance(one, str) else one for name, one in options.items()}
        for path, options in written.items()
    }


def _parameter_info(name: str, default: Any, declared: Mapping[str, Any], module: Any) -> Any:
    """Argument or option of typer for a declaration."""
    fields = dict(declared)
    metavar, section, short = (fields.pop(key, None) for key in ("argument", "section", "short"))
    if check := fields.pop("check", None):
        fields["callback"] = CHECKS[check]
    if complete := fields.pop("complete", None):
        fields["autocompletion"] = getattr(module, complete)
    if metavar:
        return typer.Argument(default, metavar=metavar, **fields)
    spellings = fields.pop("flags", [option_name(name), *([short] if short else [])])
    if section:
        fields |= {"rich_help_panel": section, "show_envvar": False}
        fields["envvar"] = f"PLANNER_{name.upper()}" if fields.pop("env", True) else None
    return typer.Option(default, *spellings, **fields)


def request_option(flag: Flag) -> tuple[Any, Any]:
    """Type and typer option of a request flag."""
    switch = any("/" in spelling for spelling in flag.spellings)
    option = typer.Option(
        None,
        *flag.spellings if switch else (flag.option, *flag.spellings),
        help=flag.help,
        rich_help_panel=COMMON_PANEL if flag.name in COMMON else flag.section,
        envvar=flag.variable,
        show_envvar=False,
        metavar=flag.metavar or flag.kind.metavar or None,
        min=flag.minimum,
    )
    return flag.kind.option | None, option


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """Values of the options that most commands share."""

    options: Mapping[str, Any]
    config: Path | None
    explain: bool
    energy: bool
    quiet: bool
    no_color: bool
    html: Path | None
    format: Format
    output: Path | None

    def request(self) -> Request:
        """The request that the flags and the scenario file describe."""
        from planner.answers.questions import merge_options, parse_request

        return parse_request(**merge_options(self.options, self.config))

    def emit(self, result: Any) -> None:
        """Writes an answer and its HTML page, and in a terminal its plots."""
        from planner.report.page import page_of
        from planner.report.terminal import show_plots

        page = page_of(result, energy=self.energy)
        emit(page, self.format, self.output, explain=self.explain)
        write_html(page, self.html)
        if self.format is Format.table and self.output is None:
            show_plots(page)


SHOWN: dict[str, tuple[Any, Any]] = {  # type and default of what commands with request flags share
    "config": (Path | None, None),
    **dict.fromkeys(("explain", "energy", "quiet", "no_color"), (bool, False)),
    "html": (Path | None, None),
    "format": (Format, Format.table),
    "output": (Path | None, None),
}
KEYWORD = inspect.Parameter.KEYWORD_ONLY
GENERATED = (CommonOptions, dict[str, Any])  # what a command gets of options that are not in its signature


def with_request_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator that adds the options of all request flags, passed as the command's first argument."""
    from planner.search.request import Request

    flags = [flag for flag in flags_of(Request) if command.__name__ in flag.commands]
    flags.sort(key=lambda flag: COMMON.index(flag.name) if flag.name in COMMON else len(COMMON))

    def run_with_request(**values: Any) -> None:
        """Calls the command with `CommonOptions` in place of the request flags."""
        options = {flag.name: values.pop(flag.name) for flag in flags}
        shown = {name: values.pop(name) for name in SHOWN}
        command(CommonOptions(options, **shown), **values)

    before = {flag.name: request_option(flag) for flag in flags}
    return set_signature(run_with_request, command, before, SHOWN)


@dataclass(frozen=True)
class Answer:
    """Output of a command: a page or tables, data for JSON, and optionally another page for --html."""

    shown: Page | Table | list[Table] | Callable[[Format], list[Table]]
    data: Any = None
    title: str = ""
    page: Callable[[], Page] | None = None
    then: Callable[[], None] | None = None  # called after the output is written, perhaps to exit


class ShowsByDefault(TyperGroup):
    """A group that treats an unknown subcommand as the argument of `show`: `planner models vgg11`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Inserts `show` before arguments that do not start with a subcommand."""
        if not args or args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the subcommand; error messages leave an inserted `show` out."""
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == "show" else name, command, rest  # the word is ours, not the user's


def with_output_flags(command: Callable[..., Answer]) -> Callable[..., None]:
    """Decorator that adds --format, --output and --html to a command that returns an `Answer`."""

    def run_with_output(**values: Any) -> None:
        """Calls the command and writes its `Answer` where the output options say."""
        html, format, output = (values.pop(name) for name in ("html", "format", "output"))
        answer = command(**values)
        shown = answer.shown(format) if callable(answer.shown) else answer.shown
        emit(shown, format, output, data=answer.data)
        write_html(answer.page() if answer.page is not None else shown, html, answer.title)
        if answer.then is not None:
            answer.then()

    return set_signature(
        run_with_output, command, {}, {name: SHOWN[name] for name in ("html", "format", "output")}
    )


def set_signature(
    function: Callable[..., None],
    command: Callable[..., Any],
    before: Mapping[str, tuple[Any, Any]],
    after: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """Gives a function a command's signature, with parameters added before and after; returns it."""
    own = [parameter for parameter in _parameters(command) if parameter.annotation not in GENERATED]
    added = [
        [inspect.Parameter(name, KEYWORD, default=default, annotation=kind) for name, (kind, default) in part]
        for part in (before.items(), after.items())
    ]
    return _with_signature(function, command, [*added[0], *own, *added[1]])


def _parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    """Keyword parameters of a command, with types instead of their names."""
    hints = get_type_hints(command, include_extras=True)
    return [
        parameter.replace(annotation=hints[name], kind=KEYWORD)
        for name, parameter in inspect.signature(command).parameters.items()
    ]


def _with_signature(
    function: Callable[..., None], command: Callable[..., Any], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Returns a function with a command's name and help, and with these parameters."""
    signature = inspect.Signature(list(parameters), return_annotation=None)
    function = wraps(command)(function)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {name: option.annotation for name, option in signature.parameters.items()}
    return function
