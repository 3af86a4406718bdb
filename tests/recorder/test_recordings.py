"""Real recordings of one small network (tests/data/recordings), read without torch."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from recorded_examples import CASES, DATA, ELEMENTS, SHAPES, loaded, trace_of, written

from planner.device.recorded.importers import import_profile, pytorch
from planner.device.recorded.importers.tracing import TracedSteps
from planner.device.recorded.recordings import recorded_computation
from planner.device.recorded.rescale import seconds_by_kind
from planner.errors import BadInput
from planner.recorder.trace import check_torch_version
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, files


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_found_with_its_bytes_and_nothing_need_be_told(name: str) -> None:
    profile = loaded(name)
    assert (profile.model, profile.batch, profile.steps) == ("Mixed", 32 if name == "accumulated" else 8, 3)
    for resource in (DOWNLINK, UPLINK):
        sizes = profile.bytes[profile.resource == resource]
        assert int(sizes.sum()) == 4 * ELEMENTS
        if name == "ddp":
            assert profile.tensors == ("bucket_0",)
        else:
            assert sorted(sizes.tolist()) == sorted(4 * prod(shape) for shape in SHAPES)
    facts = profile.recorded.facts if profile.recorded else None
    assert facts is not None
    assert sum(size for _, size in facts.parameters) == ELEMENTS
    assert facts.micro_steps == (4 if name == "accumulated" else 1)
    assert facts.precision == ("bf16" if name == "autocast" else "fp32")
    assert facts.strategy == (name if name in ("ddp", "fsdp") else "alone")
    assert facts.world_size == (2 if name in ("ddp", "fsdp") else 1)
    assert facts.compiled == (name == "compiled")


@pytest.mark.parametrize("name", CASES)
def test_step_is_its_ops_its_optimizer_and_the_communication_it_waited_for(name: str) -> None:
    profile = loaded(name)
    assert profile.recorded is not None
    assert profile.recorded.exposed is not None
    exposed = profile.recorded.exposed
    whole = profile.durations_s.sum(axis=1).mean() + exposed.communication_s
    marks = [e for e in trace_of(name)["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    step_s = np.mean([e["dur"] for e in marks if e["cat"] == "user_annotation"]) * 1e-6
    assert exposed.step_s == pytest.approx(step_s)
    assert exposed.untraced_s is not None
    assert whole == pytest.approx(min(step_s, exposed.untraced_s), rel=0.02)
    assert (exposed.communication_s > 0) == (name in ("ddp", "fsdp"))


def test_sharded_training_waits_for_its_collectives_and_they_are_no_computation() -> None:
    """Waits are much of these steps; ops of the threads that gather and scatter are nobody's computation."""
    profile = loaded("fsdp")
    assert profile.recorded is not None
    assert profile.recorded.exposed is not None
    assert profile.recorded.exposed.communication_s > 0.1 * profile.recorded.exposed.step_s
    named = {name.partition("/")[2].rpartition("_")[0] for name in profile.names}
    assert "_allgather_base_" not in named
    trace = trace_of("fsdp")["traceEvents"]
    helpers = {e["tid"] for e in trace if e["name"].startswith("gloo:")}
    dropped = [e for e in trace if e["cat"] == "cpu_op" and e["tid"] in helpers]
    assert len(dropped) > 10
    shapes = {tuple(e["args"]["Input Dims"][0]) for e in dropped if e["name"] == "aten::div_"}
    assert shapes  # gradients are averaged there
    assert "div_" not in named


@pytest.mark.parametrize("name", ["plain", "autocast", "compiled", "fsdp", "accumulated"])
def test_every_op_is_classified_by_what_it_asks(name: str) -> None:
    profile = loaded(name)
    assert profile.recorded is not None
    parts = [part for each in profile.recorded.work.values() for part in each]
    passes, samples = (4 if name == "accumulated" else 1), 8
    by_kind: dict[str, float] = {}
    for part in parts:
        by_kind[part.kind] = by_kind.get(part.kind, 0.0) + part.flops
    pixels = samples * 16 * 16 * passes
    # forward and twice that backward; the stem's input needs no gradient
    assert by_kind["conv"] == 2 * pixels * 2 * 32 * 27
    assert by_kind["depthwise"] == 3 * pixels * 2 * 32 * 9
    assert by_kind["conv1x1"] == 3 * pixels * 2 * 32 * 32
    assert by_kind["conv3x3"] == 3 * pixels * 2 * 32 * 32 * 9
    assert by_kind["matmul"] == 3 * 2 * (pixels * 32 * (96 + 32) + samples * passes * 32 * 10)
    # 2 heads of 16 over 256 positions, half of them masked; backward computes five products for two
    assert by_kind["attention"] == pytest.approx(3.5 * 4 * pixels * 32 * 256 / 2)
    half = {part.format for part in parts if part.flops}
    assert half == ({"bf16"} if name == "autocast" else {"fp32", "tf32"})


