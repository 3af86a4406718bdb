"""Speeds from logs that MLflow, Weights & Biases, TensorBoard and transformers wrote of two small runs."""

from __future__ import annotations

import json
import shutil
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from planner.answers.measured_speed import kind_of, measured_speed
from planner.answers.training_logs import MOST_VALUES, read_log
from planner.errors import BadInput

LOGS = Path(__file__).parents[1] / "data" / "training_logs"
ROWS = json.loads((LOGS / "wandb-history.json").read_text())
KEPT_S = [row["train/step_time"] for row in ROWS][4:]  # the run's first tenth warmed up
RATE = 64 * len(KEPT_S) / sum(KEPT_S)


@pytest.mark.parametrize(
    ("log", "format"),
    [
        ("mlflow", "MLflow"),
        ("mlflow/metrics", "MLflow"),
        ("tensorboard", "TensorBoard"),
        ("tensorboard/events.out.tfevents.1795059023.host.0", "TensorBoard"),
        ("wandb-history.json", "W&B history"),
        ("wandb-history.csv", "CSV"),
    ],
)
def test_measured_speed_every_format_gives_the_same_step_times(log: str, format: str) -> None:
    speed = measured_speed(LOGS / log, 64)
    assert speed.samples_per_s == pytest.approx(RATE, rel=1e-6)
    assert speed.source == f"train/step_time ({format}): 36 values, the first 4 left out as warm-up"


def test_measured_speed_json_lines_and_columns_give_the_same(tmp_path: Path) -> None:
    lines, columns = tmp_path / "history.jsonl", tmp_path / "columns.json"
    lines.write_text("\n".join(map(json.dumps, ROWS)))
    names = ROWS[0].keys()
    by_row = {name: {str(at): row[name] for at, row in enumerate(ROWS)} for name in names}
    columns.write_text(json.dumps(by_row))
    for path in (lines, columns):
        assert measured_speed(path, 64).samples_per_s == pytest.approx(RATE)
    columns.write_text(json.dumps({name: list(column.values()) for name, column in by_row.items()}))
    assert measured_speed(columns, 64).samples_per_s == pytest.approx(RATE)


def test_measured_speed_trainer_state_gives_the_figure_of_the_whole_run() -> None:
    speed = measured_speed(LOGS / "trainer_state.json", 8)
    assert speed.samples_per_s == pytest.approx(1578.922)
    assert speed.source == "train_samples_per_second (trainer_state.json), warm-up included"


def test_measured_speed_timestamps_leave_out_intervals_with_an_evaluation() -> None:
    speed = measured_speed(LOGS / "transformers", 8)
    assert speed.source == (
        "timestamps of train/loss without 1 interval of evaluation (TensorBoard): 5 values, "
        "the first 1 left out as warm-up"
    )
    clock_s = read_log(LOGS / "transformers").series["train/loss"].clock_s
    assert len(clock_s) == 8
    gaps = [b - a for a, b in pairwise(clock_s) if a is not None and b is not None]
    del gaps[3]  # evaluated at step 20, after the fourth value
    assert speed.samples_per_s == pytest.approx(8 * 5 * 5 / sum(gaps[1:]))


def test_measured_speed_an_evaluation_does_not_slow_the_run(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = ["step,_runtime,loss,eval_loss"]
    clock_s = 0.0
    for step in range(0, 200, 10):
        clock_s += 5.0
        rows.append(f"{step},{clock_s},2.0,")
        if step == 100:
            clock_s += 60.0
            rows.append(f"{step},{clock_s},,1.9")
    path.write_text("\n".join(rows))
    assert measured_speed(path, 32).samples_per_s == pytest.approx(64.0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train/step_time", "step time"), ("iteration-time", "step time"), ("s/it", "step time"),
        ("time_metrics/end_to_end(s)", "step time"), ("train_step_timing in s", "step time"),
        ("SamplesPerSec", "samples per second"), ("throughput/samples_per_sec", "samples per second"),
        ("images/s", "samples per second"), ("it/s", "steps per second"),
        ("train_steps_per_second", "steps per second"),
        ("run - train/step_time__MIN", None), ("eval_samples_per_second", None), ("train/steps", None),
        ("throughput/device/samples_per_sec", None), ("tokens_per_second", None), ("loss", None),
        ("iteration-time vs samples", None), ("elapsed_s", None),
    ],
)  # fmt: skip
def test_kind_of_names_of_common_loggers(name: str, kind: str | None) -> None:
    meaning = kind_of(name)
    assert (meaning and meaning[0]) == kind
    assert kind_of("ms/step") == kind_of("step_time_ms") == ("step time", 1e-3)


