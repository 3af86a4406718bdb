"""`memory`: peaks of published runs, and what `planner.device.memory` says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from planner.validation.evidence import Compared, Evidence, Statement, Target, ranged_by_others
from planner.validation.memory_runs import points
from planner.validation.training import training_rows

TRANSFORMERS, CONVOLUTIONAL = "transformers", "convolutional"
TARGETS: dict[str, Target] = {TRANSFORMERS: (0.10, 0.20), "all": (0.10, 0.20)}
LOW, MOST_LOW = -0.15, 0.10


def found() -> Evidence:
    return evidence_of(training_rows())


def evidence_of(rows: Iterable[Mapping[str, str]]) -> Evidence:
    refused: Counter[str] = Counter()
    compared = [
        Compared(
            id=point.id,
            source=point.source,
            part=CONVOLUTIONAL if "ResNet" in point.group else TRANSFORMERS,
            what=point.group,
            unit="GiB",
            measured=point.measured_gib,
            predicted=point.predicted_gib,
        )
        for point in points(rows, refused)
    ]
    refused = _by_reason(refused)
    low = sum(row.error < LOW for row in compared) / max(len(compared), 1)
    return Evidence(
        suite="memory",
        title="Memory: published peaks of training",
        quantity="peak memory of a device",
        fitted="fragmentation and the framework's share, two figures for all sources",
        rule="",
        peers=(
            "median error: SimuMax 12% (bias -10), llm-analysis 42% (-45), Calculon 45% (-46); DeepSpeed's "
            "and accelerate's estimators about 90% low"
        ),
        rows=ranged_by_others(compared),
        targets=TARGETS,
        statements=[
            Statement(
                name="runs of which we say more than 15% too little",
                value=low,
                target=MOST_LOW,
            )
        ]
        if compared
        else [],
        refused=refused,
    )


def _by_reason(found: Counter[str]) -> Counter[str]:
    """Reasons without the run that they were given for."""
    merged: Counter[str] = Counter()
    for reason, count in found.items():
        merged[reason.rsplit(": ", 1)[-1]] += count
    return merged
