"""A published run of a large model beside what the package predicts of it, for the suites that have such."""

from __future__ import annotations

import math
from collections import Counter

from planner.errors import BadInput
from planner.validation.evidence import Compared
from planner.validation.large_runs import LargeRun
from planner.validation.large_steps import left_out, predicted


def compared(
    run: LargeRun,
    refused: Counter[str],
    *,
    part: str,
    what: str,
    left_out_id: str,
    rule: float | None = None,
) -> Compared | None:
    """The run's step beside ours; None, and the reason counted in `refused`, where the package cannot say it.
    `left_out_id` finds the error with its source left out."""
    try:
        step = predicted(run)
    except BadInput as error:
        refused[f"refused by the package: {error}"] += 1
        return None
    if step is None:
        refused[f"no machine of the catalogue has {run.device}"] += 1
        return None
    left_s = step.seconds * math.exp(left_out().get(left_out_id, 0.0))
    low_per_s, high_per_s = step.error.range_of(1 / left_s)
    return Compared(
        id=run.id,
        source=run.source,
        part=part,
        what=what,
        unit="s",
        measured=run.step_s,
        predicted=step.seconds,
        low=1 / high_per_s,
        high=1 / low_per_s,
        left_out=left_s,
        rule=rule,
    )
