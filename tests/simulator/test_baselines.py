"""The simpler models against their closed forms."""

from __future__ import annotations

import pytest

from planner.servers.validation.testbed import (
    OneWorker,
    cynthia_samples_per_s,
    ideal_samples_per_s,
    measure_one_worker,
    queueing_samples_per_s,
)
from planner.simulator.cluster import Cluster
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile


def overlapping(servers: int = 1) -> Profile:
    """Two layers; the second download overlaps with the first layer's computation, and so on back."""
    last = servers - 1
    ops = [
        Op("down1", DOWNLINK, 0, 100),
        Op("down2", DOWNLINK, last, 300),
        Op("forward1", WORKER, deps=(0,)),
        Op("forward2", WORKER, deps=(1, 2)),
        Op("backward2", WORKER, deps=(3,)),
        Op("backward1", WORKER, deps=(4,)),
        Op("up2", UPLINK, last, 300, (4,)),
        Op("up1", UPLINK, 0, 100, (5,)),
        Op("update2", PS, last, deps=(6,)),
        Op("update1", PS, 0, deps=(7,)),
    ]
    durations = [0, 0, 2, 1, 2, 4, 0, 0, 0.5, 0.5]
    return Profile.build(ops, [durations], order=[range(10)], model="m", batch=10, servers=servers)


def test_phases_of_a_single_worker() -> None:
    result = measure_one_worker(overlapping(), Cluster.uniform(8, 1, 100.0))
    # Downloads to 4; forward 1 from 1 to 3, forward 2 to 5, backward 2 to 7, upload 2 to 10 and 1 from 11.
    assert result.downlink_s == pytest.approx(4)
    assert result.compute_s == pytest.approx(3)
    assert result.uplink_s == pytest.approx(5)
    assert result.update_s == pytest.approx(0.5)
    assert result.step_s == pytest.approx(12.5)
    assert result.busy_s == pytest.approx(9)
    assert result.transfer_s == pytest.approx(4)
    assert result.network_use == pytest.approx(4 / 12.5)


def test_worker_nic_counts_with_two_servers() -> None:
    result = measure_one_worker(overlapping(2), Cluster.uniform(8, 2, 100.0))
    assert result.transfer_s == pytest.approx(4)


def balanced(demand_s: float, think_s: float = 0.0) -> OneWorker:
    return OneWorker(
        batch=1,
        step_s=2 * demand_s + think_s,
        downlink_s=demand_s,
        compute_s=think_s,
        uplink_s=demand_s,
        update_s=0.0,
        busy_s=think_s,
        transfer_s=demand_s,
        network_use=demand_s / (2 * demand_s + think_s),
    )


@pytest.mark.parametrize("workers", [1, 2, 5, 50])
def test_balanced_network_of_two_queues(workers: int) -> None:
    """Without think time n customers at k equal queues give n / (D * (n + k - 1))."""
    assert queueing_samples_per_s(balanced(0.25), workers) == pytest.approx(workers / (0.25 * (workers + 1)))


def test_queueing_lies_between_one_worker_and_the_busiest_queue() -> None:
    result = balanced(1.0, think_s=4.0)
    assert (
        queueing_samples_per_s(result, 1)
        == pytest.approx(ideal_samples_per_s(result, 1))
        == pytest.approx(1 / 6)
    )
    values = [queueing_samples_per_s(result, workers) for workers in range(1, 100)]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(1.0, rel=0.02)


def test_cynthia_before_and_after_saturation() -> None:
    result = balanced(1.0, think_s=6.0)  # U1 = 1 / 8
    assert cynthia_samples_per_s(result, 4) == pytest.approx(4 / (6 + 2))
    assert cynthia_samples_per_s(result, 16) == pytest.approx(16 / (6 * 2 + 2))
