"""Flags that `recommend`, `compare`, `saturation` and `simulate` share, and how they are merged and shown."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli._options import checked
from planner.cli._progress import progress
from planner.cli._say import say
from planner.errors import BadInput
from planner.report.output import Format

if TYPE_CHECKING:
    from rich.text import Text

    from planner.search.scored import ScoredPlan

PLAN = "What"
LIMITS = "Limits"
HOW = "How"


def _option(*names: str, help: str, panel: str = PLAN, **more: Any) -> Any:
    first = names[0].partition("/")[0]  # of `--spot/--on-demand`
    variable = "PLANNER_" + first.removeprefix("--").replace("-", "_").upper()
    return typer.Option(*names, help=help, rich_help_panel=panel, envvar=variable, show_envvar=False, **more)


def objective(help: str) -> Any:
    """The flag of what decides, which every command says in its own words."""
    return typer.Option(envvar="PLANNER_OBJECTIVE", show_envvar=False, help=help)


def _no_color(value: bool) -> bool:
    if value:
        os.environ["NO_COLOR"] = "1"  # which rich and everything else obeys
    return value


def _file(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None and str(path) == "-":
        raise BadInput("--html and --timeline need a file; '-' is stdout, which has the table")
    named = path is None or path.name.endswith((".json", ".json.gz")) or path.is_char_device()
    if param.name == "timeline" and not named:
        raise BadInput(f"--timeline is {path}; name it .json or .json.gz, which trace viewers open")
    return checked(ctx, param, path)


def _export(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None:
        from planner.launch import target_for

        target_for(path)  # refused before the work
    return checked(ctx, param, path)


FILE: dict[str, Any] = {"callback": _file}
ExportOption = Annotated[
    Path | None,
    _option(
        "--export",
        metavar="FILE",
        help="Also write what starts the plan: .sky.yaml (SkyPilot), .sh (torchrun), .k8s.yaml (Kubernetes).",
        panel="How",
        callback=_export,
    ),
]
FailOverOption = Annotated[
    float | None,
    _option("--fail-over", metavar="USD", help="Leave with 3 where a million samples cost more."),
]
ModelOption = Annotated[
    str | None, _option("--model", "-m", help="A network of the catalogue or a .toml file.")
]
HardwareOption = Annotated[
    str | None,
    _option("--hardware", help="Workers' machines: names and patterns, as 'p3.*,g5.xlarge'."),
]
GpuOption = Annotated[
    str | None, _option("--gpu", metavar="DEVICE", help="Machines with a device: H100, H100:8, 'A100,L4'.")
]
ProviderOption = Annotated[
    str | None, _option("--provider", metavar="NAMES", help="Whose machines: aws (default), 'aws,gcp', ...")
]
SoldOption = Annotated[
    bool | None,
    _option("--sold/--all", help="Only what can be rented (default), or retired and example machines too."),
]
ServerHardwareOption = Annotated[
    str | None,
    _option("--server-hardware", help="Servers' machines: names, patterns, or own, cheap, colocated."),
]
WorkersOption = Annotated[str | None, _option("--workers", "-w", help="How many workers: 4, 1,2,4 or 1-8.")]
ServersOption = Annotated[str | None, _option("--servers", help="How many parameter servers: 2 or 1-4.")]
PerReplicaOption = Annotated[
    str | None,
    _option("--workers-per-replica", help="CPU workers that share one copy of the model: 2 or 1,2,4."),
]
BatchOption = Annotated[
    str | None,
    _option("--batch", "-b", "--micro-batch", help="Samples a worker takes at once: 32, 32,64 or auto."),
]
PlacementOption = Annotated[
    str | None, _option("--placement", help="How tensors go to servers: greedy, best_fit, mxnet, p3, all.")
]
PolicyOption = Annotated[
    str | None, _option("--policy", help="How transfers share a link: multiplexed, fifo, tic, ..., all.")
]
ExchangeOption = Annotated[
    str | None,
    _option(
        "--exchange",
        help="How replicas train together: alone, allreduce (DDP), sharded (FSDP, ZeRO), owned, servers, or "
        "all; with choices as sharded:stage=2 (docs/exchanges.md).",
    ),
]
ModeOption = Annotated[str | None, _option("--mode", help="async or sync.")]
ProfileOption = Annotated[
    str | None,
    _option("--profile", help="A recording or profile of your own, several (a,b) for several batches."),
]
BudgetOption = Annotated[
    float | None,
    _option("--budget", metavar="USD", help="USD an hour at most, servers included.", panel=LIMITS),
]
EpochsOption = Annotated[
    float | None,
    _option(
        "--epochs", help="The job: passes over the training set (1; of tokens see --tokens).", panel=LIMITS
    ),
]
SamplesOption = Annotated[float | None, _option("--samples", help="The job: samples in all.", panel=LIMITS)]
TokensOption = Annotated[
    str | None,
    _option("--tokens", help="The job: tokens in all, as 300M or 2T (an epoch, at most 1B).", panel=LIMITS),
]
DeadlineOption = Annotated[
    str | None, _option("--deadline", help="What the job may take: 36h, 90min or 2d.", panel=LIMITS)
]
SpendOption = Annotated[
    float | None, _option("--spend", metavar="USD", help="USD for the whole job at most.", panel=LIMITS)
]
NetworkOption = Annotated[
    str | None,
    _option(
        "--network",
        help="baseline (long training) or burst (minutes); tcp or rdma: 'burst,tcp'.",
        panel=LIMITS,
    ),
]
BandwidthOption = Annotated[
    str | None, _option("--bandwidth", help="Every NIC's bandwidth as measured: 9.4Gbit.", panel=LIMITS)
]
RegionOption = Annotated[
    str | None,
    _option(
        "--region", help="Region of the prices: a name, or cheapest (each machine where it is).", panel=LIMITS
    ),
]
SpotOption = Annotated[
    bool | None,
    _option(
        "--spot/--on-demand", help="Rent spot machines where they pay, interruptions included.", panel=LIMITS
    ),
]
InterruptionsOption = Annotated[
    str | None,
    _option("--interruptions", help="Spot machines taken away in a month: 10% (as published).", panel=LIMITS),
]
CheckpointEveryOption = Annotated[
    str | None,
    _option("--checkpoint-every", help="On spot machines: 30min (as often as costs least).", panel=LIMITS),
]
RestartOption = Annotated[
    str | None,
    _option("--restart", help="Until a spot run goes on after an interruption (5min).", panel=LIMITS),
]
EnergyOption = Annotated[
    bool, _option("--energy", help="Also show kWh and kg CO2e a million samples.", panel=HOW)
]
ExplainOption = Annotated[
    bool, _option("--explain", help="Say all that was looked at and assumed.", panel=HOW)
]
ConfigOption = Annotated[
    Path | None,
    _option("--config", help="A scenario file; flags win over PLANNER_* variables, they over it.", panel=HOW),
]
SeedOption = Annotated[int | None, _option("--seed", help="Seed of everything random.", panel=HOW, min=0)]
PrecisionOption = Annotated[
    str | None,
    _option("--precision", help="Number format: fp32, tf32, fp16, bf16, fp8; the model's own if not given."),
]
FrameworkOption = Annotated[
    str | None,
    _option(
        "--framework",
        help="Software that computes: pytorch (usual), pytorch-compiled, transformer-engine (Megatron-Core, "
        "NeMo), megatron, ngc, xla, ... (docs/rates.md).",
    ),
]
IntervalWidthOption = Annotated[
    float | None,
    _option("--interval-width", help="Half-width of the simulation's interval: 0.01 is 1%.", panel=HOW),
]
RecomputeOption = Annotated[
    str | None,
    _option("--recompute", help="Activation recompute (checkpointing): none, selective or full."),
]
AccumulateOption = Annotated[
    int | None, _option("--accumulate", help="Micro-batches between two exchanges.", min=1)
]
GlobalBatchOption = Annotated[
    int | None, _option("--global-batch", help="Samples of all workers a step; accumulation follows.", min=1)
]
SeqLengthOption = Annotated[
    int | None, _option("--seq-length", help="Tokens of a sample, if not the model's own.", min=1)
]
TensorOption = Annotated[str | None, _option("--tensor", help="Devices that share every layer: 8 or 1,2,4.")]
PipelineOption = Annotated[str | None, _option("--pipeline", help="Stages of layers: 4 or 1,2,4.")]
InterleaveOption = Annotated[
    str | None, _option("--interleave", help="Stages that each device has of a pipeline: 2 or 1,2,4.")
]
MaxStepsOption = Annotated[
    int | None,
    _option("--max-steps", help="Steps of a worker at most, in all runs (1000).", panel=HOW),
]
JobsOption = Annotated[
    int | None,
    _option("--jobs", "-j", help="Simulations at once; the answer does not depend on it.", panel=HOW, min=1),
]
HtmlOption = Annotated[
    Path | None,
    _option("--html", metavar="FILE", help="Also write a report with charts, one file.", panel=HOW, **FILE),
]
TimelineOption = Annotated[
    Path | None,
    _option(
        "--timeline",
        metavar="FILE",
        help="Also write what happens when as a Chrome trace (.json or .json.gz), for Perfetto.",
        panel=HOW,
        **FILE,
    ),
]
TimelineStepsOption = Annotated[
    int, _option("--timeline-steps", help="Steps of worker 0 in the timeline.", panel=HOW, min=1)
]
NoColorOption = Annotated[
    bool, _option("--no-color", help="Without colour, as NO_COLOR asks.", panel=HOW, callback=_no_color)
]
ClusterOption = Annotated[
    str | None,
    _option("--cluster", help="Simulate on a Dask cluster: its scheduler, as tcp://host:8786.", panel=HOW),
]
QuietOption = Annotated[bool, _option("--quiet", "-q", help="No progress on stderr.", panel=HOW)]

__all__ = ["progress"]


def finish(partial: bool) -> None:
    """Leave with 130 after Ctrl-C, once what was done is shown."""
    if partial:
        raise typer.Exit(130)


def draw(
    result: Any,
    *,
    html: Path | None,
    chosen: ScoredPlan | None = None,
    timeline: Path | None = None,
    timeline_steps: int = 3,
) -> None:
    """Write the report and the timeline that were asked for."""
    if html is not None:
        from planner.report.html import write_html

        write_html(result, html, reproducing())
        say(f"report in {html}")
    if timeline is not None and chosen is not None:
        from planner.answers.timeline import timeline_of
        from planner.report.chrome import write_chrome

        write_chrome(timeline_of(result.request, chosen.plan, steps=timeline_steps), timeline)
        say(f"timeline in {timeline}; open it at ui.perfetto.dev")


def draw_tables(tables: Any, title: str, html: Path | None) -> None:
    """Write tables as a page, where one is asked for."""
    if html is not None:
        from planner.report.html_tables import write_tables

        write_tables(tables, html, title, reproducing())
        say(f"report in {html}")


def export_plan(scored: ScoredPlan, request: Any, path: Path | None) -> None:
    """Write the file that starts a plan, where one is asked for."""
    if path is None:
        return
    from planner.answers.launching import launch_of
    from planner.files.atomic import write_file
    from planner.launch import export_text, target_for

    write_file(path, export_text(path, launch_of(scored, request)))
    say(f"launch in {path}; {target_for(path).says.replace('FILE', str(path))}")


def fail(scored: ScoredPlan, over_usd: float | None) -> None:
    """Leave with 3 where a million samples cost more than a limit."""
    if over_usd is not None and scored.usd_per_million_samples > over_usd:
        say(f"${scored.usd_per_million_samples:.2f} a million samples, over the limit of ${over_usd:.2f}")
        raise typer.Exit(3)


def plot(make: Callable[[int], Text], format: Format, output: Path | None) -> None:
    """A plot under the table, where a person reads it."""
    if format is Format.table and output is None:
        from planner.report.plots import show_plot

        show_plot(make)


def reproducing() -> str:
    """The command line that gives this answer again, with the PLANNER_* variables that it depends on."""
    variables = [f"{k}={shlex.quote(v)}" for k, v in sorted(os.environ.items()) if k.startswith("PLANNER_")]
    return " ".join([*variables, shlex.join(["planner", *sys.argv[1:]])])
