"""Cutting transfers, the steps of gradients, and Prophet's blocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ordering_graphs import MB_PER_S, step_graph

from planner.servers.ordering import schedule
from planner.servers.ordering.prophet import generation_times_s, gradient_bursts, plan_blocks
from planner.servers.placement import cut_tensors
from planner.simulator.policy import Blocks, Sliced
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, OpRole, Profile

DATA = Path(__file__).parents[2] / "data" / "ordering"
RESNET50 = json.loads((DATA / "prophet_resnet50_blocks.json").read_text())


def two_layers(servers: int = 1) -> Profile:
    ops = [
        Op("a/down", DOWNLINK, 0, bytes=10, tensor=0),
        Op("b/down", DOWNLINK, servers - 1, bytes=25, tensor=1),
        Op("a/parse", WORKER, deps=(0,), role=OpRole.PARSE),
        Op("b/parse", WORKER, deps=(1,), role=OpRole.PARSE),
        Op("a/forward", WORKER, deps=(2,)),
        Op("b/forward", WORKER, deps=(3, 4)),
        Op("b/backward", WORKER, deps=(5,)),
        Op("a/backward", WORKER, deps=(6,)),
        Op("b/up", UPLINK, servers - 1, bytes=25, deps=(6,), tensor=1),
        Op("a/up", UPLINK, 0, bytes=10, deps=(7,), tensor=0),
        Op("b/update", PS, servers - 1, deps=(8,), tensor=1),
        Op("a/update", PS, 0, deps=(9,), tensor=0),
    ]
    seconds = [0, 0, 1, 5, 2, 2, 4, 4, 0, 0, 5, 1]
    return Profile.build(
        ops, seconds, model="two", batch=1, servers=servers, tensors=("a", "b"), order=[list(range(12))]
    )


def test_cut_pairs_the_pieces_of_a_tensor() -> None:
    whole = two_layers()
    pieces = cut_tensors(whole, 10)
    index = {name: i for i, name in enumerate(pieces.names)}
    assert pieces.tensors == ("a", "b", "b#0", "b#1", "b#2")
    assert [int(pieces.bytes[index[f"b/up#{j}"]]) for j in range(3)] == [10, 10, 5]
    assert pieces.deps(index["b/parse#1"]).tolist() == [index["b/down#1"]]
    assert pieces.deps(index["b/update#2"]).tolist() == [index["b/up#2"]]
    assert set(pieces.deps(index["b/forward"]).tolist()) == {
        index["a/forward"],
        *(index[f"b/parse#{j}"] for j in range(3)),
    }
    assert pieces.durations_s[0, index["b/update#0"]] == pytest.approx(2)
    assert pieces.durations_s.sum() == pytest.approx(whole.durations_s.sum())
    assert len({int(pieces.tensor[index[n]]) for n in ("b/down#0", "b/up#0", "b/update#0")}) == 1
    assert pieces.order is not None
    assert pieces.order[0].tolist() == list(range(pieces.ops))


def test_cut_leaves_small_transfers_alone() -> None:
    whole = two_layers()
    assert cut_tensors(whole, 25) is whole


def test_dealt_pieces_go_by_turns() -> None:
    divided = cut_tensors(two_layers(servers=2), 10, deal=True)
    index = {name: i for i, name in enumerate(divided.names)}
    for kind in ("down", "up", "update"):
        assert [int(divided.server[index[f"b/{kind}#{j}"]]) for j in range(3)] == [0, 1, 0]
    assert int(divided.server[index["a/down"]]) == 0


def test_p3_slices_are_the_pieces() -> None:
    plan = schedule(two_layers(), "p3", bandwidth_bytes_per_s=1.0, slice_bytes=10)
    assert isinstance(plan.policy, Sliced)
    assert plan.policy.priorities["a/down"] < plan.policy.priorities["b/down#0"]
    assert plan.policy.priorities["b/up#2"] == plan.policy.priorities["b/down#2"]


def test_generation_times() -> None:
    times = {two_layers().names[op]: t for op, t in generation_times_s(two_layers()).items()}
    assert times == {"b/up": 14, "a/up": 18}


def resnet50_gradients() -> tuple[list[float], list[float]]:
    """Generation times as the released Prophet has them, and sizes, both by priority (gradient 0 first)."""
    sizes = RESNET50["sizes_bytes"]
    times = [0.0] * len(sizes)
    now = 0.0
    for block in RESNET50["blocks"]:
        low, high = block["gradients"]
        for gradient in range(high, low - 1, -1):
            times[gradient] = now
            now += 1e-5  # inside a step gradients come within microseconds
        now += block["interval_ms"] / 1e3
    return times, sizes


def test_steps_of_resnet50_are_found_not_typed_in() -> None:
    times, _ = resnet50_gradients()
    kept_of = [(min(step), max(step)) for step in gradient_bursts(times)]
    assert kept_of == [tuple(block["gradients"]) for block in RESNET50["blocks"]]


def test_evenly_generated_gradients_are_one_step() -> None:
    assert gradient_bursts([3.0, 2.0, 1.0, 0.0]) == [[3, 2, 1, 0]]
    assert gradient_bursts([]) == []


def test_blocks_of_resnet50_at_3_gbit() -> None:
    times, sizes = resnet50_gradients()
    bytes_per_s = 3e9 / 8
    blocks, held = plan_blocks(times, [size / bytes_per_s for size in sizes])
    sent = {i for block in blocks for i in block}
    assert sent.isdisjoint(held)
    assert sent | set(held) == set(range(157))
    # The last layers make more bytes than fit: their largest tensors are held until gradient 0 is there.
    published = RESNET50["blocks"]
    for block, step in zip(blocks, published, strict=False):
        assert sum(sizes[i] for i in block) <= step["bytes_fit_at_3gbps"] * 1.05
    assert {0, 9}.issubset(held)  # the last step goes by priority, it has no interval
    assert max(sizes[i] for i in held) == 9437184
    fast, held_fast = plan_blocks(times, [size / 100e9 for size in sizes])
    assert len(fast) == 11
    assert held_fast == list(range(10))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 3)), min_size=1, max_size=20))
def test_no_block_outlasts_its_step(gradients: list[tuple[float, float]]) -> None:
    """Constraint 11: what is sent during backward propagation ends before the next step is generated."""
    generated = [c for c, _ in gradients]
    transfer = [e for _, e in gradients]
    blocks, held = plan_blocks(generated, transfer)
    assert sorted([i for block in blocks for i in block] + held) == list(range(len(gradients)))
    ends = [max(generated[i] for i in step) for step in gradient_bursts(generated)]
    longest = max(np.diff(ends), default=0.0)
    for block in blocks:
        assert sum(transfer[i] for i in block) <= longest + 1e-9
        assert block == sorted(block)


def test_prophet_holds_what_does_not_fit() -> None:
    """Two large gradients come early; one of them fits the time before the next step."""
    profile = step_graph(
        {"w0": 1, "w1": 1, "w2": 3, "w3": 3},
        {
            "f0": (["w0"], 1),
            "f1": (["f0", "w1"], 1),
            "f2": (["f1", "w2"], 1),
            "f3": (["f2", "w3"], 1),
            "b3": (["f3"], 0.1),
            "b2": (["b3"], 0.1),
            "b1": (["b2"], 4),
            "b0": (["b1"], 0.1),
        },
        {"g3": ("b3", "w3"), "g2": ("b2", "w2"), "g1": ("b1", "w1"), "g0": ("b0", "w0")},
    )
    plan = schedule(profile, "prophet", bandwidth_bytes_per_s=MB_PER_S)
    assert isinstance(plan.policy, Blocks)
    assert plan.policy.blocks[:4] == (("g0",), ("g1",), ("g2",), ("g3",))
    index = {name: i for i, name in enumerate(plan.profile.names)}
    assert index["b0"] in plan.profile.deps(index["g3"])
    assert index["b0"] not in plan.profile.deps(index["g2"])
    fast = schedule(profile, "prophet", bandwidth_bytes_per_s=10 * MB_PER_S).policy
    assert isinstance(fast, Blocks)
    assert ("g2", "g3") in fast.blocks
