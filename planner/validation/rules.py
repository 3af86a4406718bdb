"""Compares predictions with rules of thumb, on runs of large models where communication matters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from planner.validation.evidence import Compared, Statement
from planner.validation.predict import RunStep, predict_step
from planner.validation.run import Run

MATTERS, MOST_SHARE = 0.1, 0.5  # communication of a step; of a rule's error that ours may be there


@dataclass(frozen=True, slots=True)
class RuleErrors:
    """Absolute relative errors of our prediction and of two rules of thumb on one run. Constant MFU:
    arithmetic over 0.4 of the peak. Linear scaling: the rate per device of the smallest run of the same
    kind; `anchored` is our prediction scaled to match that run."""

    ours: float
    constant_mfu: float | None
    linear: float | None = None
    anchored: float | None = None


def rule_errors(runs: Sequence[Run], rows: Sequence[Compared]) -> list[RuleErrors]:
    """Our errors and the rules' on each run whose exposed communication exceeds a tenth of its step."""
    by_id = {row.id: row for row in rows}
    smallest = smallest_runs(runs)
    parts = []
    for run in runs:
        row, step = by_id[run.id], predict_step(run)
        if not isinstance(step, RunStep) or step.exposed <= MATTERS:
            continue
        ours = abs(_predicted_or_left_out_s(row) / row.measured - 1)
        rule = None if row.rule is None else abs(row.rule / row.measured - 1)
        start = by_id.get(smallest[run.id].id) if run.id in smallest else None
        if start is None:
            parts.append(RuleErrors(ours, rule))
            continue
        base = smallest[run.id]
        each, base_each = (entry.tokens_per_step / entry.devices for entry in (run, base))
        linear_s = start.measured * each / base_each
        anchored_s = start.measured * _predicted_or_left_out_s(row) / _predicted_or_left_out_s(start)
        parts.append(
            RuleErrors(ours, rule, abs(linear_s / row.measured - 1), abs(anchored_s / row.measured - 1))
        )
    return parts


def _predicted_or_left_out_s(row: Compared) -> float:
    """Predicted seconds, with the run's source left out of the fit if known."""
    return row.predicted if row.left_out is None else row.left_out


def smallest_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """By the id of each larger run, the run with the fewest devices that is otherwise alike."""
    series: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.layout is None or run.model is None:
            continue
        what = (run.source, run.series, run.model.name, run.device_name, run.precision, run.recompute)
        series[*what, run.layout.mesh, run.batch].append(run)
    by_name: dict[str, Run] = {}
    for alike in series.values():
        least = min(alike, key=lambda run: run.devices)
        by_name |= {run.id: least for run in alike if run.devices > least.devices}
    return by_name


def relative_errors(runs: Sequence[Run], rows: Sequence[Compared]) -> list[Statement]:
    """Statements on our median error divided by each rule's, on the same runs."""
    result = rule_errors(runs, rows)
    out = []
    for rule, ours, theirs in (
        ("constant-MFU", [match.ours for match in result], [match.constant_mfu for match in result]),
        ("linear-scaling", [match.anchored for match in result], [match.linear for match in result]),
    ):
        known = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        if known and (error := median(b for _, b in known)) > 0:
            out.append(
                Statement(
                    name=f"where communication matters: error relative to a {rule} estimate",
                    value=median(a for a, _ in known) / error,
                    target=MOST_SHARE,
                )
            )
    return out
