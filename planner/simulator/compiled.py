"""The compiled engine behind the same face as `reference.run`, which stands in where it is not installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from planner.errors import BadInput, PlannerWarning
from planner.memoize import memoize
from planner.simulator.inputs import Inputs
from planner.simulator.run import TIMELINE_DTYPE, RunResult, check

engine_run: Callable[[Inputs, Callable[[], None]], dict[str, Any]] | None
try:
    from planner.simulator._engine import run as engine_run
except ImportError as error:  # installed without it, or a checkout on the path before the installed package
    engine_run = None
    _missing = str(error)


@memoize  # once is enough
def _warn() -> None:
    warnings.warn(
        f"the compiled engine is not installed ({_missing}): simulations run in Python, with equal results "
        "and up to a hundred times slower; to have it, `pip install .` where Python's headers are, and "
        "start planner outside the checkout or with PYTHONSAFEPATH=1",
        PlannerWarning,
        stacklevel=3,
    )


def run(inputs: Inputs) -> RunResult:
    """One run, as `reference.run` does it, event for event."""
    if engine_run is None:
        from planner.simulator import reference

        _warn()
        return reference.run(inputs)
    try:
        raw = engine_run(inputs, check)
    except ValueError as error:
        raise BadInput(f"{error}; path='reference' has no such limit") from None
    channels = inputs.cluster.channels
    used = raw["used"].reshape(inputs.cluster.workers, 2 + 3 * channels)
    down, up = used[:, :channels], used[:, channels + 1 : 2 * channels + 1]
    timeline = raw["timeline"]
    return RunResult(
        step_starts_s=tuple(raw["step_starts_s"]),
        step_ends_s=tuple(raw["step_ends_s"]),
        staleness=tuple(raw["staleness"]),
        end_s=raw["end_s"],
        measured_from_s=raw["measured_from_s"],
        worker_busy_s=used[:, channels],
        ps_busy_s=used[:, 2 * channels + 1 : 3 * channels + 1],
        host_busy_s=used[:, 3 * channels + 1],
        link_bytes=np.stack([down, up]),
        events=raw["events"],
        stopped=raw["stopped"],
        path=raw["path"],
        timeline=None if timeline is None else np.frombuffer(timeline, TIMELINE_DTYPE),
    )
