"""What happens when: the chunks of a few steps, for the pictures of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.simulator.cluster import Cluster
from planner.simulator.step import Profile

if TYPE_CHECKING:
    from planner.simulator.simulate import Case

WARMUP_STEPS = 5  # that every worker has behind it before the window opens


@dataclass(frozen=True)
class Timeline:
    """Chunks of a run that overlap a window of a few steps of worker 0."""

    profile: Profile  # as simulated: a policy may have cut its transfers
    cluster: Cluster
    rows: npt.NDArray[Any]  # of planner.simulator.run.TIMELINE_DTYPE, in the order of ends
    step: int  # of worker 0, the first of the window
    steps: int
    start_s: float
    end_s: float
    about: Mapping[str, Any]

    @cached_property
    def first_s(self) -> float:
        """Simulated time in seconds at which the first chunk began."""
        return float(self.rows["start_s"].min())


def timeline_of(request: Request, plan: Plan, *, steps: int = 3) -> Timeline:
    """Timeline of a few simulated steps of a plan, with the seed that scored it."""
    case = Cases(request, model_of(request)).case(plan)
    about = {
        "model": plan.model,
        "batch": plan.batch,
        "cluster": plan.cluster_text,
        "exchange": plan.exchange.labels().plan,
    }
    seed = plan.simulation_seed(request.seed)
    return simulate_window(case, seed=seed, steps=steps, facts=about)


def simulate_window(
    case: Case, *, seed: int = 0, steps: int = 3, facts: Mapping[str, Any] | None = None
) -> Timeline:
    """Simulates a few steps of worker 0 after a warm-up; returns the timeline of these steps."""
    from planner.simulator.run import RunOptions, run
    from planner.simulator.simulate import FAIRNESS_SIGMA, start_offsets_s

    profile, cluster = case.profile, case.cluster

    if steps < 1:
        raise BadInput(f"a timeline of {steps} steps is empty; ask for at least 1")
    offsets = () if case.is_lockstep() else start_offsets_s(profile, cluster, seed, 0)
    total = _with_margin(WARMUP_STEPS + steps)
    while True:
        options = RunOptions(
            seed=seed,
            steps=total,
            warmup_steps=WARMUP_STEPS,
            start_offsets_s=offsets,
            fairness_sigma=FAIRNESS_SIGMA,
            timeline=True,
        )
        result = run(profile, cluster, case.policy, case.mode, options, joins=case.joins)
        warm = all(len(ends) >= WARMUP_STEPS for ends in result.step_ends_s)
        ends = result.step_ends_s[0]
        starts = result.step_starts_s[0][: len(ends)]
        first = int(np.searchsorted(starts, result.measured_from_s if warm else np.inf))
        if first + steps <= len(ends):
            break
        total = _with_margin(total)  # a fast worker ended the run before worker 0 was through
    rows = result.timeline
    assert rows is not None
    start_s, end_s = float(starts[first]), float(ends[first + steps - 1])
    # In the order of ends the window is a slice, which copies nothing; a few chunks of it start later.
    inside = slice(
        int(np.searchsorted(rows["end_s"], start_s)), int(np.flatnonzero(rows["start_s"] < end_s)[-1]) + 1
    )
    return Timeline(profile, cluster, rows[inside], first, steps, start_s, end_s, facts or {})


def _with_margin(steps: int) -> int:
    """Adds an eighth to a number of steps (at least 2), since workers differ in speed."""
    return steps + max(2, steps // 8)
