"""The compiled engine does what the reference does: same ops, same workers, same times, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from random_plans import (
    Plan,
    fast_plans,
    joint_plans,
    nothing_takes_time,
    plans,
    unison_plans,
    uploads_at_once,
)

from planner.simulator import lockstep
from planner.simulator.cluster import Cluster, Node
from planner.simulator.inputs import prepare_inputs
from planner.simulator.policy import Fifo, Multiplexed, Sliced, mode_joins
from planner.simulator.run import RunOptions, RunResult, run
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def assert_equal(engine: RunResult, reference: RunResult) -> None:
    for name in ("step_starts_s", "step_ends_s", "staleness"):
        for ours, theirs in zip(getattr(engine, name), getattr(reference, name), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    for name in ("end_s", "measured_from_s", "stopped"):
        assert getattr(engine, name) == getattr(reference, name), name
    for name in ("worker_busy_s", "ps_busy_s", "host_busy_s", "link_bytes"):
        np.testing.assert_allclose(
            getattr(engine, name), getattr(reference, name), rtol=1e-9, atol=1e-9, err_msg=name
        )
    # Run-ahead does not order ends that nobody sees: at the instant of the cut they may count or not.
    assert reference.timeline is not None
    at_the_cut = int((reference.timeline["end_s"] == reference.end_s).sum())
    unseen = at_the_cut if engine.path.startswith("run-ahead") else 0
    assert abs(engine.events - reference.events) <= unseen


@settings(max_examples=300, deadline=None)
@given(plans())
@example(uploads_at_once())
def test_engine_equals_reference(plan: Plan) -> None:
    assert_equal_on_all_paths(plan)


@settings(max_examples=400, deadline=None)
@given(joint_plans())
def test_engine_equals_reference_with_joint_ops_and_any_ends(plan: Plan) -> None:
    assert_equal_on_all_paths(plan)


def assert_equal_on_all_paths(plan: Plan) -> None:
    parts = (plan.profile, plan.cluster, plan.policy, plan.mode)
    with_timeline = replace(plan.options, timeline=True)
    reference = run(*parts, with_timeline, joins=plan.joins, path="reference")
    engine = run(*parts, with_timeline, joins=plan.joins)
    event(engine.path)
    assert_equal(engine, reference)
    assert engine.timeline is not None
    assert reference.timeline is not None
    np.testing.assert_array_equal(engine.timeline, reference.timeline)
    # Without a timeline a faster path may run; it must not be seen.
    engine = run(*parts, replace(plan.options, timeline=False), joins=plan.joins)
    event(engine.path)
    assert_equal(engine, reference)


@settings(max_examples=300, deadline=None)
@given(fast_plans())
@example(nothing_takes_time())
def test_fast_path_equals_the_reference(plan: Plan) -> None:
    check_path(plan, "lazy")


@settings(max_examples=500, deadline=None)
@given(unison_plans())
def test_workers_in_unison_equal_the_reference(plan: Plan) -> None:
    reference = check_path(plan, "unison")
    joins = mode_joins(plan.profile, plan.mode)
    without_engine = lockstep.run(
        prepare_inputs(plan.profile, plan.cluster, plan.policy, joins, plan.options)
    )
    assert without_engine is not None
    assert_equal(without_engine, reference)


def check_path(plan: Plan, path: str) -> RunResult:
    """The engine takes this path for the plan and does what the reference does. Returns the reference run."""
    parts = (plan.profile, plan.cluster, plan.policy, plan.mode)
    engine = run(*parts, plan.options)
    assert engine.path.startswith(path)
    reference = run(*parts, replace(plan.options, timeline=True), path="reference")
    assert_equal(engine, reference)
    return reference


def training_step(
    *, servers: int = 1, tensors: int = 12, ends: bool = False, general: bool = False
) -> Profile:
    """A chain of layers; `ends`: with an op before everything and one after; `general`: no fast path."""
    ops: list[Op] = [Op("begin", WORKER)] if ends else []
    first = len(ops)
    ops += [Op(f"d{i}", DOWNLINK, i % servers, 1000 * (i + 1), (0,) * ends, tensor=i) for i in range(tensors)]
    for i in range(tensors):
        ops.append(Op(f"f{i}", WORKER, deps=(first + i, *((len(ops) - 1,) if i else ()))))
    updates: list[int] = []
    last = len(ops) - 1
    for i in reversed(range(tensors)):
        back = len(ops)
        ops.append(Op(f"b{i}", WORKER, deps=(last,)))
        ops.append(Op(f"u{i}", UPLINK, i % servers, 1000 * (i + 1), (back,), tensor=i))
        ops.append(Op(f"p{i}", PS, i % servers, deps=(back + 1,), tensor=i))
        updates.append(back + 2)
        last = back
    if ends:
        ops.append(Op("end", WORKER, deps=tuple(updates)))
    if general:  # computation that waits for the first update, while there is more to compute
        ops.append(Op("count", WORKER, deps=(updates[0],)))
    rng = np.random.default_rng(3)
    durations = rng.gamma(2.0, 1e-3, (5, len(ops)))
    names = [f"t{i}" for i in range(tensors)]
    return Profile.build(ops, durations, model="m", batch=1, servers=servers, tensors=names)


BESIDE = Cluster((Node(1e6, 1e6),) * 4, (0, 1, 2, 3), (0, 1))


@pytest.mark.parametrize(
    ("profile", "cluster", "path"),
    [
        (training_step(), Cluster.uniform(3, 1, 1e6), "lazy virtual time"),
        (training_step(ends=True), Cluster.uniform(3, 1, 1e6), "lazy virtual time"),
        (training_step(servers=2, ends=True), BESIDE, "lazy max-min"),
        (training_step(general=True), Cluster.uniform(3, 1, 1e6), "run-ahead virtual time"),
        (training_step(servers=3, general=True), Cluster.uniform(5, 3, 1e6), "run-ahead max-min"),
        # More servers than the sets of max_min.hpp hold: rates are filled anew.
        (training_step(servers=66, tensors=70), Cluster.uniform(2, 66, 1e6), "lazy max-min"),
        # Many workers: a lane's past is skipped in strides.
        (training_step(), Cluster.uniform(40, 1, 1e6), "lazy virtual time"),
        (training_step(servers=4), Cluster.uniform(20, 4, 1e6), "lazy max-min"),
    ],
)
def test_engine_path_of_a_plan_equals_the_reference(profile: Profile, cluster: Cluster, path: str) -> None:
    options = RunOptions(steps=6, warmup_steps=1, fairness_sigma=0.2)
    engine = run(profile, cluster, Multiplexed(window_bytes=2500), "async", options)
    assert engine.path == path
    reference = run(
        profile,
        cluster,
        Multiplexed(window_bytes=2500),
        "async",
        replace(options, timeline=True),
        path="reference",
    )
    assert_equal(engine, reference)


def plain_profile(ops: list[tuple[object, ...]], durations: list[float], servers: int) -> Profile:
    made = [Op(*op) for op in ops]  # type: ignore[arg-type]
    return Profile.build(made, [durations], model="m", batch=1, servers=servers, tensors=[])


OPENED = [
    ("open", WORKER),
    ("d", DOWNLINK, 0, 100, (0,)),
    ("loss", WORKER, -1, 0, (1,)),
    ("u", UPLINK, 0, 100, (2,)),
]
# Instant downloads from the server beside, and computation that takes no time and waits for none of them.
INSTANT = [
    ("d0", DOWNLINK, 0, 100, ()),
    ("d1", DOWNLINK, 1, 100, ()),
    ("x", WORKER, -1, 0, ()),
    ("z", WORKER, -1, 0, (2,)),
    ("y", WORKER, -1, 0, (0,)),
    ("loss", WORKER, -1, 0, (3, 1, 0)),
    ("q", WORKER, -1, 0, (4, 1)),
    ("u", UPLINK, 1, 100, (5,)),
    ("l2", WORKER, -1, 0, (0, 5)),
    ("p", PS, 1, 0, (7,)),
]
INSTANT_OPENED = [
    ("open", WORKER, -1, 0, ()),
    *((*what, tuple(dep + 1 for dep in deps) or (0,)) for *what, deps in INSTANT),
]
LATE = [
    ("d", DOWNLINK, 0, 100),
    ("c0", WORKER, -1, 0, (0,)),
    ("u0", UPLINK, 0, 300, (1,)),
    ("c1", WORKER, -1, 0, (1,)),
    ("c2", WORKER, -1, 0, (3,)),
    ("c3", WORKER, -1, 0, (4,)),
    ("u1", UPLINK, 1, 100, (5,)),
    ("late", WORKER, -1, 0, (2,)),
]
INSTANT_S = [0.0, 0.0, 0.0, 3.0, 1.0, 1.0, 5.0, 0.0, 1.0, 20.0]
ONE_BESIDE = Cluster((Node(100.0, 100.0),) * 2, (0,), (0, 1))


@pytest.mark.parametrize(
    ("ops", "durations", "cluster", "options"),
    [
        # What an opening lets go besides downloads and computation has no place on the fast path.
        ([*OPENED, ("p", PS, 0, 0, (0,))], [1, 0, 1, 0, 9], Cluster.uniform(1, 1, 100.0), {}),
        ([*OPENED, ("p", PS, 0, 0, (0, 3))], [1, 0, 1, 0, 9], Cluster.uniform(1, 1, 100.0), {}),
        ([*OPENED[:3], ("u", UPLINK, 0, 100, (2, 0))], [1, 0, 1, 0], Cluster.uniform(1, 1, 100.0), {}),
        ([*OPENED, ("v", UPLINK, 1, 500, (0,))], [1, 0, 1, 0, 0], Cluster.uniform(1, 2, 100.0), {}),
        # Looking at the end of the warm-up must not settle what ran ahead.
        (
            LATE,
            [0, 1, 0, 10, 1, 1, 0, 5],
            Cluster.uniform(2, 2, 100.0),
            {"warmup_steps": 1, "until": "all", "start_offsets_s": (0.0, 2.0)},
        ),
        (INSTANT, INSTANT_S, ONE_BESIDE, {}),
        (INSTANT_OPENED, [1.0, *INSTANT_S], ONE_BESIDE, {}),
    ],
)
def test_unusual_steps_equal_the_reference(
    ops: list[tuple[object, ...]], durations: list[float], cluster: Cluster, options: dict[str, object]
) -> None:
    parts = (plain_profile(ops, durations, cluster.servers), cluster, Fifo(), "async")
    plan = RunOptions(steps=3, **options)  # type: ignore[arg-type]
    engine = run(*parts, plan)  # type: ignore[arg-type]
    assert_equal(engine, run(*parts, replace(plan, timeline=True), path="reference"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("profile", "cluster", "offsets"),
    [
        (
            plain_profile(
                [
                    *((f"d{s}", DOWNLINK, s, 1000) for s in range(3)),
                    ("c", WORKER, -1, 0, (0, 1, 2)),
                    ("u", UPLINK, 0, 10, (3,)),
                ],
                [0, 0, 0, 1, 0],
                3,
            ),
            Cluster(
                tuple(
                    Node(rate, rate) for rate in (356.3160354232621, 77.3774618976614, 77.37746189766139, 1e6)
                ),
                (0,),
                (1, 2, 3),
            ),
            (0.0,),
        ),
        (
            plain_profile(
                [
                    ("d0", DOWNLINK, 0, 10000),
                    ("d1", DOWNLINK, 1, 100000),
                    ("c", WORKER, -1, 0, (0, 1)),
                    ("u", UPLINK, 0, 10, (2,)),
                ],
                [0, 0, 1, 0],
                2,
            ),
            Cluster(
                tuple(
                    Node(rate, rate)
                    for rate in (89.40645665358959, 2 * 89.40645665358957, 1e6, 1e5, 576.757484014107)
                ),
                (0, 1, 2),
                (3, 4),
            ),
            (0.0, 300.0, 250.0),
        ),
    ],
)
def test_shares_that_tie_but_for_rounding_are_taken_in_order(
    profile: Profile, cluster: Cluster, offsets: tuple[float, ...]
) -> None:
    options = RunOptions(steps=1, until="all", start_offsets_s=offsets, timeline=True)
    reference = run(profile, cluster, Fifo(), "async", options, path="reference")
    engine = run(profile, cluster, Fifo(), "async", options)
    np.testing.assert_array_equal(engine.timeline, reference.timeline)  # type: ignore[arg-type]
    assert_equal(run(profile, cluster, Fifo(), "async", replace(options, timeline=False)), reference)


def test_many_slices_round_and_nothing_is_seen() -> None:
    # Half a million additions to a target would round by more than one does; sums of bytes are exact.
    ops = [Op("d", DOWNLINK, 0, 1), Op("c", WORKER, -1, 0, (0,)), Op("u", UPLINK, 0, 10**9, (1,))]
    profile = Profile.build(ops, [[0.0, 1.0, 0.0]], model="m", batch=1, servers=1, tensors=[])
    parts = (profile, Cluster.uniform(2, 1, 1e9), Sliced(slice_bytes=1024, priorities={}), "async")
    options = RunOptions(seed=1, steps=1, until="all", fairness_sigma=0.3)
    fast = run(*parts, options)  # type: ignore[arg-type]
    full = run(*parts, replace(options, max_events=10**12))  # type: ignore[arg-type]
    assert (fast.path, full.path) == ("lazy virtual time", "virtual time")
    assert [ends.tolist() for ends in fast.step_ends_s] == [ends.tolist() for ends in full.step_ends_s]


def test_start_at_minus_zero_is_a_start_at_zero() -> None:
    profile = Profile.build([Op("d", DOWNLINK, 0, 10)], [[0.0]], model="m", batch=1, servers=1, tensors=[])
    parts = (profile, Cluster.uniform(2, 1, 1.0), Fifo(), "async")
    ends = [
        [
            worker.tolist()
            for worker in run(*parts, RunOptions(steps=2, start_offsets_s=(at, 0.5))).step_ends_s
        ]  # type: ignore[arg-type]
        for at in (-0.0, 0.0)
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("k", "c", "start_s"), [(3, 9.153001930085514, 0.0), (2, 0.7, 60.02088301322496)])
def test_downloads_that_end_together_arrive_as_in_the_reference(k: int, c: float, start_s: float) -> None:
    # By rounding, the end on server 1 comes first and calls forth the one on server 0 at the same instant.
    ops = [
        Op("d0", DOWNLINK, 0, 20 * k),
        Op("d1", DOWNLINK, 1, 20),
        Op("loss", WORKER, -1, 0, (0, 1)),
        Op("up", UPLINK, 0, 10, (2,)),
        Op("z", WORKER, -1, 0, (1,)),
    ]
    profile = Profile.build(ops, [[0.0, 0.0, 1.0, 0.0, 10.0]], model="m", batch=1, servers=2, tensors=[])
    cluster = Cluster((Node(100.0, c + k * c), Node(100.0, 100.0), Node(c, 100.0)), (0,), (1, 2))
    options = RunOptions(steps=1, start_offsets_s=(start_s,), timeline=True)
    engine = run(profile, cluster, Fifo(), "async", replace(options, timeline=False))
    assert engine.path == "lazy max-min"
    assert_equal(engine, run(profile, cluster, Fifo(), "async", options, path="reference"))
