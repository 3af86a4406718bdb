"""`allreduce`: DDP over shaped links from a trace of one rank, and published scaling of data parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from planner.validation import scaling
from planner.validation.ddp import compare
from planner.validation.evidence import Compared, Evidence, Target, ranged_by_others
from planner.validation.figures import figures
from planner.validation.scaling import ScalingResult, Settings
from planner.validation.scaling_rows import pairs
from planner.validation.training import training_rows

TESTBED, ONE, SEVERAL = "PyTorch over shaped links", "one machine", "several machines"
KNOWN = "several machines, gradients' width known"
TARGETS: dict[str, Target] = {TESTBED: (0.02, 0.08), ONE: (0.03, 0.12), KNOWN: (0.05, 0.20)}


def found() -> Evidence:
    refused: Counter[str] = Counter()
    return _evidence([*measured(), *published(training_rows(), refused)], refused)


def evidence_of(rows: Iterable[Mapping[str, str]]) -> Evidence:
    """Published or own runs alone."""
    refused: Counter[str] = Counter()
    return _evidence(published(rows, refused), refused)


def _evidence(rows: list[Compared], refused: Counter[str]) -> Evidence:
    return Evidence(
        suite="allreduce",
        title="All-reduce: DDP over shaped links, and published scaling from the smallest run of a series",
        quantity="step time",
        fitted="jitter and width of gradients, chosen on published scaling",
        rule="linear scaling",
        peers="scaling efficiency, mean error: Calculon 0.13, llm-analysis 0.15, SimuMax 0.19",
        rows=ranged_by_others(rows),
        targets=TARGETS,
        refused=refused,
        notes=["Of shaped links nothing is fitted: what is left out is what was seen."],
    )


def measured() -> list[Compared]:
    """Real steps of DDP and FSDP, predicted from one rank's trace."""
    results = compare()
    alone = {one.config.name: one.point.step_s for one in results if one.point.workers == 1}
    return [
        Compared(
            id=f"{one.config.name}-w{one.point.workers}",
            source=one.config.name,
            part=TESTBED,
            what=f"{one.config.name}, {one.point.workers} ranks",
            unit="s",
            measured=one.point.step_s,
            predicted=one.predicted_s,
            rule=alone.get(one.config.name),
        )
        for one in results
    ]


def published(rows: Iterable[Mapping[str, str]], refused: Counter[str]) -> list[Compared]:
    """Larger runs of a series predicted from its smallest; settings that no row states are those chosen on
    all sources, and with the run's own left out."""
    stored = figures("scaling")
    everything = Settings(**stored["all"])
    found = []
    for base, run in pairs(rows, refused):
        seen = ScalingResult(base, run, scaling.predict(base, run, everything))
        without = stored["without"].get(run.source)
        left_s = scaling.predict(base, run, Settings(**without)) if without else None
        several = KNOWN if run.gradient_bytes else SEVERAL
        found.append(
            Compared(
                id=run.id,
                source=run.source,
                part=ONE if run.nodes == 1 else several,
                what=f"{run.arch} {run.format}, {base.devices} to {run.devices} devices, {run.link}",
                unit="s",
                measured=run.step_s,
                predicted=seen.predicted_s,
                left_out=left_s,
                rule=base.step_s / base.passes * run.passes,
            )
        )
    return found
