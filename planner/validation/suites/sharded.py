"""`sharded`: published runs of large models, with FSDP or ZeRO and with tensor and pipeline cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from planner.validation import large_baselines
from planner.validation.evidence import Compared, Evidence, Statement, Target
from planner.validation.large_compared import compared
from planner.validation.large_runs import LargeRun, read_runs, untuned
from planner.validation.large_steps import rule_of_thumb_s
from planner.validation.training import training_rows

PARTS = {"sharded": "FSDP and ZeRO", "cut": "tensor and pipeline", "plain": "plain replicas"}
TARGETS: dict[str, Target] = {PARTS["sharded"]: (0.08, 0.20), PARTS["cut"]: (0.10, 0.28)}


def found() -> Evidence:
    return evidence_of(training_rows())


def evidence_of(rows: Iterable[Mapping[str, str]]) -> Evidence:
    listed = list(rows)
    runs, not_read = read_runs(row for row in listed if not untuned(row))
    refused = Counter(one.reason for one in not_read)
    if early := sum(untuned(row) for row in listed):
        refused["its source says that the machines were not tuned yet"] = early
    compared_rows = [one for run in runs if (one := _compared(run, refused)) is not None]
    return Evidence(
        suite="sharded",
        title="Large models: FSDP, ZeRO, tensor and pipeline cuts",
        quantity="step time",
        fitted="kernel rates and factors of frameworks; no network or overlap",
        rule="6 (8 with full recomputation) x parameters x tokens / 0.4 of the peak",
        peers=(
            "median error on the rows that each can express: Calculon 25% (121 rows; 22% with overlap on), "
            "llm-analysis 47% (347 rows; 14% with an efficiency of 0.5), SimuMax 87% (128 rows; 23% with "
            "NVLink edited in by hand)"
        ),
        rows=compared_rows,
        targets=TARGETS,
        statements=[
            Statement(
                name=f"where communication matters: error as a share of that of {rule}",
                value=share,
                target=large_baselines.MOST_SHARE,
            )
            for rule, share in large_baselines.shares(large_baselines.beside(runs, compared_rows)).items()
        ],
        refused=refused,
    )


def _compared(run: LargeRun, refused: Counter[str]) -> Compared | None:
    layout = f"tensor {run.tensor}, pipeline {run.pipeline}, stage {run.stage}"
    batch = f"batch {run.micro_batch} x {run.accumulate}"
    return compared(
        run,
        refused,
        part=PARTS[run.kind],
        what=f"{run.model.name} {run.precision.name}, {run.devices} x {run.device}, {layout}, {batch}",
        left_out_id=run.id,
        rule=rule_of_thumb_s(run),
    )
