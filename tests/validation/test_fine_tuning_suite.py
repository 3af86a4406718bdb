"""The suite of published fine-tuning runs: what is compared, what is left out, and what it reaches."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from planner.validation.evidence import Compared, Evidence
from planner.validation.fine_tuning import (
    evidence,
    exclusion_reason,
    measured_seconds,
    predict_row,
    ratio_statements,
)
from planner.validation.row import read_data_table

ROWS = {row["id"]: row for row in read_data_table("finetune.csv")}


@pytest.fixture(scope="module")
def suite() -> Evidence:
    return evidence()


def test_every_row_is_compared_or_has_a_reason(suite: Evidence) -> None:
    compared = {row.id.partition("-")[0] for row in suite.rows}
    assert compared | suite.skipped.keys() == ROWS.keys()
    assert compared.isdisjoint(suite.skipped)
    assert all(suite.skipped.values())


def test_targets_are_reached_with_the_source_left_out(suite: Evidence) -> None:
    reached = {part.name: part.meets_target for part in suite.parts if part.target is not None}
    assert reached == {"LoRA, time": True, "QLoRA, time": True, "memory": True}
    assert all(statement.meets_target for statement in suite.statements)


@pytest.mark.parametrize("parts", [("LoRA, time", "QLoRA, time"), ("memory",)])
def test_stated_ranges_hold_nine_of_ten_runs(suite: Evidence, parts: tuple[str, ...]) -> None:
    inside = [row.is_in_range for row in suite.rows if row.part in parts]
    assert 0.85 <= sum(map(bool, inside)) / len(inside) <= 0.95


def test_left_out_figures_are_those_of_the_rows_compared(suite: Evidence) -> None:
    """`benchmarks/fit/fine_tuning.py` writes them; a row that is new must be in them, too."""
    timed = {row.id for row in suite.rows if row.part in ("LoRA, time", "QLoRA, time")}
    assert {row["id"] for row in read_data_table("finetune_left_out.csv")} == timed


def test_row_is_predicted_as_simulate_answers_it() -> None:
    import planner

    row = next(
        row for row in ROWS.values() if row["network"] == "llama2-7b" and row["source"] == "llamafactory"
    )
    result = predict_row(row)
    assert not isinstance(result, str)
    answer = planner.simulate(
        "llama2-7b", hardware="p4d.24xlarge", workers=1, train="lora", rank=8, targets="attention", batch=4,
        accumulate=2, seq_length=1024, recompute="full", precision="bf16", optimizer="adamw",
        framework="pytorch-reentrant",
    )  # fmt: skip
    assert result.seconds == pytest.approx(answer.as_dict()["plan"]["step_s"])
    assert result.peak_bytes == answer.as_dict()["memory"]["total_bytes"]
    assert result.low_s < result.seconds < result.high_s


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "adapter"}, "LLaMA-Adapter is not modelled"),
        ({"nodes": "2"}, "two devices in each of two machines"),
        ({"software": "Unsloth+FA2"}, "Unsloth's kernels are not modelled"),
        ({"source": "litgpt-tables", "devices": "2"}, "frozen weights were not sharded"),
        ({}, ""),
    ],
)
def test_row_that_no_option_expresses_has_a_reason(changes: dict[str, str], reason: str) -> None:
    words = exclusion_reason(ROWS["F001"] | changes)
    assert reason in words
    assert bool(words) == bool(reason)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("s per step", 2.0), ("tokens/s", 8 * 256 / 2.0), ("s per run", None)]
)
def test_units_of_time_are_read(unit: str, seconds: float | None) -> None:
    assert measured_seconds(ROWS["F001"] | {"unit": unit, "time": "2.0"}) == seconds


def test_ratio_of_methods_is_judged_by_sequence_length() -> None:
    pairs = [row for row in ROWS.values() if row["source"] == "qwen" and row["network"] == "qwen-7b"]
    pairs = [row for row in pairs if row["devices"] == "1" and row["tokens"] in ("256", "512")]

    def compared(row: dict[str, str]) -> Compared:
        measured = 1.0 if row["method"] == "lora" else 2.0
        off = 1.1 if row["method"] == "qlora" and row["tokens"] == "512" else 1.0
        return Compared(
            id=f"{row['id']}-time", source="qwen", part="", what="", unit="s", measured=measured,
            predicted=measured * off,
        )  # fmt: skip

    middle, largest = ratio_statements([compared(row) for row in pairs if row["method"] in ("lora", "qlora")])
    assert middle.value == pytest.approx(0.05)
    assert largest.value == pytest.approx(0.1)


def test_table_names_the_file_and_line_of_every_figure() -> None:
    path = Path(__file__).parents[2] / "planner/validation/data/finetune.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["file"].count("/") >= 2 and row["commit"] and row["line"].isdigit() for row in rows)
