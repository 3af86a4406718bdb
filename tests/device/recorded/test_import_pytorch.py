"""Traces of the PyTorch 2.13 profiler (CPU build, a small convolutional network, 3 steps) as profiles."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from planner.device.recorded.importers import import_profile, kineto, pytorch
from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER

DATA = Path(__file__).parents[2] / "data" / "pytorch"
PLAIN = DATA / "plain.json.gz"
# conv 3x16 3x3, batch norm 16, conv 16x32 3x3, two branches of 32x32 (1x1 and 3x3), fc 2048x64, fc 64x10
SIZES = {
    "conv2d_0/16x3x3x3": 1728,
    "conv2d_0/16": 64,
    "batch_norm_0/16": 64,
    "batch_norm_0/16#2": 64,
    "conv2d_1/32x16x3x3": 18432,
    "conv2d_1/32": 128,
    "conv2d_2/32x32x1x1": 4096,
    "conv2d_2/32": 128,
    "conv2d_3/32x32x3x3": 36864,
    "conv2d_3/32": 128,
    "linear_0/64x2048": 524288,
    "linear_0/64": 256,
    "linear_1/10x64": 2560,
    "linear_1/10": 40,
}


def events(path=PLAIN):
    return json.loads(gzip.decompress(path.read_bytes()))


def downloads(profile):
    return dict(zip(profile.tensors, profile.bytes[profile.resource == DOWNLINK].tolist(), strict=True))


def write(path, trace):
    path.write_text(json.dumps(trace))
    return path


def test_every_parameter_is_found_with_its_size_its_reader_and_its_gradient():
    profile = import_profile([PLAIN], batch=16, model="small")
    assert (
        dict(zip(profile.tensors, profile.bytes[profile.resource == DOWNLINK].tolist(), strict=True)) == SIZES
    )
    assert (profile.steps, profile.servers) == (3, 1)
    for tensor, name in enumerate(profile.tensors):
        down, up, update = (
            int(np.flatnonzero((profile.tensor == tensor) & (profile.resource == r))[0])
            for r in (DOWNLINK, UPLINK, PS)
        )
        readers = [profile.names[i] for i in range(profile.ops) if down in profile.deps(i)]
        assert readers == [f"forward/{name.partition('/')[0]}"]
        (gradient,) = profile.deps(up).tolist()
        assert profile.names[gradient].startswith("backward/AccumulateGrad")
        assert profile.deps(update).tolist() == [up]
        assert profile.bytes[up] == profile.bytes[down]


def test_worker_runs_a_chain_that_takes_as_long_as_was_recorded():
    profile = import_profile([PLAIN], batch=16)
    worker = np.flatnonzero(profile.resource == WORKER)
    assert profile.names[worker[0]] == "input"
    for before, after in pairwise(worker):
        assert before in profile.deps(int(after))
    trace = events()["traceEvents"]
    marks = sorted((e for e in trace if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    for step, mark in enumerate(marks):
        end = mark["ts"] + mark["dur"]
        optimizer = next(
            e for e in trace if e["name"].startswith("Optimizer.step") and mark["ts"] <= e["ts"] < end
        )
        updates = profile.durations_s[step, profile.resource == PS].sum()
        assert updates == pytest.approx(optimizer["dur"] * 1e-6)
        computing = profile.durations_s[step, worker].sum()
        assert computing + updates == pytest.approx(mark["dur"] * 1e-6, rel=1e-6)


def test_gradients_appear_in_the_order_of_the_backward_pass():
    profile = import_profile([PLAIN], batch=16)
    order = sorted(np.flatnonzero(profile.resource == UPLINK), key=lambda i: profile.deps(int(i))[0])
    first, last = (profile.names[i] for i in (order[0], order[-1]))
    assert first.startswith("upload/linear_1")
    assert last.startswith("upload/conv2d_0")


def test_buckets_of_data_parallel_training_are_the_unit_of_transfer():
    profile = import_profile([DATA / "ddp.json.gz"], batch=16)
    assert profile.tensors == ("bucket_0", "bucket_1")
    down = profile.bytes[profile.resource == DOWNLINK].tolist()
    assert down == [527_144, 61_696]
    assert sum(down) == sum(SIZES.values())
    names = {i: profile.names[i] for i in range(profile.ops)}
    readers = {names[i] for i in range(profile.ops) if 0 in profile.deps(i)}
    assert readers == {"forward/linear_0", "forward/linear_1"}
    assert any("14 gradients in 2 buckets" in note for note in profile.notes)
    # the all-reduce inside the last AccumulateGrad, 7 ms of it in the first step, is not computation
    worker = profile.resource == WORKER
    gradients = [i for i in np.flatnonzero(worker) if "AccumulateGrad" in names[i]]
    assert profile.durations_s[:, gradients].max() < 1e-3


def test_kernels_of_a_gpu_carry_the_time():
    """Each op launches one kernel of 50 us that starts 1 ms after it; launches themselves cost nothing."""
    trace = events()
    kernels, busy = [], 0.0
    ops = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"]
    outer_end = 0.0
    for e in sorted(ops, key=lambda e: (e["ts"], -e["dur"])):
        if e["ts"] < outer_end:
            continue
        outer_end = e["ts"] + e["dur"]
        start = max(e["ts"] + 1000, busy)
        busy = start + 50
        args = {"External id": e["args"]["External id"]}
        kernels.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "k",
                "pid": 0,
                "tid": 7,
                "ts": start,
                "dur": 50,
                "args": args,
            }
        )
    trace["traceEvents"] += kernels
    _, steps = kineto.read_trace_and_steps(json.dumps(trace).encode(), "gpu")
    assert [step.on_gpu for step in steps] == [True] * 3
    profile = pytorch.build_profile(steps, batch=1, model="x")
    worker = [i for i in np.flatnonzero(profile.resource == WORKER) if profile.names[i] != "input"]
    # the work of a step is at least its kernels, at most from its first to its last kernel
    assert (profile.durations_s[:, worker].sum(axis=1) >= 50e-6 * len(worker) - 1e-9).all()
    assert profile.durations_s[:, worker].min() >= 50e-6 - 1e-9
    assert any("GPU" in note for note in profile.notes)
    assert (
        dict(zip(profile.tensors, profile.bytes[profile.resource == DOWNLINK].tolist(), strict=True)) == SIZES
    )


def test_several_files_are_several_steps():
    assert import_profile([PLAIN, PLAIN], batch=16).steps == 6


def test_steps_that_run_other_ops_are_left_out(tmp_path):
    trace = events()
    for e in trace["traceEvents"]:
        if e["name"] == "aten::max_pool2d":
            e["name"] = "aten::avg_pool2d"
            break
    profile = import_profile([write(tmp_path / "t.json", trace)], batch=16)
    assert profile.steps == 2
    assert any("1 of 3 steps ran other ops" in note for note in profile.notes)


def test_trace_without_a_part_names_it(tmp_path):
    with pytest.raises(BadInput, match=r"14 gradients have no size.*record_shapes=True"):
        import_profile([DATA / "noshapes.json.gz"], batch=16)
    with pytest.raises(BadInput, match="no backward pass"):
        import_profile([DATA / "inference.json.gz"], batch=16)

    trace = events()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]
    with pytest.raises(BadInput, match=r"3 optimizer steps.*several steps in one file.*prof\.step"):
        import_profile([write(tmp_path / "nomarks.json", trace)], batch=16)

    trace = events()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "fwdbwd"]
    with pytest.raises(BadInput, match="no flow from forward to backward"):
        import_profile([write(tmp_path / "noflow.json", trace)], batch=16)

    trace = events()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if "AccumulateGrad" not in e["name"]]
    with pytest.raises(BadInput, match="no gradients"):
        import_profile([write(tmp_path / "nograd.json", trace)], batch=16)


def test_clock_jumps_are_noticed(tmp_path):
    trace = events()
    next(e for e in trace["traceEvents"] if e["name"] == "aten::relu")["dur"] = -5
    with pytest.raises(BadInput, match="clock jumped"):
        import_profile([write(tmp_path / "a.json", trace)], batch=16)
    trace = events()
    next(e for e in trace["traceEvents"] if e["name"] == "aten::convolution")["dur"] += 5e6
    with pytest.raises(BadInput, match="clock jumped"):
        import_profile([write(tmp_path / "b.json", trace)], batch=16)
    trace = events()
    next(e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep"))["dur"] = 7.2e9
    with pytest.raises(BadInput, match="clock jumped"):
        import_profile([write(tmp_path / "c.json", trace)], batch=16)


def test_truncated_trace_is_refused(tmp_path):
    data = gzip.decompress(PLAIN.read_bytes())
    (tmp_path / "cut.json").write_bytes(data[: len(data) // 2])
    with pytest.raises(BadInput, match="not a complete trace"):
        import_profile([tmp_path / "cut.json"], batch=16)


def test_without_an_optimizer_updates_take_no_time(tmp_path):
    trace = events()
    trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("Optimizer.step")]
    profile = import_profile([write(tmp_path / "t.json", trace)], batch=16)
    assert (profile.durations_s[:, profile.resource == PS] == 0).all()
    assert any("no optimizer step" in note for note in profile.notes)


@pytest.mark.parametrize("name", ["accumulated", "passes"])
def test_accumulated_gradients_are_sent_once(name):
    """Two steps of four passes, marked by the step or by the pass; of the latter ten passes were recorded,
    the first of them in the middle of a step."""
    profile = import_profile([DATA / f"{name}.json.gz"], batch=64)
    assert downloads(profile) == SIZES
    assert profile.steps == 2
    assert any("gradient accumulation: 4 passes a step" in note for note in profile.notes)
    order = {op: at for at, op in enumerate(profile.names)}
    for tensor, label in enumerate(profile.tensors):
        down, up = (
            int(np.flatnonzero((profile.tensor == tensor) & (profile.resource == r))[0])
            for r in (DOWNLINK, UPLINK)
        )
        readers = [profile.names[i] for i in range(profile.ops) if down in profile.deps(i)]
        kind, _, first = label.partition("/")[0].rpartition("_")
        a_pass = {"conv2d": 4, "batch_norm": 1, "linear": 2}[kind]
        assert readers == [f"forward/{kind}_{int(first) + a_pass * k}" for k in range(4)]
        (gradient,) = profile.deps(up).tolist()
        of_all = [at for op, at in order.items() if op.startswith("backward/AccumulateGrad")]
        assert gradient in sorted(of_all)[-len(SIZES) :]


def test_accumulated_step_lasts_as_long_as_its_four_passes():
    profile = import_profile([DATA / "passes.json.gz"], batch=64)
    trace = events(DATA / "passes.json.gz")["traceEvents"]
    optimizers = sorted(e["ts"] for e in trace if e["name"].startswith("Optimizer.step"))
    marks = sorted(e["ts"] for e in trace if e["name"].startswith("ProfilerStep#"))
    ends = {e["ts"]: e["ts"] + e["dur"] for e in trace if e["name"].startswith("ProfilerStep#")}
    first = max(at for at, mark in enumerate(marks) if mark < optimizers[0]) + 1
    for step in range(2):
        begin = first + 4 * step
        took_us = ends[marks[begin + 3]] - marks[begin]
        assert profile.durations_s[step].sum() == pytest.approx(took_us * 1e-6, rel=1e-6)


def test_passes_that_make_different_gradients_are_not_accumulation(tmp_path):
    """Without the first gradient of a pass it is another network's."""
    trace = events(DATA / "accumulated.json.gz")
    seen = []

    def dropped(event):
        if event["name"].endswith("AccumulateGrad"):
            seen.append(event["name"])
        return event["name"].endswith("AccumulateGrad") and len(seen) in (1, 2)

    ordered = sorted(trace["traceEvents"], key=lambda event: event["ts"])
    trace["traceEvents"] = [event for event in ordered if not dropped(event)]
    end = min(e["ts"] + e["dur"] for e in ordered if e["name"].startswith("ProfilerStep#"))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["ts"] < end]
    profile = import_profile([write(tmp_path / "t.json", trace)], batch=64)
    assert any("4 backward passes in a step, which make different" in note for note in profile.notes)
    assert len(profile.tensors) == 4 * len(SIZES) - 1


