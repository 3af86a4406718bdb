"""What simple rules make of published runs of large models, beside the package.

Two rules people use. Constant model-FLOP use: 6 (8 where the forward pass is computed twice) x parameters x
tokens over 0.4 of the peak. Linear scaling: what a device did in the smallest run of the same series, however
many there are; beside it our prediction is taken from that run too, as its ratio. Both rules know nothing of
communication, so runs are told apart by how much of their step it takes by our own split: above a tenth it
matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from planner.device.computation import SUM, WAIT
from planner.errors import BadInput
from planner.parallel.mesh import data_parallel_group
from planner.validation.evidence import Compared
from planner.validation.large_runs import LargeRun
from planner.validation.large_steps import micro_batch_of, site_of

MATTERS = 0.1  # of the step
MOST_SHARE = 0.5  # of a rule's error that ours may be where communication matters
OURS = {"constant MFU": "ours", "linear scaling": "ours from the same smallest run"}  # what to compare with


@dataclass(frozen=True, slots=True)
class Beside:
    """A run with its step as measured, as predicted with its source left out, and by the two rules;
    `anchored_s` is as predicted from the run that linear scaling starts at; `exposed` is the share of
    communication in the step as predicted."""

    run: LargeRun
    predicted_s: float
    rule_s: float | None
    linear_s: float | None
    exposed: float
    anchored_s: float | None = None

    @property
    def matters(self) -> bool:
        return self.exposed > MATTERS


def beside(runs: Sequence[LargeRun], rows: Sequence[Compared]) -> list[Beside]:
    """The runs that evidence has predictions of, with the rules."""
    by_id = {row.id: row for row in rows}
    linear, smallest = linear_s(runs), anchors(runs)
    found = []
    for run in runs:
        row = by_id.get(run.id)
        if row is None:
            continue
        exposed = exposed_share(run, row.predicted)
        if exposed is not None:
            start = smallest.get(run.id)
            anchored = None
            if start is not None and start.id in by_id:
                anchored = start.step_s * _left_out_s(row) / _left_out_s(by_id[start.id])
            found.append(Beside(run, _left_out_s(row), row.rule, linear.get(run.id), exposed, anchored))
    return found


def _left_out_s(row: Compared) -> float:
    return row.predicted if row.left_out is None else row.left_out


def anchors(runs: Sequence[LargeRun]) -> dict[str, LargeRun]:
    """The smallest run of the same kind, of runs that are not."""
    series: dict[tuple[str, ...], list[LargeRun]] = {}
    for run in runs:
        what = (run.source, run.series, run.model.name, run.device, run.precision.name, run.recompute)
        series.setdefault((*what, f"{run.tensor}x{run.pipeline} {run.micro_batch}"), []).append(run)
    found: dict[str, LargeRun] = {}
    for alike in series.values():
        least = min(alike, key=lambda run: run.devices)
        found |= {run.id: least for run in alike if run.devices > least.devices}
    return found


def linear_s(runs: Sequence[LargeRun]) -> dict[str, float]:
    """Seconds by linear scaling: what a device did in the smallest run in a second, as often as there are
    devices."""
    found, by_id = {}, {run.id: run for run in runs}
    for id, least in anchors(runs).items():
        rate = least.tokens_per_step / least.step_s / least.devices
        found[id] = by_id[id].tokens_per_step / (rate * by_id[id].devices)
    return found


def exposed_share(run: LargeRun, step_s: float) -> float | None:
    """What is left of a predicted step without computation, optimizer and bubble, as a share of it."""
    site = site_of(run)
    if site is None:
        return None
    try:
        once = micro_batch_of(run, site)
    except BadInput:
        return None
    assert once.once_s is not None
    assert once.work is not None
    wait_s = float(once.once_s[once.work == WAIT].sum())
    busy_s = float(once.once_s[(once.work != WAIT) & (once.work != SUM)].sum()) * run.accumulate
    shards = data_parallel_group(site).workers if run.stage else 1
    return max(step_s - busy_s - wait_s - once.optimizer_s / shards, 0.0) / step_s


def error(predicted_s: float | None, run: LargeRun) -> float | None:
    return None if predicted_s is None else abs(predicted_s / run.step_s - 1)


def medians(found: Sequence[Beside]) -> Mapping[str, tuple[float, int]]:
    """Median error and number of runs of each way; ours on the same runs as each rule as well."""
    ways = {
        "ours": [error(one.predicted_s, one.run) for one in found],
        "constant MFU": [error(one.rule_s, one.run) for one in found],
        "linear scaling": [error(one.linear_s, one.run) for one in found],
        "ours from the same smallest run": [error(one.anchored_s, one.run) for one in found],
    }
    said = {name: [value for value in values if value is not None] for name, values in ways.items()}
    return {name: (median(values), len(values)) for name, values in said.items() if values}


def shares(found: Sequence[Beside]) -> dict[str, float]:
    """Our median error as a share of each rule's, on the same runs: those in which communication matters."""
    by_way = medians([one for one in found if one.matters])
    return {
        rule: by_way[ours][0] / by_way[rule][0]
        for rule, ours in OURS.items()
        if rule in by_way and ours in by_way and by_way[rule][0] > 0
    }


def lines(found: Sequence[Beside]) -> list[str]:
    """In words, for a benchmark."""
    out = []
    for title, some in (
        (f"communication above {MATTERS:.0%} of the step", [one for one in found if one.matters]),
        ("communication below", [one for one in found if not one.matters]),
    ):
        if not some:
            continue
        by_way = medians(some)
        out.append(f"{title}: {len(some)} runs")
        for name, (value, count) in by_way.items():
            ours = by_way.get(OURS.get(name, ""))
            against = "" if ours is None else f", ours {ours[0] / max(value, 1e-9):.2f} of it"
            out.append(f"  {name:34} {value:6.1%} on {count} runs{against}")
    return out
