"""Merging chains changes nothing: with numbers that add without rounding, results are equal to the bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import policies, profiles, training_steps

from planner.cluster import Cluster
from planner.policy import Fifo
from planner.profile import DOWNLINK, UPLINK, WORKER, Op, Profile
from planner.simulator.merge import merge_chains
from planner.simulator.run import RunOptions, run


def rounded_to_eighths(profile: Profile) -> Profile:
    ops = [
        Op(
            name,
            int(profile.resource[i]),
            int(profile.server[i]),
            int(profile.bytes[i]),
            tuple(profile.deps(i).tolist()),
            int(profile.tensor[i]),
        )
        for i, name in enumerate(profile.names)
    ]
    return Profile.build(
        ops,
        np.round(profile.durations_s * 8) / 8,
        model="dyadic",
        batch=1,
        servers=profile.servers,
        tensors=profile.tensors,
        order=profile.order,
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_merging_changes_nothing(data: st.DataObject) -> None:
    servers, workers = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    profile = rounded_to_eighths(data.draw(st.one_of(profiles(servers), training_steps(servers))))
    merged = merge_chains(profile)
    cluster = Cluster.uniform(workers, servers, 8.0)
    policy = data.draw(policies(profile).filter(lambda policy: policy.kind != "blocks"))
    options = RunOptions(steps=5, seed=data.draw(st.integers(0, 5)), until="all")
    whole, short = (run(p, cluster, policy, "async", options) for p in (profile, merged))
    for name in ("step_starts_s", "step_ends_s", "staleness"):
        for a, b in zip(getattr(whole, name), getattr(short, name), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(whole.worker_busy_s, short.worker_busy_s, rtol=1e-12)
    np.testing.assert_array_equal(whole.link_bytes, short.link_bytes)


def chain(*extra: Op) -> Profile:
    ops = [
        Op("down", DOWNLINK, 0, 8),
        Op("a", WORKER, deps=(0,)),
        Op("b", WORKER, deps=(1,)),
        Op("c", WORKER, deps=(2,)),
        Op("up", UPLINK, 0, 8, (3,)),
        *extra,
    ]
    return Profile.build(ops, [[0, 1, 2, 4, 0, *(0.5 for _ in extra)]], model="chain", batch=1)


def test_a_pure_chain_becomes_one_op() -> None:
    merged = merge_chains(chain())
    assert merged.names == ("down", "a", "up")
    assert merged.durations_s.tolist() == [[0, 7, 0]]


def test_an_op_beside_the_chain_keeps_it_apart() -> None:
    profile = chain(Op("beside", WORKER, deps=(0,)))
    assert merge_chains(profile) is profile
    # And rightly so: "beside" runs between a and b.
    timeline = run(
        profile, Cluster.uniform(1, 1, 8.0), Fifo(), "async", RunOptions(steps=1, timeline=True)
    ).timeline
    assert timeline is not None
    assert [profile.names[op] for op in timeline["op"]] == ["down", "a", "beside", "b", "c", "up"]