def test_shares_of_kinds_explain_the_step() -> None:
    profile = loaded("plain")
    result = seconds_by_kind(profile)
    assert sum(result.values()) == pytest.approx(profile.durations_s.sum(axis=1).mean())
    assert {"conv", "conv1x1", "conv3x3", "depthwise", "matmul", "attention", "memory", "overhead"} <= set(
        result
    )
    assert result["host"] < 0.2 * sum(result.values())


def test_gradients_of_autocast_stay_in_single_precision() -> None:
    made = recorded_computation(loaded("autocast"))
    assert (made.precision.compute, made.precision.gradient_bytes) == ("bf16", 4)
    assert made.elements == ELEMENTS


def test_recording_survives_the_profile_file(tmp_path: Path) -> None:
    profile = loaded("ddp")
    files.save(profile, tmp_path / "p.json.gz")
    again = files.load(tmp_path / "p.json.gz")
    assert again.recorded == profile.recorded
    assert again.recorded is not None
    assert again.recorded.work
    assert np.array_equal(again.durations_s, profile.durations_s)


def test_batch_that_is_given_wins_over_the_noted_one() -> None:
    assert import_profile([DATA / "plain.json.gz"], batch=5).batch == 5
    four = import_profile([DATA / "accumulated.json.gz"], batch=64).recorded
    assert four is not None
    assert (four.facts.batch, four.facts.micro_steps, four.passes) == (16, 4, 4)
    with pytest.raises(BadInput, match="--batch 5 is no multiple of the 4 passes of a step"):
        import_profile([DATA / "accumulated.json.gz"], batch=5)


def test_precision_of_a_trace_made_by_hand_is_that_of_its_arithmetic(tmp_path: Path) -> None:
    for name, precision in (("plain", "fp32"), ("autocast", "bf16")):
        trace = trace_of(name)
        del trace["planner"]
        recorded = import_profile([written(tmp_path / f"{name}.json", trace)], batch=8).recorded
        assert recorded is not None
        assert recorded.facts.precision == precision


def test_trace_made_by_hand_needs_its_batch(tmp_path: Path) -> None:
    trace = trace_of()
    del trace["planner"]
    path = written(tmp_path / "byhand.json", trace)
    with pytest.raises(BadInput, match=r"nobody has noted the batch: give --batch"):
        import_profile([path])
    assert import_profile([path], batch=8).recorded is not None


def test_recordings_at_two_batches_are_not_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"differ in samples, 8 and 16: they are two recordings"):
        import_profile([DATA / "plain.json.gz", DATA / "plain16.json.gz"])


def kernels(trace: dict[str, Any], device: int = 0) -> list[dict[str, Any]]:
    """A kernel for each outermost op, as a GPU would have run it."""
    out, until = [], 0.0
    for e in sorted(trace["traceEvents"], key=lambda e: (e["ts"], -e.get("dur", 0.0))):
        if e["cat"] == "cpu_op" and e["ts"] >= until:
            until = e["ts"] + e["dur"]
            args = {"External id": e["args"]["External id"], "device": device}
            out.append({**e, "cat": "kernel", "name": "k", "pid": device, "tid": 7, "args": args})
    return out


def test_kernels_of_two_kinds_of_device_are_refused(tmp_path: Path) -> None:
    trace = trace_of()
    trace["deviceProperties"] = [{"id": 0, "name": "NVIDIA A10G"}, {"id": 1, "name": "Tesla T4"}]
    trace["traceEvents"] += [*kernels(trace, 0), *kernels(trace, 1)[:3]]
    with pytest.raises(
        BadInput, match=r"two kinds of device \(NVIDIA A10G, Tesla T4\).*CUDA_VISIBLE_DEVICES=0"
    ):
        import_profile([written(tmp_path / "t.json", trace)])
    trace["deviceProperties"][1]["name"] = "NVIDIA A10G"
    with pytest.raises(BadInput, match=r"one process computes on 2 devices"):
        import_profile([written(tmp_path / "t.json", trace)])


def test_profiler_names_the_device_where_nobody_else_does(tmp_path: Path) -> None:
    trace = trace_of()
    del trace["planner"]
    trace["deviceProperties"] = [{"id": 0, "name": "NVIDIA A10G"}]
    trace["traceEvents"] += kernels(trace)
    profile = import_profile([written(tmp_path / "t.json", trace)], batch=8)
    assert profile.hardware == "NVIDIA A10G"
    assert profile.recorded is not None
    assert profile.recorded.facts.device_kind == "gpu"


