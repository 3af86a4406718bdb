"""Recordings as a user gives them to the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_examples import DATA, ELEMENTS, loaded, on_gpu, trace_of, written
from typer.testing import CliRunner

from planner.cli._app import app
from planner.device.recorded import open_step
from planner.device.recorded.importers import import_profile
from planner.device.recorded.summary import compare_recordings, summarize_recording
from planner.search.request import Request
from planner.simulator.step import files

QUICK = ("--interval-width", "0.2", "--format", "json", "--quiet")


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def answered(*args: object) -> Any:
    done = run(*args)
    assert done.exit_code == 0, done.output + str(done.exception)
    return json.loads(done.stdout)


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    return written(tmp_path / "a10g.json", on_gpu(trace_of(), "NVIDIA A10G", slower=20.0))


@pytest.mark.parametrize("name", ["plain", "accumulated", "autocast", "compiled", "ddp", "fsdp"])
def test_recording_is_simulated_without_another_flag(name: str) -> None:
    answer = answered("simulate", "--profile", DATA / f"{name}.json.gz", *QUICK)
    plan = answer["plan"]
    profile = loaded(name)
    assert (plan["model"], plan["batch"], plan["workers"]) == ("Mixed", profile.batch, 1)
    assert plan["number_format"] == ("bf16" if name == "autocast" else "fp32")
    step_s = profile.durations_s.sum(axis=1).mean()
    assert plan["samples_per_s"] == pytest.approx(profile.batch / step_s, rel=0.1)
    assert plan["range_basis"].startswith("recorded: the spread between steps")


def test_recording_of_a_cpu_is_never_used_for_a_gpu() -> None:
    for command in ("compare", "recommend"):
        done = run(
            command, "--profile", DATA / "plain.json.gz", "--hardware", "g4dn.xlarge,p5.4xlarge", "--quiet"
        )
        assert done.exit_code != 0
        assert "its times are those of that device only, not of T4" in str(done.exception)
    done = run("simulate", "--profile", DATA / "plain.json.gz", "--hardware", "p5.4xlarge")
    assert "not of H100-SXM5-80GB" in str(done.exception)


def test_several_machines_that_nobody_knows_need_their_network() -> None:
    done = run("simulate", "--profile", DATA / "plain.json.gz", "--workers", "2")
    assert "add --bandwidth" in str(done.exception)
    two = answered(
        *("simulate", "--profile", DATA / "plain.json.gz", "--workers", "2", "--bandwidth", "100Gbit"),
        *("--exchange", "allreduce", *QUICK),
    )
    assert two["plan"]["workers"] == 2


def test_device_that_was_recorded_is_the_default(gpu: Path) -> None:
    plan = answered("simulate", "--profile", gpu, *QUICK)["plan"]
    assert (plan["device"], plan["worker_hardware"]) == ("A10G", "g5.xlarge")
    assert plan["range_basis"].startswith("recorded")


def test_another_device_is_scaled_to_and_said_to_be(gpu: Path) -> None:
    alone = ("--exchange", "alone", *QUICK)
    here = answered("simulate", "--profile", gpu, *alone)["plan"]
    answer = answered("simulate", "--profile", gpu, "--hardware", "p5.4xlarge", *alone)
    there = answer["plan"]
    assert there["samples_per_s"] > 1.2 * here["samples_per_s"]
    width = [plan["samples_per_s_range_high"] / plan["samples_per_s_range_low"] for plan in (here, there)]
    assert width[1] > 1.3 > width[0]
    assert there["range_basis"].startswith("moved: ")
    said = [words for words in answer["assumptions"] if words.startswith("Compute")]
    assert len(said) == 1
    assert "recorded on A10G at batch 8, scaled to H100-SXM5-80GB: range 0." in said[0]


def test_compare_sets_every_device_beside_the_recorded_one(gpu: Path) -> None:
    answer = answered(
        "compare", "--profile", gpu, "--hardware", "g5.xlarge,g4dn.xlarge,g6.xlarge", "--workers", "1", *QUICK
    )
    rates = {plan["device"]: plan for plan in answer["plans"]}
    assert set(rates) == {"A10G", "T4", "L4"}
    assert rates["A10G"]["range_basis"].startswith("recorded")
    assert all(rates[name]["range_basis"].startswith("moved") for name in ("T4", "L4"))
    assert rates["T4"]["samples_per_s"] < rates["A10G"]["samples_per_s"]


def test_choice_of_machines_that_is_open_stays_open(gpu: Path) -> None:
    request = Request(model="Mixed", profile=open_step(gpu))
    words = request.hardware_words
    assert {"g5.xlarge", "g4dn.xlarge", "p5.48xlarge"} <= set(words)
    assert not [name for name in words if request.market.find_machine(name).device.kind == "cpu"]


def test_other_batches_are_scaled_to_with_their_range() -> None:
    both = f"{DATA}/plain.json.gz,{DATA}/plain16.json.gz"
    result = answered("simulate", "--profile", DATA / "plain.json.gz", "--batch", "12", *QUICK)
    two = answered("simulate", "--profile", both, "--batch", "12", *QUICK)
    exact = answered("simulate", "--profile", both, "--batch", "16", *QUICK)
    assert result["plan"]["batch"] == two["plan"]["batch"] == 12
    widths = [
        answer["plan"]["samples_per_s_range_high"] / answer["plan"]["samples_per_s_range_low"]
        for answer in (result, two, exact)
    ]
    assert widths[0] > widths[1] > widths[2]
    assert "recorded at" not in exact["plan"]["range_basis"]
    words = " ".join(two["assumptions"])
    assert "at batches 8 and 16, scaled to batch 12: range" in words
    assert "; PyTorch profiler trace: plain16.json.gz" in two["request"]["profile"]


def test_flags_against_a_recording_are_refused() -> None:
    path = DATA / "autocast.json.gz"
    for flags, words in (
        (("--precision", "fp32"), "--precision fp32 contradicts --profile, which was recorded in bf16"),
        (("--batch", "auto"), "does not tell what fits in memory"),
        (("--model", "resnet50"), "contradicts --profile, whose steps are those of Mixed"),
    ):
        done = run("simulate", "--profile", path, *flags)
        assert words in str(done.exception)


def test_show_tells_what_was_recorded_and_how() -> None:
    table = run("profile", "show", DATA / "fsdp.json.gz").output
    for words in (
        "fully sharded (FSDP), 2 ranks",
        f"{ELEMENTS:,} parameters",
        "Mixed, batch 8, input 8x3x32x32",
        "exposed    input",
        "waits for collectives",
        "is not in the catalog",
    ):
        assert words in table
    data = answered("profile", "show", DATA / "accumulated.json.gz", "--format", "json")["recording"]
    assert (data["samples"], data["facts"]["micro_steps"], data["device"]) == (32, 4, "")
    assert not any("forward passes" in words for words in data["suspicious"])
    assert sum(kind["share"] for kind in data["kinds"]) == pytest.approx(1)
    assert {"conv3x3", "attention", "optimizer", "input"} <= {kind["kind"] for kind in data["kinds"]}


def test_show_finds_what_is_suspicious(tmp_path: Path) -> None:
    trace = trace_of()
    trace["planner"]["parameters"] = trace["planner"]["parameters"][:-1]
    trace["planner"] |= {"step_s": 0.001, "micro_steps": 2}
    summary = summarize_recording(import_profile([written(tmp_path / "t.json", trace)]))
    assert summary is not None
    words = " ".join(summary.suspicious)
    assert "longer than without the profiler" in words
    assert "gradients of 64,808 bytes for 16,192 parameters" in words
    assert "2 forward passes a step were noted and 1 are in the trace" in words
    slow = summarize_recording(
        import_profile([written(tmp_path / "gpu.json", on_gpu(trace_of(), "NVIDIA A10G"))])
    )
    assert slow is not None
    assert any("the host sets the pace" in text for text in slow.suspicious)


def test_two_recordings_side_by_side() -> None:
    table = run("profile", "compare", DATA / "plain.json.gz", DATA / "autocast.json.gz").output
    assert "they differ in" in table
    assert "precision" in table
    data = answered(
        "profile", "compare", DATA / "plain.json.gz", DATA / "plain16.json.gz", "--format", "json"
    )
    assert data["settings"] == [["batch", "8", "16"]]
    kinds = {kind["kind"]: kind for kind in data["kinds"]}
    assert kinds["step"]["first_s"] == pytest.approx(
        sum(one["first_s"] for name, one in kinds.items() if name != "step")
    )
    first = summarize_recording(loaded("plain"))
    assert first is not None
    assert all(kind.ratio == 1 for kind in compare_recordings(first, first).kinds)


def test_only_recordings_are_compared(tmp_path: Path) -> None:
    profile = loaded("plain")
    files.save(profile, tmp_path / "p.json.gz")
    assert run("profile", "compare", tmp_path / "p.json.gz", DATA / "plain.json.gz").exit_code == 0
    steps = Path(__file__).parents[1] / "data" / "tensorflow" / "alexnet_ps1_step0.pb.gz"
    assert run("profile", "import", steps, "--batch", "4", "-o", tmp_path / "tf.json.gz").exit_code == 0
    done = run("profile", "compare", tmp_path / "tf.json.gz", DATA / "plain.json.gz")
    assert "is not a recording (`planner record`)" in str(done.exception)


OWN = """
[machines.box]
device = "box-cpu"
cores = 2
memory_gib = 16
nic_baseline_gbit_per_s = 1
on_demand_usd_per_hour = 0.5

[devices.box-cpu]
kind = "cpu"
clock_ghz = 3.0
fp32_flop_per_cycle = 32
source = "here"
"""


def test_recording_of_a_cpu_speaks_for_the_machine_that_it_is_said_to_be(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(OWN)
    saved = tmp_path / "p.json.gz"
    assert run("profile", "import", DATA / "plain.json.gz", "--hardware", mine, "-o", saved).exit_code == 0
    for words in ((), ("--hardware", mine)):
        plan = answered("simulate", "--profile", saved, "--exchange", "alone", *words, *QUICK)["plan"]
        assert (plan["worker_hardware"], plan["device"]) == ("box", "box-cpu")
    done = run("simulate", "--profile", saved, "--hardware", "c5.xlarge")
    assert "recorded on 2 cores of box-cpu, and nothing measured says how a step moves" in str(done.exception)