@pytest.mark.parametrize(
    ("text", "rate", "source"),
    [
        ("step_s\n9\n" + "0.5\n" * 19, 200, "step_s (numbers): 18 values, the first 2"),
        ("0.5\n0.5\n", 200, "seconds per step (numbers), warm-up included"),
        ("fast\n9\n0.5\n0.5\n", 200, "fast (numbers): 2 values, the first 1"),
        ("step\tstep_time_ms\n1\t900\n2\t500\n3\t500\n", 200, "step_time_ms (CSV): 2 values"),
        ("Wall time,Step,Value\n5,0,1\n9,10,1\n14,20,1\n19,30,1\n", 200, "timestamps of"),
        ("step;it/s;loss\n1;1;3\n2;2.5;3\n3;2.5;3\n", 250, "it/s (CSV)"),
        ("step,time,loss\n1,2026-11-19T03:00:00,3\n3,2026-11-19T03:00:01,3\n", 200, "timestamps of"),
        ("step,samples/s,step_time\n1,7,1\n2,200,0.5\n3,200,0.5\n", 200, "step_time (CSV): 2 values"),
    ],
)
def test_measured_speed_tables(text: str, rate: float, source: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    speed = measured_speed(path, 100)
    assert speed.samples_per_s == pytest.approx(rate)
    assert speed.source.startswith(source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "among no values"),
        ("0.1\nfast\n", "log.csv:2: 'fast' is not a number of seconds"),
        ("0.1\nnan\n", "log.csv:2: 'nan'"),
        ("0.1\n0\n", "a value of 0; it must be above zero"),
        ("step,loss\n1,2\n2,1\n", "no step time, samples per second or clock among loss"),
        ("step,time\n1,0.5\n2,0.4\n3,0.6\n", "no step time"),  # neither a clock nor named as seconds
        ("step,step_time\n1,1e-320\n", "inf samples per second; check its unit"),
        ("[1, 2]", "row 1 has no named values"),
        ("{nan", "not valid JSON"),
        ("[" * 5000, "not valid JSON"),
        ('{"log_history": 3}', "row 1 has no named values"),
        ('[{"a\\nb": 1}]', "one line of printable text"),
    ],
)
def test_measured_speed_refuses_other_files_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=words.replace("(", r"\(")) as refusal:
        measured_speed(path, 8)
    assert "\n" not in str(refusal.value)


def test_measured_speed_folders_with_no_or_several_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no log of a training run"):
        measured_speed(tmp_path, 8)
    for run in ("a", "b"):
        shutil.copytree(LOGS / "mlflow", tmp_path / "mlruns" / run)
    with pytest.raises(BadInput, match=r"holds 2 runs; name one, as .*/b/metrics"):
        measured_speed(tmp_path / "mlruns", 8)
    with pytest.raises(BadInput, match="save the history as CSV"):
        measured_speed(tmp_path / "run-1.wandb", 8)


def test_read_log_event_files_in_writing_and_damaged(tmp_path: Path) -> None:
    (source,) = (LOGS / "tensorboard").iterdir()
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes()[:-9])
    assert len(read_log(path).series["train/step_time"].values) == 40
    path.write_bytes(struct.pack("<QI", 2**40, 0) + b"x")
    with pytest.raises(BadInput, match="not TensorBoard events"):
        read_log(path)


def test_read_log_more_values_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.answers.training_logs.MOST_VALUES", 10)
    assert MOST_VALUES > 10
    for name in ("mlflow", "tensorboard", "wandb-history.csv", "wandb-history.json"):
        with pytest.raises(BadInput, match=r"more than|one too many"):
            read_log(LOGS / name)
