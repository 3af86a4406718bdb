"""The orders that papers and released code give for graphs small enough to check by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ordering_graphs import MB_PER_S, chain, makespan_s, parallel, step_graph

from planner.errors import BadInput
from planner.hardware import KernelRates
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.ordering import STRATEGIES, schedule
from planner.servers.ordering.graph import StepGraph
from planner.servers.ordering.strategies import impending_counts, tac_order, tic_order, tic_ranks
from planner.servers.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.simulator.policy import Ordered
from planner.simulator.step import DOWNLINK, UPLINK, WORKER, Op, OpRole, Profile

DATA = Path(__file__).parents[2] / "data" / "ordering"
FIG_1A = step_graph({"r1": 1, "r2": 1}, {"op1": (["r1"], 1), "op2": (["op1", "r2"], 1)})
FIG_5B = step_graph(
    {"A": 1, "B": 1, "C": 1, "D": 1},
    {"op1": (["A", "B"], 1), "op2": (["op1", "C"], 1), "op3": (["op2", "D"], 1)},
)
DIAMOND = step_graph(
    {"w0": 1, "w1": 2, "w2": 1, "w3": 1, "w4": 4, "w5": 8},
    {
        "stem": (["w0"], 3),
        "a1": (["stem", "w1"], 2),
        "b1": (["stem", "w2"], 1),
        "b2": (["b1", "w3"], 1),
        "cat": (["a1", "b2"], 0.1),
        "head": (["cat", "w4"], 2),
        "fc": (["head", "w5"], 1),
    },
)


def names(profile: Profile, ops: list[int]) -> list[str]:
    return [profile.names[op] for op in ops]


def tac(profile: Profile) -> list[str]:
    return names(profile, tac_order(StepGraph.build(profile), MB_PER_S))


def tic(profile: Profile) -> list[str]:
    return names(profile, tic_order(StepGraph.build(profile)))


def fig_5a(m_a: float, p_a: float, m_b: float, p_b: float) -> Profile:
    return step_graph({"A": m_a, "B": m_b}, {"opA": (["A"], p_a), "opB": (["B"], p_b)})


def test_figure_1a() -> None:
    graph = StepGraph.build(FIG_1A)
    assert tic_ranks(graph) == [0, 0]
    assert impending_counts(graph) == [2, 2]
    assert tic(FIG_1A) == tac(FIG_1A) == ["r1", "r2"]
    assert makespan_s(FIG_1A, [0, 1]) == 3
    assert makespan_s(FIG_1A, [1, 0]) == 4


@pytest.mark.parametrize(
    ("times", "first", "best_s", "other_s"),
    [((1, 5, 4, 2), "A", 8, 11), ((4, 2, 1, 5), "B", 8, 11), ((3, 4, 2, 6), "B", 12, 13)],
)
def test_figure_5a(times: tuple[float, ...], first: str, best_s: float, other_s: float) -> None:
    """The rule that Algorithm 3 prints would choose the other one."""
    profile = fig_5a(*times)
    assert tac(profile)[0] == first
    best = [0, 1] if first == "A" else [1, 0]
    assert makespan_s(profile, best) == best_s
    assert makespan_s(profile, best[::-1]) == other_s
    assert impending_counts(StepGraph.build(profile)) == [float("inf")] * 2


def test_figure_5b() -> None:
    assert tic_ranks(StepGraph.build(FIG_5B)) == [0, 0, 2, 3]
    assert tac(FIG_5B) == tic(FIG_5B) == ["A", "B", "C", "D"]


def test_chain_and_parallel_branches() -> None:
    five = chain([1] * 5, [1] * 5)
    assert tic_ranks(StepGraph.build(five)) == [0, 0, 2, 3, 4]
    assert tac(five) == tic(five) == [f"r{i}" for i in range(5)]
    assert tic_ranks(StepGraph.build(parallel([1] * 4, [1] * 4))) == [0] * 4


def test_diamond() -> None:
    graph = StepGraph.build(DIAMOND)
    ranks = dict(zip(names(DIAMOND, list(graph.pulls)), tic_ranks(graph), strict=True))
    assert ranks == {"w0": 0, "w1": 0, "w2": 0, "w3": 3, "w4": 4, "w5": 5}
    assert tac(DIAMOND) == ["w0", "w2", "w1", "w3", "w4", "w5"]


def slim(model: str) -> Profile:
    """A forward pass with the durations that the published orders assumed."""
    rates = dict.fromkeys(("conv1x1", "conv3x3", "conv", "fc"), 2.5e12) | {"memory": 600e9}
    kernels = KernelRates(rates, 1e-7, "estimated", "the published orders")
    hardware = replace(load_hardware("g3.8xlarge"), kernels=kernels)
    return profile_for(
        load_model(model), 32, hardware,
        training=False, steps=1, parsing=NO_PARSING, variation=NO_VARIATION,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("slim-alexnet-v2", "alexnet_v2"),
        ("slim-vgg16", "vgg_16"),
        ("slim-inception-v1", "inception_v1"),
        ("slim-inception-v2", "inception_v2"),
        ("slim-resnet50-v1", "resnet_v1_50"),
    ],
)
def test_released_orders_of_slim_networks(model: str, published: str) -> None:
    expected = json.loads((DATA / "tictac_slim.json").read_text())[published]
    profile = slim(model)
    graph = StepGraph.build(profile)

    def variables(ops: Sequence[int]) -> list[str]:
        return [profile.names[op].removesuffix("/down") for op in ops]

    assert dict(zip(variables(graph.pulls), tic_ranks(graph), strict=True)) == expected["tic"]
    if "tac" in expected:
        assert variables(tac_order(graph, 1.25e9)) == expected["tac"]


def test_seq32_only_the_order_of_consumption_reaches_the_bound() -> None:
    profile = chain([1] * 32, [1] * 32)
    ideal = list(range(32))
    assert names(profile, ideal) == tac(profile) == tic(profile)
    assert makespan_s(profile, ideal) == 33  # 32 transfers, and what the last one unlocks
    for i in range(31):
        swapped = ideal.copy()
        swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
        assert makespan_s(profile, swapped) > 33
    assert makespan_s(profile, ideal[::-1]) == 64


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(32)))
def test_par32_all_orders_are_equal(permutation: list[int]) -> None:
    profile = parallel([1] * 32, [1] * 32)
    assert makespan_s(profile, permutation) == 33


durations = st.sampled_from([0.5, 1, 2, 3, 5, 8])


def best_of_chain(transfer_s: list[float], compute_s: list[float]) -> float:
    """The shortest step over all orders: op i runs after op i - 1 and download i."""
    orders = np.array(list(itertools.permutations(range(len(transfer_s)))))
    arrival = np.empty(orders.shape)
    np.put_along_axis(arrival, orders, np.cumsum(np.array(transfer_s)[orders], axis=1), axis=1)
    done = np.zeros(len(orders))
    for i, seconds in enumerate(compute_s):
        done = np.maximum(done, arrival[:, i]) + seconds
    return float(done.min())


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(2, 8))
def test_tac_is_the_best_of_all_orders_of_a_chain(data: st.DataObject, length: int) -> None:
    times = st.lists(durations, min_size=length, max_size=length)
    transfer_s, compute_s = data.draw(times), data.draw(times)
    profile = chain(transfer_s, compute_s)
    result = makespan_s(profile, tac_order(StepGraph.build(profile), MB_PER_S))
    assert result == pytest.approx(best_of_chain(transfer_s, compute_s))


def test_parsing_is_part_of_the_transfer() -> None:
    """A download is not urgent because it takes long to parse."""
    ops = [
        Op("w0", DOWNLINK, 0, bytes=10**6, tensor=0),
        Op("w1", DOWNLINK, 0, bytes=9 * 10**6, tensor=1),
        Op("w0/parse", WORKER, deps=(0,), role=OpRole.PARSE),
        Op("w1/parse", WORKER, deps=(1,), role=OpRole.PARSE),
        Op("conv0", WORKER, deps=(2,)),
        Op("conv1", WORKER, deps=(4, 3)),
        Op("g1", UPLINK, 0, bytes=9 * 10**6, deps=(5,), tensor=1),
        Op("g0", UPLINK, 0, bytes=10**6, deps=(5,), tensor=0),
    ]
    profile = Profile.build(ops, [0, 0, 1, 9, 1, 1, 0, 0], model="toy", batch=1, tensors=("w0", "w1"))
    assert tac(profile) == tic(profile) == ["w0", "w1"]
    policy = schedule(profile, "tac", bandwidth_bytes_per_s=MB_PER_S).policy
    assert isinstance(policy, Ordered)
    assert policy.priorities == {"w0": 0, "w1": 1, "g0": 0, "g1": 1}


def test_order_of_ops_in_the_file_does_not_matter() -> None:
    reordered = step_graph(
        {"w5": 8, "w3": 1, "w1": 2, "w0": 1, "w4": 4, "w2": 1},
        {
            "fc": (["head", "w5"], 1),
            "head": (["cat", "w4"], 2),
            "cat": (["a1", "b2"], 0.1),
            "b2": (["b1", "w3"], 1),
            "b1": (["stem", "w2"], 1),
            "a1": (["stem", "w1"], 2),
            "stem": (["w0"], 3),
        },
    )
    assert tac(reordered) == tac(DIAMOND)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_schedules_every_transfer(name: str) -> None:
    profile = step_graph(
        {"w0": 1, "w1": 20},
        {"f0": (["w0"], 1), "f1": (["f0", "w1"], 1), "b1": (["f1"], 1), "b0": (["b1"], 1)},
        {"g1": ("b1", "w1"), "g0": ("b0", "w0")},
    )
    plan = schedule(profile, name, bandwidth_bytes_per_s=MB_PER_S, overhead_s=0.25)
    assert plan.policy.overhead_s == 0.25
    assert plan.profile.bytes.sum() == profile.bytes.sum()
    assert plan.profile.durations_s.sum() == pytest.approx(profile.durations_s.sum())
    priorities = getattr(plan.policy, "priorities", None)
    if priorities is not None:
        transfers = {n for n, t in zip(plan.profile.names, plan.profile.is_transfer, strict=True) if t}
        assert set(priorities) == transfers


def test_bad_input() -> None:
    with pytest.raises(BadInput, match="unknown strategy 'tack'; nearest: tac"):
        schedule(FIG_1A, "tack", bandwidth_bytes_per_s=1)
    with pytest.raises(BadInput, match="above zero"):
        schedule(FIG_1A, "tac", bandwidth_bytes_per_s=0)
    with pytest.raises(BadInput, match="smaller than slice_bytes"):
        schedule(FIG_1A, "bytescheduler", bandwidth_bytes_per_s=1, partition_bytes=10, credit_bytes=9)
    no_pull = Profile.build([Op("a", WORKER)], [1], model="toy", batch=1)
    with pytest.raises(BadInput, match="no download"):
        schedule(no_pull, "tic", bandwidth_bytes_per_s=1)