def test_data_parallel_passes_send_the_buckets_of_the_last():
    """Four passes, the gradients of each all-reduced or of the last alone: the same transfers."""

    def step(synced):
        ops = []
        for number in range(4):
            ops.append(kineto.OuterOp("linear", 10.0 * number, 10.0 * number + 2, (1, 1), False))
            ops.append(
                kineto.OuterOp(
                    "AddmmBackward0", 10.0 * number + 3, 10.0 * number + 5, (1, 2), True, 3 * number
                )
            )
            sent = [(6, "float")] if number == 3 or synced else []
            ops.append(
                kineto.OuterOp(
                    "AccumulateGrad",
                    10.0 * number + 5,
                    10.0 * number + 6,
                    (1, 2),
                    True,
                    gradient=((2, 3), "float"),
                    buckets=sent,
                )
            )
        return kineto.Step("t.json", 0.0, ops, 4.0)

    for synced in (False, True):
        profile = pytorch.build_profile([step(synced)], batch=4, model="m")
        assert profile.tensors == ("bucket_0",)
        assert profile.bytes[profile.resource == UPLINK].tolist() == [24]
        (up,) = np.flatnonzero(profile.resource == UPLINK)
        assert profile.names[profile.deps(int(up))[0]] == "backward/AccumulateGrad_3"
        assert any("every pass sends" in note for note in profile.notes) == synced


def test_empty_trace_says_what_to_do(tmp_path):
    path = write(tmp_path / "t.json", {"schemaVersion": 1, "traceEvents": []})
    with pytest.raises(BadInput, match="repeat=1"):
        import_profile([path], batch=1)


def test_cycle_that_was_cut_off_leaves_the_whole_steps():
    """The last mark of a recording that the end of the loop cut off has no optimizer in it."""
    assert kineto.join_passes([(0, 9), (10, 19), (20, 29)], [5, 15]) == [(0, 9), (10, 19)]
    assert kineto.join_passes([(0, 9), (10, 19)], []) == [(0, 9), (10, 19)]
    # the optimizer skipped the third step
    assert kineto.join_passes([(0, 9), (10, 19), (20, 29), (30, 39)], [0, 15, 35]) == [(0, 9), (10, 19)]
