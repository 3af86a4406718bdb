"""Options of the commands: those generated from request flags, and those for output.

`with_request_flags` adds the options of request flags to a command's own. Typer reads signatures, so it is
given a signature with all of them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.core import TyperGroup

from planner.cli._app import opt
from planner.cli._output import write_html
from planner.errors import BadInput
from planner.flags import COMMON, Flag, FlagSection, flags_of
from planner.report.output import Format, check_writable, emit
from planner.report.page import Table

if TYPE_CHECKING:
    from planner.report.page import Page
    from planner.search.request import Request

COMMON_PANEL = "Common"


def check_output(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Option callback that raises BadInput early if an output file is not writable or named twice."""
    if path is not None and str(path) != "-":
        check_writable(path)
        flag, file = param.opts[0], Path(os.path.realpath(path))
        flag_of: dict[Path, str] = ctx.meta.setdefault("planner.outputs", {})
        if flag_of.setdefault(file, flag) != flag and not file.is_char_device():
            raise BadInput(f"{flag_of[file]} and {flag} both name {path}; give each a file of its own")
    return path


def _check_report_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Option callback of --html and --timeline that raises BadInput for stdout and other suffixes."""
    if path is not None and str(path) == "-":
        raise BadInput("--html and --timeline need a file; '-' is stdout, which has the table")
    named = path is None or path.name.endswith((".json", ".json.gz")) or path.is_char_device()
    if param.name == "timeline" and not named:
        raise BadInput(f"--timeline is {path}; name it .json or .json.gz, which trace viewers open")
    return check_output(ctx, param, path)


def _check_launch_file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Option callback that raises BadInput early for unknown launch formats."""
    if path is not None:
        from planner.launch import target_for

        target_for(path)  # refused before the work
    return check_output(ctx, param, path)


def _disable_color(value: bool) -> bool:
    """Option callback that sets NO_COLOR, which rich and everything else obeys."""
    if value:
        os.environ["NO_COLOR"] = "1"  # which rich and everything else obeys
    return value


def output_opt(*names: str, default: Any = None, **more: Any) -> Any:
    """Typer option in the section Output with its environment variable, for use as a parameter's default."""
    variable = "PLANNER_" + names[0].removeprefix("--").replace("-", "_").upper()
    return opt(
        *names,
        default=default,
        rich_help_panel=FlagSection.OUTPUT,
        **{"envvar": variable, "show_envvar": False, **more},
    )


CONFIG = output_opt(
    "--config", "Scenario file, e.g. lab.toml; flags and PLANNER_* override it.", metavar="FILE"
)
EXPLAIN = output_opt("--explain", "List every assumption and machine left out.", default=False)
ENERGY = output_opt("--energy", "Also show kWh and kg CO2e per million samples.", default=False)
QUIET = output_opt("--quiet", "-q", "Do not show progress on stderr.", default=False)
NO_COLOR = output_opt(
    "--no-color", "Disable colour, as NO_COLOR does.", default=False, callback=_disable_color
)
HTML = output_opt(
    "--html",
    "Also write a report with charts, e.g. report.html.",
    metavar="FILE",
    callback=_check_report_file,
)
FORMAT = output_opt(
    "--format",
    "-f",
    "Format of the answer, e.g. json.",
    default=Format.table,
    envvar=None,
    case_sensitive=False,
)
OUTPUT = output_opt(
    "--output",
    "-o",
    "Write the answer to FILE instead of stdout (atomically).",
    metavar="FILE",
    envvar=None,
    callback=check_output,
)
SHOWN: dict[str, tuple[Any, Any]] = {  # type and option of what commands with request flags share
    "config": (Path | None, CONFIG),
    "explain": (bool, EXPLAIN),
    "energy": (bool, ENERGY),
    "quiet": (bool, QUIET),
    "no_color": (bool, NO_COLOR),
    "html": (Path | None, HTML),
    "format": (Format, FORMAT),
    "output": (Path | None, OUTPUT),
}
JOBS = output_opt("--jobs", "-j", "Simulations in parallel, e.g. 4; the answer does not change.", min=1)
CLUSTER = output_opt("--cluster", "Simulate on a Dask cluster, e.g. tcp://host:8786.", metavar="URL")
TIMELINE = output_opt(
    "--timeline",
    "Also write a Chrome trace of the step for Perfetto, e.g. step.json.gz.",
    metavar="FILE",
    callback=_check_report_file,
)
TIMELINE_STEPS = output_opt(
    "--timeline-steps", "Steps of worker 0 in the timeline, e.g. 3.", default=3, min=1, max=1000
)
EXPORT = output_opt(
    "--export",
    "Also write a launch file, e.g. plan.sh (torchrun), .sky.yaml, .accelerate.yaml (docs/output.md).",
    metavar="FILE",
    callback=_check_launch_file,
)
FAIL_OVER = output_opt(
    "--fail-over", "Exit with status 3 above this cost per million samples, e.g. 0.90.", metavar="USD"
)


