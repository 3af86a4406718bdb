"""What must hold of any run, read off its timeline."""

from __future__ import annotations

import itertools
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import Plan, plans

from planner.simulator.run import RunResult, run
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

CLOSE = 1e-9


def timed(plan: Plan) -> RunResult:
    options = replace(plan.options, timeline=True, until="all", max_events=None, max_time_s=float("inf"))
    return run(plan.profile, plan.cluster, plan.policy, plan.mode, options)


def by_step(result: RunResult) -> dict[tuple[int, int], list[np.void]]:
    rows: dict[tuple[int, int], list[np.void]] = defaultdict(list)
    assert result.timeline is not None
    for row in result.timeline:
        rows[int(row["worker"]), int(row["step"])].append(row)
    return rows


@settings(max_examples=80, deadline=None)
@given(plans())
def test_every_op_runs_once_after_its_dependencies_and_delivers_its_bytes(plan: Plan) -> None:
    profile = plan.profile
    result = timed(plan)
    ends = result.timeline["end_s"]  # type: ignore[index]
    assert (np.diff(ends) >= 0).all(), "time goes back"
    for (worker, step), rows in by_step(result).items():
        started = result.step_starts_s[worker][step]
        done: dict[int, float] = {}
        sent: dict[int, float] = defaultdict(float)
        first: dict[int, float] = {}
        for row in rows:
            op = int(row["op"])
            first.setdefault(op, float(row["start_s"]))
            done[op] = float(row["end_s"])
            sent[op] += float(row["bytes"])
            assert row["start_s"] <= row["flow_s"] <= row["end_s"]
        assert set(done) == set(range(profile.ops))
        assert result.step_ends_s[worker][step] == max(done.values())
        for op in range(profile.ops):
            assert first[op] >= max((done[dep] for dep in profile.deps(op).tolist()), default=started)
            assert sent[op] == (profile.bytes[op] if profile.is_transfer[op] else 0)
        computed = [row for row in rows if row["resource"] in (WORKER, PS)]
        counts = np.bincount([row["op"] for row in computed], minlength=profile.ops)
        assert counts.max(initial=0) <= 1


@settings(max_examples=80, deadline=None)
@given(plans())
def test_lane_runs_one_chunk_at_a_time_and_never_idles_with_work(plan: Plan) -> None:
    profile, result = plan.profile, timed(plan)
    lanes: dict[tuple[int, int, int], list[np.void]] = defaultdict(list)
    for row in result.timeline:  # type: ignore[union-attr]
        lanes[int(row["worker"]), int(row["resource"]), int(row["server"])].append(row)
    for rows in lanes.values():
        for before, after in itertools.pairwise(rows):
            assert before["end_s"] <= after["start_s"]
    if plan.mode == "sync" or plan.options.server_cores or plan.policy.kind == "blocks":
        return  # there, ops may wait for other workers, cores, or the rest of their block
    for (worker, step), rows in by_step(result).items():
        done: dict[int, float] = {}
        first: dict[int, float] = {}
        for row in rows:
            first.setdefault(int(row["op"]), float(row["start_s"]))
            done[int(row["op"])] = float(row["end_s"])
        for op in range(profile.ops):
            ready = max(
                (done[dep] for dep in profile.deps(op).tolist()), default=result.step_starts_s[worker][step]
            )
            resource = int(profile.resource[op])
            lane = lanes[worker, resource, -1 if resource == WORKER else int(profile.server[op])]
            busy = sum(max(0.0, min(row["end_s"], first[op]) - max(row["start_s"], ready)) for row in lane)
            assert abs(busy - (first[op] - ready)) <= CLOSE * max(1.0, first[op])


@settings(max_examples=80, deadline=None)
@given(plans(max_workers=4))
def test_no_capacity_is_exceeded(plan: Plan) -> None:
    """In no interval does more flow through a NIC than it can carry, nor through a flow than its limit."""
    cluster, result = plan.cluster, timed(plan)
    rows = result.timeline[np.isin(result.timeline["resource"], (DOWNLINK, UPLINK))]  # type: ignore[index]
    capacities: dict[object, float] = {}
    through: dict[object, list[np.void]] = defaultdict(list)
    for row in rows:
        here, there = cluster.worker_nodes[row["worker"]], cluster.server_nodes[row["server"]]
        if here == there:
            continue
        sender, receiver = (there, here) if row["resource"] == DOWNLINK else (here, there)
        flow = (int(row["worker"]), int(row["resource"]), int(row["server"]))
        for key, capacity in (
            (("out", sender), cluster.nodes[sender].egress_bytes_per_s),
            (("in", receiver), cluster.nodes[receiver].ingress_bytes_per_s),
            (flow, cluster.flow_bytes_per_s),
        ):
            capacities[key] = capacity
            through[key].append(row)
    for key, on_link in through.items():
        starts = np.array([row["flow_s"] for row in on_link])
        ends = np.array([row["end_s"] for row in on_link])
        size = np.array([row["bytes"] for row in on_link])
        for begin in np.unique(starts):
            inside = starts >= begin
            order = np.argsort(ends[inside], kind="stable")
            carried = np.cumsum(size[inside][order])
            allowed = capacities[key] * (ends[inside][order] - begin)
            assert (carried <= allowed * (1 + CLOSE) + 1e-6).all()


def reordered(profile: Profile, place: list[int]) -> Profile:
    """The same profile with op i at place[i] in the file."""
    ops: list[Op] = [Op("", WORKER)] * profile.ops
    for i, new in enumerate(place):
        ops[new] = Op(
            profile.names[i],
            int(profile.resource[i]),
            int(profile.server[i]),
            int(profile.bytes[i]),
            tuple(place[dep] for dep in profile.deps(i).tolist()),
            int(profile.tensor[i]),
        )
    back = np.argsort(place)
    return Profile.build(
        ops,
        profile.durations_s[:, back],
        model=profile.model,
        batch=1,
        servers=profile.servers,
        tensors=profile.tensors,
        order=None if profile.order is None else profile.order[:, back],
    )


@settings(max_examples=80, deadline=None)
@given(plans(), st.data())
def test_order_of_ops_in_the_file_does_not_matter(plan: Plan, data: st.DataObject) -> None:
    other = reordered(plan.profile, data.draw(st.permutations(range(plan.profile.ops))))
    a, b = (run(p, plan.cluster, plan.policy, plan.mode, plan.options) for p in (plan.profile, other))
    for ours, theirs in zip(a.step_ends_s, b.step_ends_s, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(a.link_bytes, b.link_bytes)


@settings(max_examples=5, deadline=None)
@given(plans())
def test_threads_do_not_matter(plan: Plan) -> None:
    def one(number: int) -> list[float]:
        options = replace(plan.options, run=number)
        result = run(plan.profile, plan.cluster, plan.policy, plan.mode, options)
        return [float(end) for ends in result.step_ends_s for end in ends]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(12))) == [one(number) for number in range(12)]
