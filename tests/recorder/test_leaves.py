"""What a call asks of a device, whose time is whose, and what the host took: by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_examples import loaded

from planner.device.recorded.importers import kineto, pytorch
from planner.device.recorded.importers.events import Spans
from planner.device.recorded.importers.leaves import (
    Leaf,
    Shapes,
    moving_leaf,
    multiplying_leaf,
    split_op_time,
)
from planner.simulator.step import WORKER
from planner.simulator.step.recorded import Facts

BACK = "autograd::engine::evaluate_function: "


def demand(
    name: str, dims: list[Any], types: tuple[str, ...] = (), values: tuple[str, ...] = (), **more: Any
) -> Leaf:
    shapes = Shapes(dims, list(types or ("float",) * len(dims)), list(values))
    leaf = multiplying_leaf(name, shapes, more.get("weights", set()), tf32=more.get("tf32", False))
    assert leaf is not None
    return leaf


def test_product_and_the_gradients_of_its_two_factors() -> None:
    weights = {(48, 16)}
    forward = demand("aten::addmm", [[48], [2048, 16], [16, 48]], weights=weights)
    flops, weight, moved = 2.0 * 2048 * 16 * 48, 16 * 48, 2048 * (16 + 48)
    assert forward.kind == "matmul"
    assert forward.demand[:3] == (1.0, flops, 2.0 * weight)
    assert forward.demand[3] == pytest.approx(flops * (1 / 48 + 1 / 16))
    assert forward.demand[4:] == (4 * moved, 4 * weight)
    inputs = demand("aten::mm", [[2048, 48], [48, 16]], weights=weights)
    assert inputs.demand[4:] == (4 * moved, 4 * weight)
    of_weight = demand("aten::mm", [[48, 2048], [2048, 16]], weights=weights)
    assert of_weight.demand[2] == 2.0 * weight
    assert of_weight.demand[4:] == (4 * moved, 4 * weight)


def test_formats_are_those_of_the_tensors() -> None:
    shape = [[8, 8], [8, 8]]
    assert demand("aten::mm", shape).format == "fp32"
    assert demand("aten::mm", shape, tf32=True).format == "tf32"
    assert demand("aten::mm", shape, ("c10::BFloat16",) * 2).format == "bf16"
    assert demand("aten::mm", shape, ("c10::Half",) * 2).demand[5] == 2 * 64


def test_convolutions_by_kind() -> None:
    def kind(weight: list[int], stride: str, channels: int = 8) -> str:
        values = ("", "", "", stride, "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
        return demand("aten::convolution", [[2, channels, 9, 9], weight], values=values).kind

    assert kind([8, 8, 1, 1], "[1, 1]") == "conv1x1"
    assert kind([8, 8, 3, 3], "[1, 1]") == "conv3x3"
    assert kind([8, 8, 3, 3], "[2, 2]") == "conv"
    assert kind([8, 8, 7, 7], "[1, 1]") == "conv_long"
    assert kind([8, 1, 3, 3], "[1, 1]") == "depthwise"
    assert kind([8, 4, 3, 3], "[1, 1]") == "grouped"


def test_attention_is_halved_by_a_mask() -> None:
    dims = [[2, 4, 128, 16]] * 3
    whole = demand("aten::scaled_dot_product_attention", dims)
    masked = demand("aten::scaled_dot_product_attention", dims, values=("", "", "", "", "0.", "True"))
    assert whole.demand[1] == 4.0 * 2 * 4 * 128 * 16 * 128
    assert masked.demand[1] == whole.demand[1] / 2


def test_other_calls_move_their_inputs_and_views_move_nothing() -> None:
    shapes = Shapes([[8, 4], [8, 4], []], ["float", "float", "Scalar"], [])
    assert moving_leaf("aten::add", shapes).demand[4] == 3 * 8 * 4 * 4
    assert moving_leaf("aten::view", shapes).kind == "overhead"
    assert moving_leaf("aten::item", Shapes()).kind == "overhead"


def test_short_kernels_are_overhead_and_shares_belong_to_the_op() -> None:
    def leaves(us: float) -> list[Leaf]:
        return [
            Leaf("memory", "fp32", us, (1, 0, 0, 0, 400.0, 0)),
            Leaf("matmul", "bf16", 30.0, (1, 9.0, 0, 0, 0, 0)),
        ]

    on_cpu = {part.kind: part for part in split_op_time([leaves(10.0)], 50.0, "cpu")}
    on_gpu = {part.kind: part for part in split_op_time([leaves(10.0)], 50.0, "gpu")}
    assert set(on_cpu) == {"overhead", "matmul"}
    assert set(on_gpu) == {"memory", "matmul"}
    assert on_gpu["memory"].share == pytest.approx(0.2)
    assert on_gpu["matmul"].share == pytest.approx(0.6)
    assert on_cpu["overhead"].moved_bytes == 0
    twice = {part.kind: part for part in split_op_time([leaves(10.0), leaves(30.0)], 50.0, "gpu")}
    assert twice["memory"].share == pytest.approx(0.4)
    assert twice["memory"].moved_bytes == 400.0


def test_spans_are_joined_and_cut() -> None:
    spans = Spans([(5, 7), (0, 2), (1, 3)])
    assert spans.covered_us(0, 10) == 5
    assert spans.covered_us(2, 6) == 2
    assert spans.contains(0, 3)
    assert not spans.contains(2, 6)
    assert spans.intersection(Spans([(2, 6)])) == [(2, 3), (5, 6)]


def call(
    name: str, start: float, lasts: float, number: int, dims: list[Any] | None = None, **more: Any
) -> Any:
    args = {"External id": number, "Input Dims": dims or [], "Input type": ["float"] * len(dims or [])}
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasts}
    return event | {"args": args} | more


def step() -> list[Any]:
    """Forward: a product of 100 us that copies for 40 of them, a broadcast, an activation; backward."""
    return [
        call("ProfilerStep#1", 0, 1000, 0, cat="user_annotation"),
        call("aten::linear", 100, 100, 1, [[4, 8], [2, 8]]),
        call("aten::addmm", 110, 80, 2, [[2], [4, 8], [8, 2]]),
        call("aten::copy_", 120, 40, 3, [[4, 2], [4, 2]]),
        call("c10d::broadcast_", 210, 50, 4),
        call("aten::outer_sum", 270, 90, 5, [[4, 2]]),
        call("aten::sum", 300, 50, 6, [[4, 2]]),
        call(BACK + "AddmmBackward0", 400, 60, 7),
        call("AddmmBackward0", 405, 50, 8, [[4, 2]]),
        call("aten::mm", 410, 40, 9, [[2, 4], [4, 8]]),
        call(BACK + "torch::autograd::AccumulateGrad", 470, 20, 10),
        call("torch::autograd::AccumulateGrad", 472, 10, 11, [[2, 8]]),
        call("Optimizer.step#SGD.step", 600, 100, 12, cat="user_annotation"),
        {"ph": "s", "cat": "fwdbwd", "name": "f", "pid": 1, "tid": 1, "ts": 111, "id": 1},
        {"ph": "f", "cat": "fwdbwd", "name": "f", "pid": 1, "tid": 1, "ts": 406, "id": 1},
    ]


def read(events: list[Any]) -> kineto.Step:
    _, (result,) = kineto.read_trace_and_steps(json.dumps({"traceEvents": events}).encode(), "hand")
    return result


def test_call_has_the_time_that_it_spends_itself() -> None:
    ops = read(step()).ops
    assert [op.name for op in ops] == ["linear", "outer_sum", "AddmmBackward0", "AccumulateGrad"]
    linear, outer = ops[:2]
    assert [(leaf.kind, leaf.us) for leaf in linear.leaves] == [("memory", 20.0), ("matmul", 80.0)]
    assert [(leaf.kind, leaf.us) for leaf in outer.leaves] == [("memory", 40.0), ("memory", 50.0)]


def test_communication_between_two_ops_is_neither_s() -> None:
    result = read(step())
    profile = pytorch.build_profile([result], batch=4, model="m", facts=Facts(batch=4))
    lasts = dict(zip(profile.names, (profile.durations_s[0] * 1e6).tolist(), strict=True))
    assert lasts["forward/linear_0"] == pytest.approx(100)
    assert lasts["forward/outer_sum_0"] == pytest.approx(360 - 200 - 50)
    assert lasts["backward/AddmmBackward0_0"] == pytest.approx(100)
    # before the first op, and after the backward pass less the optimizer
    assert lasts["input"] == pytest.approx(100 + (1000 - 490 - 100))
    assert profile.recorded is not None
    assert profile.recorded.exposed is not None
    assert profile.recorded.exposed.communication_s == pytest.approx(50e-6)
    assert profile.recorded.exposed.idle_s == pytest.approx((20 + 40 + 10) * 1e-6)
    worker = profile.durations_s[0, profile.resource == WORKER].sum()
    assert worker == pytest.approx((1000 - 100 - 50) * 1e-6)


def test_no_collective_is_part_of_an_op() -> None:
    recorded = loaded("ddp").recorded
    assert recorded is not None
    assert not [part for parts in recorded.work.values() for part in parts if part.kind == "communication"]


def test_issue_time_excludes_waits_for_the_device() -> None:
    def kernel(number: int, start: float, lasts: float, name: str = "k") -> Any:
        return call(name, start, lasts, number, cat="kernel", pid=0, tid=7)

    events = [
        *step(),
        kernel(2, 300, 200),
        kernel(3, 500, 100),
        kernel(6, 700, 50),
        kernel(99, 600, 90, "ncclDevKernel_AllReduce"),
        kernel(9, 750, 40),
        call("cudaStreamSynchronize", 310, 30, 0, cat="cuda_runtime"),
    ]
    result = read(events)
    linear, outer, back, _ = result.ops
    assert (linear.start_us, linear.end_us) == (300, 600)
    assert [leaf.us for leaf in linear.leaves] == [0.0, 300.0]
    assert linear.launch_us == 200
    assert outer.launch_us == 360 - 200 - 30
    assert back.launch_us == 100
    assert outer.waited_us == 90  # the device had nothing to do but to wait for the collective
    profile = pytorch.build_profile([result], batch=4, model="m", facts=Facts(batch=4, device_kind="gpu"))
    lasts = dict(zip(profile.names, (profile.durations_s[0] * 1e6).tolist(), strict=True))
    assert lasts["forward/outer_sum_0"] == pytest.approx(750 - 600 - 90)
    assert profile.recorded is not None
    assert profile.recorded.launch_s["forward/outer_sum_0"] == pytest.approx(130e-6)


def test_kernels_are_joined_by_correlation_where_there_is_one() -> None:
    """As PyTorch of 2022 wrote it: the external id of a kernel is its correlation, no call's."""

    def kernel(number: int, start: float, lasts: float) -> Any:
        return call("k", start, lasts, 0, cat="kernel", pid=0, tid=7) | {
            "args": {"External id": number, "correlation": number, "device": 0}
        }

    def launch(number: int, start: float) -> Any:
        ids = {"External id": number, "correlation": number}
        return call("cudaLaunchKernel", start, 5, 0, cat="cuda_runtime") | {"args": ids}

    # 5 is the external id of another call
    events = [*step(), launch(5, 115), kernel(5, 300, 70), launch(6, 310), kernel(6, 400, 30)]
    events += [launch(7, 420), kernel(7, 500, 20)]
    linear, outer, back, _ = read(events).ops
    assert [leaf.us for leaf in linear.leaves] == [0.0, 70.0]
    assert [leaf.us for leaf in outer.leaves] == [0.0, 30.0]
    assert (back.start_us, back.end_us) == (500, 520)
