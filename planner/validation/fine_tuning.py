"""Published fine-tuning runs: measured LoRA and QLoRA step times and peak memory against `planner.simulate`.

A row of `data/finetune.csv` becomes the options that a user would give. `data/finetune.toml` holds the
settings of the sources' scripts (targets, recompute), the machine for each device, and how each source
measures memory. The few constants of fine-tuning are chosen by `benchmarks/fit/fine_tuning.py`;
`data/finetune_left_out.csv` has the change of each prediction when the run's source is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file
from statistics import median
from typing import TYPE_CHECKING, Any

from planner.errors import PlannerError
from planner.validation.evidence import Compared, Evidence, Statement, add_ranges
from planner.validation.row import DATA, load_figures, read_data_table

if TYPE_CHECKING:
    from planner.answers.questions import Simulation

Row = Mapping[str, str]
MEMORY = "memory"
METHODS = {"lora": "LoRA", "qlora": "QLoRA", "full": "full training"}
RATIO_TARGET = 0.20  # of the error of QLoRA's time over LoRA's, by sequence length


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predicted seconds per step or micro-batch with their range, and peak memory per device in bytes."""

    seconds: float
    low_s: float
    high_s: float
    peak_bytes: float


def evidence() -> Evidence:
    """Result of comparing every published fine-tuning run, with the reasons for skipped ones."""
    from planner.validation.suites import build_evidence

    rows, skipped = compared_rows()
    shifts = {row["id"]: float(row["shift"]) for row in read_data_table("finetune_left_out.csv")}
    rows = [
        replace(row, left_out=row.predicted * math.exp(shifts[row.id])) if row.id in shifts else row
        for row in rows
    ]
    memory = {row.id: row for row in add_ranges([row for row in rows if row.part == MEMORY])}
    rows = [memory.get(row.id, row) for row in rows]
    return build_evidence("fine-tuning", rows, skipped, ratio_statements(rows))


def compared_rows() -> tuple[list[Compared], dict[str, str]]:
    """Compared figures of published runs, and by id the reason why a run cannot be predicted."""
    rows: list[Compared] = []
    skipped: dict[str, str] = {}
    for row in read_data_table("finetune.csv"):
        result = predict_row(row)
        if isinstance(result, str):
            skipped[row["id"]] = result
        else:
            rows += _compare_row(row, result)
    return rows, skipped


def _compare_row(row: Row, result: Predicted) -> list[Compared]:
    """Compared step time and peak memory of a published run, as far as it states them."""
    source = load_figures("finetune")["sources"][row["source"]]
    method = " ".join(filter(None, (METHODS[row["method"]], row["base"])))
    tokens = f"{row['tokens']} tokens x {row['batch']}" if row["tokens"] else f"batch {row['batch']}"
    words = f"{row['network']}, {method}, {tokens}, {row['devices']} x {row['device']}"
    make = partial(Compared, source=row["source"], what=words)
    rows = []
    if (seconds := measured_seconds(row)) is not None:
        part, ours = f"{METHODS[row['method']]}, time", result.seconds
        compared = make(id=f"{row['id']}-time", part=part, unit="s", measured=seconds, predicted=ours)
        rows.append(replace(compared, low=result.low_s, high=result.high_s))
    if row["memory_gb"]:
        measured = float(row["memory_gb"]) / (int(row["devices"]) if row["memory_of"] == "all devices" else 1)
        ours = result.peak_bytes / source["memory_unit"]
        rows.append(make(id=f"{row['id']}-memory", part=MEMORY, unit="GB", measured=measured, predicted=ours))
    return rows


def measured_seconds(row: Row) -> float | None:
    """Measured seconds per step or micro-batch; None for runs that only state their total."""
    if row["unit"] == "tokens/s":
        return int(row["tokens"]) * int(row["batch"]) * int(row["accumulate"]) / float(row["time"])
    return float(row["time"]) if row["unit"] in ("s per step", "s per micro-batch") else None