def request_option(flag: Flag) -> tuple[Any, Any]:
    """Type and typer option of a request flag."""
    switch = any("/" in spelling for spelling in flag.spellings)
    option = opt(
        *flag.spellings if switch else (flag.option, *flag.spellings),
        flag.help,
        rich_help_panel=COMMON_PANEL if flag.name in COMMON else flag.section,
        envvar=flag.variable,
        show_envvar=False,
        metavar=flag.metavar or flag.kind.metavar or None,
        min=flag.minimum,
    )
    return flag.kind.option | None, option


@dataclass(frozen=True, slots=True)
class Given:
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
        """Writes an answer and its HTML page; in a terminal also its plot."""
        from planner.report.page import page_of
        from planner.report.terminal import show_plots

        page = page_of(result, energy=self.energy)
        emit(page, self.format, self.output, explain=self.explain)
        write_html(page, self.html)
        if self.format is Format.table and self.output is None:
            show_plots(page)


GENERATED = (Given, dict[str, Any])  # what a command gets of options that are not in its signature


def with_request_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator that adds the options of all request flags, passed as the command's first argument."""
    from planner.search.request import Request

    flags = [flag for flag in flags_of(Request) if command.__name__ in flag.commands]
    flags.sort(key=lambda flag: COMMON.index(flag.name) if flag.name in COMMON else len(COMMON))

    def run_with_request(**values: Any) -> None:
        options = {flag.name: values.pop(flag.name) for flag in flags}
        shown = {name: values.pop(name) for name in SHOWN}
        command(Given(options, **shown), **values)

    before = {flag.name: request_option(flag) for flag in flags}
    return set_signature(run_with_request, command, before, SHOWN)


@dataclass(frozen=True)
class Answer:
    """Output of a command: a page or tables, data for JSON, and optionally another page for --html."""

    shown: Page | Table | list[Table] | Callable[[Format], list[Table]]
    data: Any = None
    title: str = ""
    page: Callable[[], Page] | None = None


class ShowsByDefault(TyperGroup):
    """A group that treats an unknown subcommand as the argument of `show`: `planner models vgg11`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args or args[0] not in self.commands:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == "show" else name, command, rest  # the word is ours, not the user's


def with_output_flags(command: Callable[..., Answer | None]) -> Callable[..., None]:
    """Decorator that adds --format, --output and --html to a command that returns an `Answer`."""

    def run_with_output(**values: Any) -> None:
        html, format, output = (values.pop(name) for name in ("html", "format", "output"))
        answer = command(**values)
        if answer is None:
            return
        shown = answer.shown(format) if callable(answer.shown) else answer.shown
        emit(shown, format, output, data=answer.data)
        write_html(answer.page() if answer.page is not None else shown, html, answer.title)

    return set_signature(
        run_with_output, command, {}, {name: SHOWN[name] for name in ("html", "format", "output")}
    )


def set_signature(
    function: Callable[..., None],
    command: Callable[..., Any],
    before: Mapping[str, tuple[Any, Any]],
    after: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """Gives a function the signature of a command, with options added before and after its own."""
    hints, keyword = get_type_hints(command, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(command).parameters
    own = [parameters[name] for name, kind in hints.items() if name in parameters and kind not in GENERATED]

    def keyword_parameters(options: Mapping[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
        return [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in options.items()
        ]

    mine = [parameter.replace(annotation=hints[parameter.name], kind=keyword) for parameter in own]
    options = [*keyword_parameters(before), *mine, *keyword_parameters(after)]
    signature = inspect.Signature(options, return_annotation=None)
    function = wraps(command)(function)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__annotations__ = {name: option.annotation for name, option in signature.parameters.items()}
    return function
