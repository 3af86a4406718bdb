import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.placement import RULES, move_to_servers
from planner.servers.synthesis import profile_for
from planner.simulator.step import DOWNLINK, PS, UPLINK


@pytest.fixture(scope="module")
def vgg11():
    return profile_for(load_model("vgg11"), 8, load_hardware("p3.2xlarge"))


@given(servers=st.integers(1, 5), rule=st.sampled_from(sorted(RULES)))
@settings(max_examples=25, deadline=None)
def test_moving_keeps_bytes_and_computation(vgg11, servers, rule):
    moved = move_to_servers(vgg11, servers, rule)
    assert moved.servers == servers
    for resource in (DOWNLINK, UPLINK):
        assert moved.bytes[moved.resource == resource].sum() == vgg11.bytes[vgg11.resource == resource].sum()
    np.testing.assert_allclose(moved.durations_s.sum(axis=1), vgg11.durations_s.sum(axis=1), rtol=1e-12)
    for op in np.flatnonzero(moved.resource == PS):  # an update waits for its own part of the gradient only
        ups = [dep for dep in moved.deps(int(op)) if moved.resource[dep] == UPLINK]
        assert [moved.tensor[up] for up in ups] == [moved.tensor[op]]
        assert {moved.server[up] for up in ups} == {moved.server[op]}


def test_greedy_split_of_vgg11(vgg11):
    """Li et al.: 407 and 100 MB. A recorded profile shows only what is transferred, so the 8 bytes of
    global_step that TensorFlow places first are not counted and the servers may change names."""
    moved = move_to_servers(vgg11, 2, "greedy")
    down = moved.resource == DOWNLINK
    split = sorted(moved.bytes[down & (moved.server == s)].sum() / 2**20 for s in (0, 1))
    assert [round(part, 2) for part in split] == [100.21, 406.64]
