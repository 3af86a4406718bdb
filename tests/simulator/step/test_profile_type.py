"""The profile type refuses what no simulator could run, and knows its graph."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

OPS = (
    Op("w/down", DOWNLINK, 0, 100, (), 0),
    Op("forward", WORKER, deps=(0,)),
    Op("backward", WORKER, deps=(1,)),
    Op("w/up", UPLINK, 0, 100, (2,), 0),
    Op("w/update", PS, 0, 0, (3,), 0),
)


def build(ops=OPS, durations=(0.0, 1.0, 2.0, 0.0, 0.1), **about):
    return Profile.build(ops, durations, **({"model": "m", "batch": 1, "tensors": ("w",)} | about))


def test_profile_knows_its_graph():
    profile = build()
    assert (profile.ops, profile.steps) == (5, 1)
    assert profile.topological_order().tolist() == [0, 1, 2, 3, 4]
    assert profile.is_transfer.tolist() == [True, False, False, True, False]
    assert profile.deps(3).tolist() == [2]
    start, index = profile.dependents()
    assert [index[start[op] : start[op + 1]].tolist() for op in range(5)] == [[1], [2], [3], [4], []]


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        build().durations_s[0, 0] = 1.0


def changed(index, **fields):
    ops = list(OPS)
    old = {
        name: getattr(ops[index], name) for name in ("name", "resource", "server", "bytes", "deps", "tensor")
    }
    ops[index] = Op(**(old | fields))
    return ops


@pytest.mark.parametrize(
    ("ops", "about", "message"),
    [
        ((), {"durations": np.zeros((1, 0))}, "at least one op"),
        (OPS, {"batch": 0}, "a batch of at least 1 and servers of at least 0, not 0 and 1"),
        (OPS, {"durations": (1.0, 2.0)}, r"durations are \(1, 2\); they must be steps x 5 ops"),
        (OPS, {"durations": (0.0, -1.0, 2.0, 0.0, 0.1)}, "'forward' lasts -1.0 s in step 0"),
        (OPS, {"durations": (0.0, np.nan, 2.0, 0.0, 0.1)}, "'forward' lasts nan s in step 0"),
        (changed(1, name="w/up"), {}, "'w/up' stands twice"),
        (changed(1, resource=7), {}, "'forward' uses an unknown resource"),
        (changed(3, server=1), {}, "'w/up' is on server 1 of 1"),
        (changed(3, bytes=0), {}, "'w/up' has 0 bytes"),
        (changed(1, deps=(9,)), {}, "points outside"),
        (changed(1, deps=(2,)), {}, "in a cycle through 'forward'"),
        (changed(3, tensor=4), {}, "tensor 4 of 1"),
        (OPS, {"order": [[0, 1]]}, r"order is \(1, 2\)"),
    ],
)
def test_unrunnable_profile_is_refused(ops, about, message):
    durations = about.pop("durations", (0.0, 1.0, 2.0, 0.0, 0.1))
    with pytest.raises(BadInput, match=message):
        build(ops, durations, **about)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": np.zeros(4, np.int64)}, "bytes has 4 entries for 5 ops"),
        ({"dep_start": np.array([0, 0, 1], np.int32)}, "dep_start must have 6 entries"),
        ({"dep_start": np.array([0, 3, 1, 2, 3, 4], np.int32)}, "dep_start must not decrease"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    with pytest.raises(BadInput, match=message):
        replace(build(), **change)


@given(st.data())
def test_topological_order_respects_every_dependency(data):
    n = data.draw(st.integers(1, 30))
    names = data.draw(st.permutations(range(n)))  # where op k of a made-up order stands in the profile
    deps = {
        names[k]: tuple(names[i] for i in data.draw(st.sets(st.integers(0, k - 1), max_size=4))) if k else ()
        for k in range(n)
    }
    profile = build([Op(f"op{i}", WORKER, deps=deps[i]) for i in range(n)], np.ones((1, n)), tensors=())
    place = {op: rank for rank, op in enumerate(profile.topological_order().tolist())}
    assert sorted(place) == list(range(n))
    assert all(place[dep] < place[op] for op in range(n) for dep in deps[op])
