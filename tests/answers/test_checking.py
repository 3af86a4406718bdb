"""A real run beside its prediction, and two answers beside each other.

Speeds from logs that MLflow, Weights & Biases, TensorBoard and transformers wrote of two small runs.
"""

from __future__ import annotations

import json
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from planner.answers.answer_files import compare_plans, read_chosen_plan
from planner.answers.checking import check_speed, measured_speed, series_quantity
from planner.answers.training_logs import MOST_VALUES, read_log
from planner.cli._app import main
from planner.errors import BadInput
from planner.search.measured import load_runs
from planner.units import ratio

PLAN: dict[str, Any] = {
    "model": "resnet50",
    "batch": 64,
    "worker_hardware": "p3.8xlarge",
    "workers": 4,
    "cluster": "1 x p3.8xlarge (4 workers)",
    "samples_per_s": 1000.0,
    "samples_per_s_range_low": 850.0,
    "samples_per_s_range_high": 1150.0,
    "usd_per_hour": 12.24,
    "usd_per_million_samples": 3.4,
    "device": "V100-SXM2-16GB",
    "exchange": {"kind": "allreduce", "bucket_bytes": 26214400},
    "rented": {"workers": {"machine": "p3.8xlarge", "machines": 1}},
    "utilisation": {"worker": 0.8},
    "step_s": 0.256,
}


def written(folder: Path, name: str = "a.json", key: str = "recommendation", **changes: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"version": 2, key: {**PLAN, **changes}}))
    return path


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "home"))


def test_run_inside_and_one_outside(tmp_path: Path) -> None:
    plan = read_chosen_plan(written(tmp_path))
    assert check_speed(plan, 900).is_inside
    assert not check_speed(plan, 800).is_inside
    assert check_speed(plan, 1010).suspects == ()


def test_check_likeliest_suspect_had_to_be_wrong_by_less(tmp_path: Path) -> None:
    plan = read_chosen_plan(written(tmp_path))
    # a step 1.25 times as long: the device 1.05 / 0.8 of its time, what is not hidden 0.45 / 0.2
    by_name = {suspect.name: suspect.times for suspect in check_speed(plan, 800).suspects}
    assert by_name["device"] == pytest.approx(1.3125)
    assert by_name["network"] == pytest.approx(2.25)
    assert check_speed(plan, 800).suspects[0].name == "device"
    waiting = read_chosen_plan(written(tmp_path, utilisation={"worker": 0.2}))
    assert check_speed(waiting, 800).suspects[0].name == "network"
    faster = check_speed(plan, 1200).suspects
    assert [entry.name for entry in faster] == ["device", "network"]
    assert faster[0].times < 1


@pytest.mark.parametrize("rate", [0.0, -3.0, float("nan"), float("inf")])
def test_rate_that_is_none_is_refused(rate: float, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="above zero"):
        check_speed(read_chosen_plan(written(tmp_path)), rate)


