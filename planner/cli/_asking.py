"""What every question is asked with: the flags of a scenario, and how its answer is shown.

`asks` gives a command these flags besides its own. They stand here once; typer reads signatures, so the
command that it sees has them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from planner.cli import _answers as flags
from planner.cli._options import FormatOption, OutputOption
from planner.report.output import Format, Table

if TYPE_CHECKING:
    from planner.answers.scenario import Scenario

SCENARIO: dict[str, Any] = {  # by name, in the order of --help; not given is None
    "model": flags.ModelOption,
    "hardware": flags.HardwareOption,
    "gpu": flags.GpuOption,
    "provider": flags.ProviderOption,
    "sold": flags.SoldOption,
    "workers": flags.WorkersOption,
    "servers": flags.ServersOption,
    "server_hardware": flags.ServerHardwareOption,
    "workers_per_replica": flags.PerReplicaOption,
    "batch": flags.BatchOption,
    "precision": flags.PrecisionOption,
    "seq_length": flags.SeqLengthOption,
    "framework": flags.FrameworkOption,
    "accumulate": flags.AccumulateOption,
    "global_batch": flags.GlobalBatchOption,
    "recompute": flags.RecomputeOption,
    "tensor": flags.TensorOption,
    "pipeline": flags.PipelineOption,
    "interleave": flags.InterleaveOption,
    "placement": flags.PlacementOption,
    "policy": flags.PolicyOption,
    "mode": flags.ModeOption,
    "exchange": flags.ExchangeOption,
    "profile": flags.ProfileOption,
    "budget": flags.BudgetOption,
    "epochs": flags.EpochsOption,
    "samples": flags.SamplesOption,
    "tokens": flags.TokensOption,
    "deadline": flags.DeadlineOption,
    "spend": flags.SpendOption,
    "network": flags.NetworkOption,
    "bandwidth": flags.BandwidthOption,
    "region": flags.RegionOption,
    "spot": flags.SpotOption,
    "interruptions": flags.InterruptionsOption,
    "checkpoint_every": flags.CheckpointEveryOption,
    "restart": flags.RestartOption,
    "seed": flags.SeedOption,
    "interval_width": flags.IntervalWidthOption,
}
SHOWN: dict[str, tuple[Any, Any]] = {  # with what it is if not given
    "config": (flags.ConfigOption, None),
    "explain": (flags.ExplainOption, False),
    "energy": (flags.EnergyOption, False),
    "quiet": (flags.QuietOption, False),
    "no_color": (flags.NoColorOption, False),
    "html": (flags.HtmlOption, None),
    "format": (FormatOption, Format.table),
    "output": (OutputOption, None),
}


@dataclass(frozen=True, slots=True)
class Given:
    """What was given of the common flags."""

    scenario_flags: Mapping[str, Any]
    config: Path | None
    explain: bool
    energy: bool
    quiet: bool
    no_color: bool
    html: Path | None
    format: Format
    output: Path | None

    def scenario(self, **own: Any) -> Scenario:
        """With the command's own flags, and what the file says of the rest."""
        from planner.answers.scenario import merged

        return merged({**self.scenario_flags, **own}, self.config)

    def emit(self, tables: Callable[..., list[Table]], result: Any) -> None:
        """Show an answer as its tables."""
        from planner.report.folding import folded
        from planner.report.output import emit

        shown = folded(tables(result, energy=self.energy), explain=self.explain, energy=self.energy)
        emit(shown, self.format, self.output, data=result.as_dict())


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the common flags, which it gets as its first argument."""
    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    mine = [one.replace(annotation=hints[one.name]) for one in own]

    @wraps(command)
    def asked(**values: Any) -> None:
        given = {name: values.pop(name) for name in SCENARIO}
        shown = {name: values.pop(name) for name in SHOWN}
        command(Given(given, **shown), **values)

    def flag(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    first = [flag(name, kind) for name, kind in SCENARIO.items()]
    last = [flag(name, kind, default) for name, (kind, default) in SHOWN.items()]
    signature = inspect.Signature([*first, *mine, *last], return_annotation=None)
    asked.__signature__ = signature  # type: ignore[attr-defined]
    asked.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return asked
