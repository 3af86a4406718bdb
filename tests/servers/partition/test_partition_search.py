"""The partition search against brute force, its constraints, and what it says when nothing fits."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import BadInput, Infeasible
from planner.hardware.catalog import load_hardware
from planner.model import Layer, Model, Tensor
from planner.model.catalog import load_model
from planner.servers.partition import search
from planner.servers.partition.costs import PartitionProblem, elimination_order, minimise
from planner.servers.partition.layers import PaperConstants
from planner.servers.partition.search import (
    PartitionRequest,
    partition,
    read_cost_s_per_byte,
)
from planner.servers.partition.stages import (
    Geometry,
    best_placement,
    default_placement,
    overlap_matrix,
    stages_of,
    traffic_between,
)

HARDWARE = load_hardware("private-2xe5-2450-10gbe")


def random_model(rng: random.Random, branches: bool) -> Model:
    """A few convolutions, perhaps with a skip, and one or two dense layers."""
    layers = [Layer("input", "input", (), (8, 8, 2))]
    last = "input"
    for i in range(rng.randint(1, 2)):
        channels = rng.choice((4, 16, 64))
        kernel = rng.choice((1, 3, 5))
        weights = Tensor(f"conv{i}", (kernel, kernel, 2, channels))
        macs = 64 * channels * kernel * kernel * 2
        layers.append(
            Layer(f"c{i}", "conv", (last,), (8, 8, channels), (weights,), macs, (kernel, kernel), (1, 1))
        )
        if branches and i and rng.random() < 0.7:
            layers.append(Layer(f"a{i}", "add", (last, f"c{i}"), (8, 8, channels)))
            last = f"a{i}"
        else:
            last = f"c{i}"
    for i in range(rng.randint(1, 2)):
        wide = rng.choice((10, 1000))
        size = layers[-1].output_elements * wide
        layers.append(Layer(f"f{i}", "fc", (last,), (wide,), (Tensor(f"fc{i}", (size,)),), size))
        last = f"f{i}"
    return Model("random", tuple(layers), samples_per_epoch=1000)


def random_constants(rng: random.Random) -> PaperConstants:
    threads = rng.randint(1, 3)
    return PaperConstants(
        muladd_s=1e-9,
        muladd_out_of_cache_s=rng.choice((1e-9, 4e-9)),
        act_s=1e-8,
        err_s=1e-8,
        cache_bytes=rng.choice((1e4, 1e6)),
        interference=tuple(1 + 0.5 * rng.random() * h for h in range(threads)),
        interference_out_of_cache=tuple(1 + rng.random() * h for h in range(threads)),
        latency_s=tuple(rng.choice((1e-7, 1e-5, 1e-3)) * (1 + h * rng.random()) for h in range(threads)),
        nic_bytes_per_s=rng.choice((1e7, 1e9)),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_agrees_with_brute_force(seed: int) -> None:
    """Every way to spread every layer, threads included, for every price of a byte."""
    rng = random.Random(seed)
    stages = stages_of(random_model(rng, branches=rng.random() < 0.5))
    c = random_constants(rng)
    workers = rng.choice((2, 3))
    problem = PartitionProblem(stages, c, workers)
    options = [
        [(p, r, h) for p, r in {ch.degrees for ch in chosen} for h in range(1, c.threads + 1)]
        for chosen in problem.choices
    ]
    if np.prod([len(o) for o in options]) > 20_000:
        return
    full = PartitionProblem(stages, c, workers)
    full.__dict__["choices"] = [
        [type(problem.choices[0][0])(p, r, h) for p, r, h in sorted(chosen)] for chosen in options
    ]
    request = PartitionRequest(machines=9)
    for replicas, servers in ((1, 1), (3, 2)):
        price = read_cost_s_per_byte(c, request, workers, replicas, servers)
        states = minimise(problem.order, problem.factors(price))[1]
        sample_s, read = problem.sample_s_and_read_bytes(states)
        every_cost = map(
            full.sample_s_and_read_bytes, itertools.product(*(range(len(o)) for o in full.choices))
        )
        best = min(seconds + price * read_bytes for seconds, read_bytes in every_cost)
        assert sample_s + price * read == pytest.approx(best, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_elimination_is_exact_on_any_graph(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    sizes = [rng.randint(1, 3) for _ in range(count)]
    table = np.random.default_rng(seed)
    factors = [((v,), table.random(sizes[v])) for v in range(count)]
    factors += [
        ((a, b), table.random((sizes[a], sizes[b])))
        for a, b in itertools.combinations(range(count), 2)
        if rng.random() < 0.6
    ]
    value, states = minimise(elimination_order(count, [scope for scope, _ in factors]), factors)
    cost = lambda s: sum(float(t[tuple(s[v] for v in scope)]) for scope, t in factors)  # noqa: E731
    least = min(cost(s) for s in itertools.product(*(range(n) for n in sizes)))
    assert value == pytest.approx(least)
    assert cost(states) == pytest.approx(least)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(3, 9),
    kernel=st.sampled_from((1, 3, 5)),
    dense=st.booleans(),
    pairs=st.tuples(*[st.sampled_from([(1, 1), (1, 2), (2, 1), (3, 1), (1, 3), (2, 2), (1, 4), (4, 1)])] * 2),
)
def test_mapping_leaves_the_fewest_remote_connections(
    rows: int, kernel: int, dense: bool, pairs: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    """Greedy with assignment against every permutation of segments over workers."""
    (p0, r0), (p1, r1) = pairs
    if max(p0, p1) > rows:
        return
    overlap = overlap_matrix(Geometry(rows, rows, kernel, 1, dense), p0, p1)
    workers = max(p0 * r0, p1 * r1)
    before = default_placement(p0, r0)

    def local(place: np.ndarray) -> float:
        meet = [(a % r0, a % r1) for a in range(np.lcm(r0, r1))]
        return sum(
            overlap[p, q] * (place[p, b] == before[q, a])
            for a, b in meet
            for p in range(p1)
            for q in range(p0)
        )

    ours = local(best_placement(workers, p1, r1, [(overlap, before)]))
    best = max(
        local(np.array(order).reshape(p1, r1)) for order in itertools.permutations(range(workers), p1 * r1)
    )
    assert ours == pytest.approx(best)


def test_traffic_of_stripes_and_features() -> None:
    same = default_placement(2, 1)
    halo = traffic_between(overlap_matrix(Geometry(8, 8, 3, 1, False), 2, 2), same, same)
    assert halo.forward == pytest.approx(1 / 8)  # one row of eight
    dense = traffic_between(overlap_matrix(Geometry(8, 8, 1, 1, True), 2, 2), same, same)
    assert (dense.forward, dense.backward) == (pytest.approx(0.5), pytest.approx(0.5))
    copies = default_placement(1, 2)
    replicated = traffic_between(overlap_matrix(Geometry(8, 8, 1, 1, True), 2, 1), same, copies)
    assert replicated.forward == pytest.approx(0.5)  # of every sample, on one of two workers
    apart = traffic_between(overlap_matrix(Geometry(8, 8, 1, 1, True), 1, 1), copies, copies)
    assert apart.forward == 0  # copies train their own samples


def test_machines_are_not_exceeded_and_plans_are_ranked() -> None:
    result = partition(load_model("mnist-adam"), HARDWARE, PartitionRequest(6))
    assert result.considered == len(result.plans)
    assert all(plan.machines <= 6 for plan in result.plans)
    times = [plan.epoch_s for plan in result.plans]
    assert times == sorted(times)
    best = result.plans[0]
    assert best.split.total_s == pytest.approx(best.epoch_s)
    assert best.worst_epoch_s >= best.epoch_s
    for choice, place in zip(best.spread.choices, best.spread.placements, strict=True):
        assert choice.threads <= result.constants.threads  # C2
        assert len(set(place.ravel().tolist())) == choice.partitions * choice.replications  # C3
        assert place.max() < best.workers


@pytest.mark.parametrize(
    "asked", [{}, {"workers": 2}, {"replicas": 3}, {"servers": 2}, {"max_workers": 2, "servers": 9}]
)
def test_every_shape_within_the_machines_is_looked_at(asked: dict[str, int], monkeypatch) -> None:
    monkeypatch.setattr(search, "REPORTED", 1)
    machines, names = 7, ("workers", "replicas", "servers")
    shapes = [
        shape
        for shape in itertools.product(range(1, machines), repeat=3)
        if shape[0] * shape[1] + shape[2] <= machines
        and shape[0] <= asked.get("max_workers", machines)
        and all(asked.get(name, count) == count for name, count in zip(names, shape, strict=True))
    ]
    seen: list[tuple[str, int, int]] = []

    def ask() -> list[tuple[int, int, int]]:
        result = partition(
            load_model("mnist-adam"),
            HARDWARE,
            PartitionRequest(machines, **asked),
            progress=lambda *said: seen.append(said),
        )
        return sorted((plan.workers, plan.replicas, plan.servers) for plan in result.plans)

    if shapes:
        assert ask() == shapes
        assert seen == [("ranking", done, len(shapes)) for done in range(len(shapes))]
    else:
        with pytest.raises(Infeasible, match="C1 binds"):
            ask()


def test_chain_is_optimal_and_a_branching_model_says_how_far() -> None:
    chain = partition(load_model("imagenet22k-adam"), HARDWARE, PartitionRequest(8, samples=1000))
    assert max(plan.gap for plan in chain.plans) < 1e-9
    branched = partition(load_model("googlenet"), HARDWARE, PartitionRequest(6, samples=1000))
    assert all(0 <= plan.gap + 1e-12 < 0.2 for plan in branched.plans)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (PartitionRequest(3, workers=2, replicas=2, servers=1), "--machines 5"),
        (PartitionRequest(1, servers=1), "--machines 2"),
        (PartitionRequest(1, replicas=2), "--machines 3"),
        (PartitionRequest(20, threads=99), "C2 binds"),
        (PartitionRequest(20, workers=5, max_workers=4), "--max-workers 5"),
    ],
)
def test_infeasible_names_the_constraint(request_: PartitionRequest, says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        partition(load_model("mnist-adam"), HARDWARE, request_)


def test_memory_binds() -> None:
    small = replace(HARDWARE, memory_bytes=1e6)
    with pytest.raises(Infeasible, match="memory binds"):
        partition(load_model("imagenet22k-adam"), small, PartitionRequest(3, samples=1000))


def test_bad_requests() -> None:
    with pytest.raises(BadInput, match="machines is 0"):
        PartitionRequest(0)
    with pytest.raises(BadInput, match="samples is -5"):
        PartitionRequest(machines=4, samples=-5)
    with pytest.raises(BadInput, match="reading is 2"):
        PartitionRequest(5, reading=2)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from planner.report.output import Format
    from planner.servers.cli import partition as command

    usual: dict[str, Any] = {
        "model": "mnist-adam",
        "hardware": HARDWARE.name,
        "runner_ups": 7,
        "network": "baseline",
    }
    usual |= {"machines": 6, "output": None, "html": None, "quiet": True, "no_color": False}
    command(**usual, simulated=False, format=Format.table)
    text = capsys.readouterr().out
    assert "weight updates" in text
    assert "configurations looked at" in text
    command(**usual, simulated=True, format=Format.json)
    data = json.loads(capsys.readouterr().out)
    assert data["considered"] == len(data["plans"])
    assert data["simulated"]["samples_per_s"] == pytest.approx(data["best"]["samples_per_s"], rel=0.2)
    assert sum(data["best"]["split_s"].values()) == pytest.approx(data["best"]["epoch_s"])
    assert [layer["layer"] for layer in data["best"]["layers"]] == ["conv0", "conv1", "fc0", "fc1", "fc2"]