def predict_row(row: Row) -> Predicted | str:
    """Prediction of `planner.simulate` for a published run, or the reason why there is none."""
    if reason := exclusion_reason(row):
        return reason
    source = load_figures("finetune")["sources"][row["source"]]
    try:
        at_longest = simulate_row(row, source, int(row["tokens"] or source["longest"].get(row["network"], 0)))
        timed = at_longest
        if row["unit"] == "s per micro-batch":
            timed = simulate_row(row, source, source["mean"][row["batch"]])
    except PlannerError as error:
        return f"refused by the package: {error}"
    assert at_longest.details is not None
    assert at_longest.details.memory is not None
    assert timed.scored.range is not None
    by_kind = at_longest.details.memory.bytes_by_kind
    peak = at_longest.details.memory.total_bytes
    if source.get("allocated"):
        peak -= by_kind["framework"] + by_kind["fragmentation"]
    scored = timed.scored
    seconds = scored.prediction.step_s / (scored.plan.accumulate if row["unit"] == "s per micro-batch" else 1)
    slower, faster = (scored.samples_per_s / rate for rate in timed.scored.range)
    return Predicted(seconds, seconds * faster, seconds * slower, peak)


def exclusion_reason(row: Row) -> str:
    """Explains why a published run cannot be predicted; empty string if it can."""
    known = load_figures("finetune")
    for column, reasons in known["unmodelled"].items():
        if reason := reasons.get(row[column]):
            return str(reason)
    several = int(row["devices"]) > 1 and known["unmodelled_of_several"].get(row["source"])
    full = row["method"] == "full" and known["unmodelled_full"].get(row["source"])
    return str(several or full or "")


def simulate_row(row: Row, source: Mapping[str, Any], tokens: int) -> Simulation:
    """Calls `planner.simulate` with the settings of a published run."""
    from planner.answers.questions import simulate

    batch, steps = int(row["batch"]), row["accumulate"]
    accumulate = int(steps) if steps.isdecimal() else max(source.get("global_batch", 1) // batch, 1)
    options: dict[str, Any] = {
        "hardware": load_figures("finetune")["machines"][row["device"]],
        "workers": int(row["devices"]),
        "train": row["method"],
        "batch": batch,
        "accumulate": accumulate,
        "seq_length": tokens,
        "recompute": source["recompute"],
        "precision": "bf16",
        "optimizer": "adamw",
        "framework": source.get("framework", "pytorch"),
    }
    if row["method"] != "full":
        targets = source.get("targets_of", {}).get(row["network"], source["targets"])
        options |= {"rank": int(row["rank"]), "targets": targets, "dropout": source.get("dropout")}
    if row["base"]:
        options["base"] = row["base"].removesuffix("-dq")
    if int(row["devices"]) > 1:
        options["exchange"] = "sharded"
    file = DATA / "networks" / "fine-tuned" / f"{row['network']}.toml"
    if not file.is_file():
        return simulate(row["network"], **options)
    with as_file(file) as path:
        return simulate(str(path), **options)


def ratio_statements(rows: Sequence[Compared]) -> list[Statement]:
    """Error of the predicted ratio of QLoRA's to LoRA's time, by sequence length. Each is the median over
    networks."""
    seconds = {row.id: row for row in rows if row.unit == "s"}
    pairs: dict[tuple[str, str], dict[str, Compared]] = defaultdict(dict)
    for row in read_data_table("finetune.csv"):
        if f"{row['id']}-time" in seconds and row["source"] == "qwen" and row["devices"] == "1":
            pairs[row["network"], row["tokens"]][row["method"]] = seconds[f"{row['id']}-time"]
    errors: dict[str, list[float]] = defaultdict(list)
    for (_, tokens), by_method in pairs.items():
        if {"lora", "qlora"} <= by_method.keys():
            lora, qlora = by_method["lora"], by_method["qlora"]
            ratio = (qlora.predicted / lora.predicted) / (qlora.measured / lora.measured)
            errors[tokens].append(abs(ratio - 1))
    if not errors:
        return []
    by_length = [median(found) for found in errors.values()]
    name = "QLoRA's time over LoRA's by sequence length"
    return [
        Statement(name=f"{name}: median error", value=median(by_length), target=RATIO_TARGET),
        Statement(name=f"{name}: largest error", value=max(by_length), target=RATIO_TARGET),
    ]
