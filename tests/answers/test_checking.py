"""A real run beside its prediction, and two answers beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.answers.answer_files import chosen_plan, difference
from planner.answers.checking import check
from planner.cli._app import main
from planner.errors import BadInput
from planner.search.measured import load
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
    plan = chosen_plan(written(tmp_path))
    assert check(plan, 900).inside
    assert not check(plan, 800).inside
    assert check(plan, 1010).suspects == ()


def test_check_likeliest_suspect_had_to_be_wrong_by_less(tmp_path: Path) -> None:
    plan = chosen_plan(written(tmp_path))
    # a step 1.25 times as long: the device 1.05 / 0.8 of its time, what is not hidden 0.45 / 0.2
    by_name = {suspect.name: suspect.times for suspect in check(plan, 800).suspects}
    assert by_name["device"] == pytest.approx(1.3125)
    assert by_name["network"] == pytest.approx(2.25)
    assert check(plan, 800).suspects[0].name == "device"
    waiting = chosen_plan(written(tmp_path, utilisation={"worker": 0.2}))
    assert check(waiting, 800).suspects[0].name == "network"
    faster = check(plan, 1200).suspects
    assert [entry.name for entry in faster] == ["device", "network"]
    assert faster[0].times < 1


@pytest.mark.parametrize("rate", [0.0, -3.0, float("nan"), float("inf")])
def test_rate_that_is_none_is_refused(rate: float, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="above zero"):
        check(chosen_plan(written(tmp_path)), rate)


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
            chosen_plan(path)


def test_differences_list_settings_and_figures(tmp_path: Path) -> None:
    old = chosen_plan(written(tmp_path))
    new = chosen_plan(
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
    result = difference(old, new)
    assert {setting.name: (setting.old, setting.new) for setting in result.settings} == {
        "batch": ("64", "128"),
        "exchange": ("allreduce", "sharded, stage 3"),
    }
    ratios = {figure.name: figure.ratio for figure in result.figures}
    assert ratios["samples/s"] == pytest.approx(1.3)
    assert ratios["$/h"] == 1
    assert result.apart
    larger = chosen_plan(written(tmp_path, exchange={"kind": "allreduce", "bucket_bytes": 50 * 2**20}))
    assert [(setting.name, setting.old, setting.new) for setting in difference(old, larger).settings] == [
        ("exchange buckets", "25 MiB", "50 MiB")
    ]
    assert not difference(old, old).settings
    assert not difference(old, old).apart


def test_plans_of_one_device_are_told_apart_by_their_simulations_alone(tmp_path: Path) -> None:
    own = {"samples_per_s_low": 990.0, "samples_per_s_high": 1010.0}
    old = chosen_plan(written(tmp_path, **own))
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
        assert difference(old, chosen_plan(written(tmp_path, device=device, **new))).apart == apart


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
    assert [(entry.device, entry.reach, entry.factor) for entry in load()] == [
        ("V100-SXM2-16GB", "machine", 0.8)
    ]
    assert "night run" in run("check", "--list", capsys=capsys)[1]
    assert run("check", "--forget", "H100", capsys=capsys)[0] == 2
    assert run("check", "--forget", "V100-SXM2-16GB", capsys=capsys)[0] == 0
    assert load() == ()
    times = tmp_path / "times.csv"
    times.write_text("step_s\n" + "0.32\n" * 20)
    out = run("check", path, "--log", str(times), "--no-keep", capsys=capsys)[1]
    assert "Measured     800 samples/s" in out
    assert "measured by step_s (numbers): 18 values, the first 2 left out as warm-up" in out
    assert load() == ()
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
    rate = chosen_plan(path).samples_per_s
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
    measured.add(kept)
    with pytest.raises(SystemExit):
        _app.load_command("check")(["--list"], prog_name="planner check")
    out = capsys.readouterr().out
    assert "\\x1b[31mred\\u202e" in out
    assert all(line.isprintable() for line in out.splitlines())