def test_several_ranks_mixed_are_refused(tmp_path: Path) -> None:
    trace = trace_of("ddp")
    trace["traceEvents"] += [{**event, "pid": 99} for event in trace["traceEvents"]]
    with pytest.raises(BadInput, match=r"2 processes train in it.*several ranks mixed; record one rank"):
        import_profile([written(tmp_path / "t.json", trace)])


def test_inference_alone_is_refused(tmp_path: Path) -> None:
    trace = trace_of()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("autograd")]
    with pytest.raises(BadInput, match=r"inference only: no backward pass.*whole training steps"):
        import_profile([written(tmp_path / "t.json", trace)])


def test_recording_cut_off_is_refused(tmp_path: Path) -> None:
    whole = (DATA / "plain.json.gz").read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"cut off; copy or record the file again"):
        import_profile([tmp_path / "cut.json.gz"])
    (tmp_path / "cut.json").write_bytes(gzip.decompress(whole)[:100_000])
    with pytest.raises(BadInput, match=r"not a complete trace.*docs/recording.md"):
        import_profile([tmp_path / "cut.json"])


def test_trace_without_shapes_is_refused(tmp_path: Path) -> None:
    trace = trace_of()
    for event in trace["traceEvents"]:
        event.get("args", {}).pop("Input Dims", None)
    with pytest.raises(BadInput, match=r"18 gradients have no size; profile with record_shapes=True"):
        import_profile([written(tmp_path / "t.json", trace)])


def test_trace_of_an_older_torch_is_refused(tmp_path: Path) -> None:
    trace = trace_of()
    for event in trace["traceEvents"]:
        if event["cat"] == "cpu_op":
            event["cat"] = "Operator"
    with pytest.raises(BadInput, match=r"PyTorch 1.11 or older.*planner record"):
        import_profile([written(tmp_path / "t.json", trace)])


def test_worker_computes_in_a_chain() -> None:
    profile = loaded("compiled")
    worker = np.flatnonzero(profile.resource == WORKER)
    assert profile.names[worker[0]] == "input"
    assert all(before in profile.deps(int(after)) for before, after in itertools.pairwise(worker))


def test_older_torch_is_told_what_is_needed() -> None:
    with pytest.raises(
        BadInput, match=r"needs PyTorch 2.4 or later, and this is 1.13.1; update it, or profile"
    ):
        check_torch_version("1.13.1+cu117".partition("+")[0])
    check_torch_version("2.4.0")
    check_torch_version("2.13.0+cpu")
    check_torch_version("nightly")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, "magic", "Invalid enum value 'magic'"),
        (1, -0.5, "Expected `float` >= 0"),
        (8, "fp3", "Invalid enum value 'fp3'"),
    ],
)
def test_parts_of_a_profile_file_are_checked(place: int, value: Any, words: str, tmp_path: Path) -> None:
    whole = json.loads(files.encode(loaded("plain")))
    parts = next(parts for parts in whole["recorded"]["work"].values() if len(parts[0]) > 8)
    parts[0][place] = value
    path = written(tmp_path / "p.json", whole)
    with pytest.raises(BadInput, match=words):
        files.load(path)


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for name in ("batch", "micro_steps", "world_size"):
        trace = trace_of()
        trace["planner"][name] = 0
        with pytest.raises(BadInput, match="Expected `int` >= 1"):
            import_profile([written(tmp_path / "t.json", trace)])


def test_waiting_for_another_rank_in_one_traced_step_does_not_shorten_the_computation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The untraced step is computation and communication among ranks that are ready."""
    made: list[TracedSteps] = []
    monkeypatch.setattr(pytorch, "TracedSteps", lambda *given: made.append(TracedSteps(*given)) or made[-1])
    import_profile([DATA / "ddp.json.gz"])
    steps, begin, names = made[0].steps, made[0].begin, made[0].names
    assert made[0].facts is not None
    facts = structs.replace(made[0].facts, step_s=0.8 * float(made[0].durations_us.sum(axis=1).mean()) * 1e-6)

    def step_us(late_us: list[float]) -> float:
        late = [replace(step, late_us=step.late_us + us) for step, us in zip(steps, late_us, strict=True)]
        return float(TracedSteps(late, begin, names, facts).durations_us.sum(axis=1).mean())

    slowest = int(
        np.argmax(
            [step.late_us + sum(op.waited_us + op.communication_us for op in step.ops) for step in steps]
        )
    )
    assert step_us([50_000 if k == slowest else 0 for k in range(3)]) == pytest.approx(step_us([0, 0, 0]))
    assert step_us([0, 0, 0]) - step_us([500, 500, 500]) == pytest.approx(500, rel=0.01)
