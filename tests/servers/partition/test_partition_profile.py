"""A replica of several workers, simulated."""

from __future__ import annotations

import pytest

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.partition.replica import replica_cluster, replica_profile
from planner.servers.partition.search import PartitionPlan, PartitionRequest, partition
from planner.simulator.policy import Fifo
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK

HARDWARE = load_hardware("private-2xe5-2450-10gbe")


def plan_of(model: str, workers: int, replicas: int, servers: int) -> tuple[PartitionPlan, object]:
    request = PartitionRequest(
        workers * replicas + servers, workers=workers, replicas=replicas, servers=servers
    )
    result = partition(load_model(model), HARDWARE, request)
    return result.plans[0], result.constants


def simulated(plan: PartitionPlan, constants: object, writes: bool, apart_s: float = 0.0) -> float:
    """Samples a second of all replicas, which start `apart_s` after one another."""
    profile = replica_profile(plan, writes=writes)
    offsets = tuple(apart_s * replica for replica in range(plan.replicas))
    options = RunOptions(steps=12, until="all", start_offsets_s=offsets)
    result = run(profile, replica_cluster(plan, constants), Fifo(), "async", options)
    pairs = zip(result.step_starts_s, result.step_ends_s, strict=True)
    return sum(len(ends) * profile.batch / float(ends[-1] - starts[0]) for starts, ends in pairs)


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 2), (4, 2), (4, 4)])
def test_one_replica_runs_as_the_analytical_model_says(workers: int, servers: int) -> None:
    plan, constants = plan_of("imagenet22k-adam", workers, 1, servers)
    assert simulated(plan, constants, writes=False) == pytest.approx(plan.samples_per_s, rel=1e-6)


def test_replicas_that_read_together_wait_and_those_apart_do_not() -> None:
    """The paper's equation 12 overlaps nothing, which is what replicas in step with each other do; apart they
    compute while others read."""
    plan, constants = plan_of("imagenet22k-adam", 4, 4, 4)
    together = simulated(plan, constants, writes=False)
    assert together == pytest.approx(plan.samples_per_s, rel=1e-6)
    apart = simulated(plan, constants, writes=False, apart_s=plan.split.total_s / 1e5)
    assert apart > 1.02 * together
    assert simulated(plan, constants, writes=True) > 0.9 * together


def test_every_worker_reads_its_own_share() -> None:
    plan, _ = plan_of("imagenet22k-adam", 4, 1, 4)
    profile = replica_profile(plan)
    read = profile.bytes[profile.resource == DOWNLINK].sum()
    assert read == pytest.approx(plan.spread.read_bytes)
    workers = {name.split("/")[1] for name in profile.names if name.endswith("/read")}
    assert workers == {"worker0", "worker1", "worker2", "worker3"}