def test_answer_of_another_version_or_without_a_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, words in (
        ('{"version": 1, "recommendation": null}', "version 1"),
        ('{"plans": []}', "version 1"),
        ("{}", "not an answer of planner"),
        ('{"version": 2, "plans": []}', "no single plan"),
        ('{"version": 2, "plan": {"model": 3}}', "not an answer"),
        ("[", "not an answer"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=words):
            read_chosen_plan(path)


def test_differences_list_settings_and_figures(tmp_path: Path) -> None:
    old = read_chosen_plan(written(tmp_path))
    new = read_chosen_plan(
        written(
            tmp_path,
            key="plan",
            batch=128,
            exchange={"kind": "sharded", "stage": 3},
            samples_per_s=1300.0,
            samples_per_s_range_low=1200.0,
            samples_per_s_range_high=1400.0,
            usd_per_million_samples=2.6,
        )
    )
    result = compare_plans(old, new)
    assert {setting.name: (setting.old, setting.new) for setting in result.settings} == {
        "batch": ("64", "128"),
        "exchange": ("allreduce", "sharded, stage 3"),
    }
    ratios = {figure.name: figure.ratio for figure in result.figures}
    assert ratios["samples/s"] == pytest.approx(1.3)
    assert ratios["$/h"] == 1
    assert result.apart
    larger = read_chosen_plan(written(tmp_path, exchange={"kind": "allreduce", "bucket_bytes": 50 * 2**20}))
    assert [(setting.name, setting.old, setting.new) for setting in compare_plans(old, larger).settings] == [
        ("exchange buckets", "25 MiB", "50 MiB")
    ]
    assert not compare_plans(old, old).settings
    assert not compare_plans(old, old).apart


def test_plans_of_one_device_are_told_apart_by_their_simulations_alone(tmp_path: Path) -> None:
    own = {"samples_per_s_low": 990.0, "samples_per_s_high": 1010.0}
    old = read_chosen_plan(written(tmp_path, **own))
    for rate, device, apart in (
        (1100, "V100-SXM2-16GB", True),
        (1005, "V100-SXM2-16GB", False),
        (1100, "T4", False),
    ):
        new = {
            "samples_per_s": rate,
            "samples_per_s_low": rate * 0.99,
            "samples_per_s_range_low": rate * 0.85,
        }
        assert compare_plans(old, read_chosen_plan(written(tmp_path, device=device, **new))).apart == apart


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["planner", *words])
        with pytest.raises(SystemExit) as left:
            main()
    out = capsys.readouterr()
    return int(left.value.code or 0), out.out, out.err


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path))
    status, out, _ = run("check", path, "--measured", "800", "--note", "night run", capsys=capsys)
    assert status == 0
    assert "the run is outside the range" in " ".join(out.split())
    assert "Most likely: the device computes 1.3x slower" in out
    assert [(entry.device, entry.reach, entry.factor) for entry in load_runs()] == [
        ("V100-SXM2-16GB", "machine", 0.8)
    ]
    assert "night run" in run("check", "--list", capsys=capsys)[1]
    assert run("check", "--forget", "H100", capsys=capsys)[0] == 2
    assert run("check", "--forget", "V100-SXM2-16GB", capsys=capsys)[0] == 0
    assert load_runs() == ()
    times = tmp_path / "times.csv"
    times.write_text("step_s\n" + "0.32\n" * 20)
    out = run("check", path, "--log", str(times), "--no-keep", capsys=capsys)[1]
    assert "Measured     800 samples/s" in out
    assert "measured by step_s (numbers): 18 values, the first 2 left out as warm-up" in out
    assert load_runs() == ()
    times.write_text("0.32\nfast\n")
    status, _, err = run("check", path, "--step-times", str(times), capsys=capsys)
    assert (status, "times.csv:2" in err) == (2, True)
    for words in (("check",), ("check", path), ("check", path, "--measured", "0")):
        assert run(*words, capsys=capsys)[0] == 2
    costlier = str(written(tmp_path, "b.json", usd_per_million_samples=5.0))
    status, out, err = run("diff", path, costlier, "--fail-over", "4", capsys=capsys)
    assert (status, "+47.1%" in out, "over the limit" in err) == (3, True, True)
    assert run("diff", path, costlier, "--fail-over", "6", capsys=capsys)[0] == 0


def test_run_far_from_its_prediction_is_kept_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path))
    rate = read_chosen_plan(path).samples_per_s
    for times in (0.1, 4.0):
        code, out, _ = run("check", path, "--measured", str(rate * times), capsys=capsys)
        assert code == 0
        assert f"Kept         no: {ratio(times)} the prediction" in out
        assert "no runs are kept" in run("check", "--list", capsys=capsys)[1]
    _, out, _ = run("check", path, "--measured", str(rate * 0.1), "--force", capsys=capsys)
    assert "Kept         answers for" in out


def test_notes_do_not_act_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from planner.cli import _app
    from planner.search import measured

    note = "\x1b[31mred\u202e"
    kept = measured.Measured(
        device="A10G",
        reach="device",
        model="resnet50",
        precision="fp32",
        predicted_samples_per_s=100.0,
        measured_samples_per_s=80.0,
        as_of="2026-11-16",
        note=note,
    )
    measured.add_run(kept)
    with pytest.raises(SystemExit):
        _app.load_command("check")(["--list"], prog_name="planner check")
    out = capsys.readouterr().out
    assert "\\x1b[31mred\\u202e" in out
    assert all(line.isprintable() for line in out.splitlines())


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
    clock_s = [logged.clock_s for logged in read_log(LOGS / "transformers").series["train/loss"]]
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
    meaning = series_quantity(name)
    assert (meaning and meaning[0]) == kind
    assert series_quantity("ms/step") == series_quantity("step_time_ms") == ("step time", 1e-3)


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
    assert len(read_log(path).series["train/step_time"]) == 40
    path.write_bytes(struct.pack("<QI", 2**40, 0) + b"x")
    with pytest.raises(BadInput, match="not TensorBoard events"):
        read_log(path)


def test_read_log_more_values_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.answers.training_logs.MOST_VALUES", 10)
    assert MOST_VALUES > 10
    for name in ("mlflow", "tensorboard", "wandb-history.csv", "wandb-history.json"):
        with pytest.raises(BadInput, match=r"more than|one too many"):
            read_log(LOGS / name)
