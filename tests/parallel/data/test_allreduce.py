"""All-reduce lowered and simulated: closed forms, unequal ranks, equality with the reference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from test_buckets import chain

from planner.device.computation import Computation, Variation, median_steps, repeat_passes
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.parallel.collectives.libraries import Nccl, site_peers
from planner.parallel.data import Site
from planner.parallel.data.collective import build_strategy
from planner.parallel.data.ddp import COPIES, COPY_S, AllReduce, overlap_loss_s
from planner.parallel.data.joint import (
    CPU_COPY_S_PER_BYTE,
    GLOO_CPU_S_PER_BYTE,
    MEMORY_SHARE,
    MOST_JITTER,
    slowest_factor,
    step_sigma,
    usual_sigma,
)
from planner.search.machines import unnamed_machine
from planner.simulator import simulate
from planner.simulator.cluster import FABRIC, NETWORK
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import Case

P3 = "p3.16xlarge"
PLAIN = AllReduce(accesses=0.0, jitter=0.0)


def step_s(case: Case) -> float:
    result = simulate(case.profile, case.cluster, case.policy, joins=case.joins, precision=0.002)
    return case.cluster.workers * case.profile.batch / result.samples_per_s


def site(workers: int, machine: str = P3, **more: object) -> Site:
    return Site(load_hardware(machine), workers, **more)  # type: ignore[arg-type]


def test_one_worker_computes_and_updates() -> None:
    assert step_s(PLAIN.lower(chain([100] * 4), site(1))) == pytest.approx(8.5)


@pytest.mark.parametrize("workers", [2, 8, 16])
def test_bucket_at_the_end_is_exposed_in_full(workers: int) -> None:
    """One bucket is ready with the last gradient: backward, then the collective, then the optimizer."""
    computation, where = chain([25_000_000] * 4, 1e-3), site(workers)
    changed = replace(PLAIN, bucket_bytes=10**12, first_bucket_bytes=10**12)
    peers = site_peers(where, Nccl())
    (phase,) = Nccl().phases("all_reduce", 4e8, peers)
    level = peers.between or peers.inside
    assert level is not None
    assert step_s(changed.lower(computation, where)) == pytest.approx(
        8.5e-3 + phase.seconds(level.bytes_per_s), rel=1e-3
    )


def test_buckets_overlap_with_the_backward_pass() -> None:
    computation, where = chain([25_000_000] * 4, 0.1), site(8)
    peers = site_peers(where, Nccl())
    (phase,) = Nccl().phases("all_reduce", 1e8, peers)
    assert peers.inside is not None
    last = phase.seconds(peers.inside.bytes_per_s)
    assert last < 0.1
    assert step_s(PLAIN.lower(computation, where)) == pytest.approx(0.85 + last, rel=1e-3)


def test_slow_links_chain_the_buckets() -> None:
    """Communication takes longer than computation: the first bucket's start, and then all of them."""
    computation = chain([25_000_000] * 4, 1e-3)
    where = site(2, "p3.2xlarge", market=Market(bandwidth_bytes_per_s=1e8))
    peers = site_peers(where, Nccl())
    assert peers.between is not None
    (phase,) = Nccl().phases("all_reduce", 1e8, peers)
    expected = 5e-3 + 4 * phase.seconds(peers.between.bytes_per_s) + 0.5e-3
    assert step_s(PLAIN.lower(computation, where)) == pytest.approx(expected, rel=1e-3)


def test_slow_worker_slows_all() -> None:
    computation = chain([100] * 4)
    slowed = site(8, speeds=(1.0,) * 7 + (0.5,))
    assert step_s(PLAIN.lower(computation, slowed)) == pytest.approx(17.0, rel=1e-3)


def test_slow_link_slows_the_ring() -> None:
    computation = chain([25_000_000], 1e-3)
    market = Market(bandwidth_bytes_per_s=1e8)
    even = step_s(PLAIN.lower(computation, site(4, "p3.2xlarge", market=market)))
    slow = site(4, "p3.2xlarge", market=market, nic_shares=(1.0, 0.5, 1.0, 1.0))
    assert step_s(PLAIN.lower(computation, slow)) == pytest.approx(2 * even, rel=0.05)


def test_slowest_of_many_ranks_decides() -> None:
    """Expected maximum of 8 normal draws: 1.42 standard deviations above the mean."""
    steady = chain([100] * 4)
    varied = median_steps(steady, Variation(0.1, 0.0), steps=400)
    result = step_s(PLAIN.lower(varied, site(8)))
    assert result == pytest.approx(8 * (1 + 0.1 * 1.42) + 0.5, rel=0.02)
    assert step_s(PLAIN.lower(varied, site(1))) == pytest.approx(8.5, rel=0.02)


def test_accumulation_exchanges_once() -> None:
    computation = chain([25_000_000] * 4, 1e-3)
    where = site(2, "p3.2xlarge", market=Market(bandwidth_bytes_per_s=1e8))
    once, four = (step_s(PLAIN.lower(repeat_passes(computation, times), where)) for times in (1, 4))
    assert four - once == pytest.approx(3 * 8e-3, rel=1e-3)
    assert repeat_passes(computation, 4).batch == 4


def test_jitter_is_that_of_equal_devices_and_less_over_many_micro_batches() -> None:
    computation = median_steps(chain([100] * 4, 0.1))  # passes of 0.8 seconds, an optimizer of 0.05
    once, many = (
        step_s(AllReduce(accesses=0.0, jitter=0.1).lower(repeat_passes(computation, times), site(8)))
        for times in (1, 16)
    )
    assert once == pytest.approx(0.8 * (1 + 0.1 * 1.42) + 0.05, rel=0.02)
    assert many == pytest.approx(12.8 * (1 + 0.1 / 4 * 1.42) + 0.05, rel=0.01)


def test_one_long_pass_differs_as_several_short_ones_together() -> None:
    assert usual_sigma(16.0, 1) == pytest.approx(usual_sigma(16.0, 16), rel=1e-2)
    assert usual_sigma(0.8, 1) == pytest.approx(math.hypot(0.03, 0.003 / 0.8))
    assert usual_sigma(0.0, 4) == 0.03 / 2  # nobody knows how long it is


def test_stages_wait_for_the_slowest_of_them() -> None:
    assert slowest_factor(0.05, 4, stages=3) == pytest.approx(slowest_factor(0.05, 12), rel=2e-3)
    assert slowest_factor(0.05, 1, stages=2) == pytest.approx(1 + 0.05 * 0.564, rel=3e-3)


def test_overlap_slows_the_backward_pass() -> None:
    computation, where = chain([25_000_000] * 4, 1e-2), site(8)
    plain, slowed = (step_s(replace(PLAIN, accesses=many).lower(computation, where)) for many in (0.0, 3.0))
    reached = MEMORY_SHARE * where.hardware.device.memory_bytes_per_s
    copies_s = COPIES * 4e8 / reached + 2 * 4 * COPY_S
    overlap_loss_s = 3 * 2 * 7 / 8 * 3e8 / reached  # the last of four buckets leaves when the pass is over
    assert slowed - plain == pytest.approx(copies_s + overlap_loss_s, rel=0.05)


def test_slow_link_takes_no_more_of_the_memory_than_it_moves() -> None:
    """What computing loses to a collective is the same over PCIe, where it lasts ten times as long."""
    sizes, fast = [25_000_000] * 3, site(8)
    slow = replace(fast, hardware=replace(fast.hardware, fabric=load_hardware("g4dn.12xlarge").fabric))
    lost = [overlap_loss_s(3.0, sizes, Nccl(), site_peers(where, Nccl()), where) for where in (fast, slow)]
    assert lost[0] == lost[1] > 0
    alone = [Nccl().seconds("all_reduce", 25_000_000, site_peers(where, Nccl())) for where in (fast, slow)]
    assert alone[1] > 5 * alone[0]


def test_horovod_waits_half_a_cycle_for_the_last_gradients() -> None:
    computation, where = chain([25_000_000] * 4, 1e-3), site(8)
    plain, cycled = (step_s(replace(PLAIN, cycle_s=cycle).lower(computation, where)) for cycle in (0.0, 5e-3))
    assert cycled - plain == pytest.approx(2.5e-3, rel=1e-6)


def test_short_steps_vary_more_by_their_hosts_and_never_more_than_a_tenth() -> None:
    def sigma(seconds: float, jitter: float = 0.03) -> float:
        return step_sigma(median_steps(chain([100] * 4, seconds / 8)), jitter, 0.003)

    assert sigma(0.9) == pytest.approx(0.03, rel=1e-2)
    assert sigma(100.0) == pytest.approx(0.003, rel=1e-2)  # as a hundred passes of a second
    assert sigma(0.1) == pytest.approx(math.hypot(0.03, 0.03))
    assert sigma(0.001) == MOST_JITTER
    assert sigma(0.1, jitter=0.0) == 0.0


def test_half_full_machine_is_no_obstacle() -> None:
    case = PLAIN.lower(chain([25_000_000] * 4, 1e-2), site(12))
    assert case.cluster.workers == 12
    assert step_s(case) > step_s(PLAIN.lower(chain([25_000_000] * 4, 1e-2), site(8)))


def test_two_levels_use_fabric_and_network() -> None:
    case = AllReduce(algorithm="hierarchical").lower(chain([25_000_000] * 4, 1e-3), site(16))
    assert case.cluster.link_resources == (FABRIC, NETWORK)
    assert {int(scope) for scope in case.profile.scope} == {-1, 0, 1}
    assert step_s(case) > 0


def mixed(seed: int) -> tuple[AllReduce, Computation, Site]:
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.integers(1, 5_000_000, int(random.integers(1, 8)))]
    computation = median_steps(chain(sizes, 2e-3), Variation(0.1, 0.05), steps=8, seed=seed)
    machine = str(random.choice([P3, "p3.2xlarge", "p4d.24xlarge", "c5n.large", "g5.12xlarge"]))
    workers = int(random.integers(1, 12))
    where = site(
        workers,
        machine,
        market=Market(bandwidth_bytes_per_s=float(random.uniform(1e8, 1e10))),
        speeds=tuple(random.uniform(0.5, 1.0, workers).tolist()),
    )
    exchange = AllReduce(
        bucket_bytes=int(random.integers(1, 20_000_000)),
        algorithm=str(random.choice(["auto", "ring", "tree", "hierarchical"])),
        library=str(random.choice(["auto", "gloo"])),
        rebuilt=bool(random.integers(2)),
    )
    return exchange, computation, where


def check_engine_is_reference(case: Case, seed: int, steps: int) -> None:
    options = RunOptions(steps=steps, seed=seed, timeline=True)
    engine, reference = (
        run(case.profile, case.cluster, case.policy, case.mode, options, joins=case.joins, path=path)
        for path in ("engine", "reference")
    )
    assert engine.timeline is not None
    assert reference.timeline is not None
    np.testing.assert_array_equal(engine.timeline, reference.timeline)
    for ours, theirs in zip(engine.step_ends_s, reference.step_ends_s, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(40))
def test_engine_equals_reference(seed: int) -> None:
    exchange, computation, where = mixed(seed)
    check_engine_is_reference(exchange.lower(computation, where), seed, steps=4)


def test_keys_tell_settings_apart_and_defaults_stay_short() -> None:
    assert AllReduce().key == "allreduce"
    assert AllReduce(bucket_bytes=5).key != AllReduce(bucket_bytes=6).key


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"bucket_bytes": "0"}, "above zero"),
        ({"bucket_bytes": "many"}, "whole number"),
        ({"bucket": "1"}, "bucket"),
        ({"library": "mpi"}, "mpi"),
        ({"rebuilt": "maybe"}, "yes or no"),
        ({"jitter": "2"}, "between 0 and 1"),
        ({"accesses": "-1"}, "must not be below zero"),
        ({"slowdown": "0.1"}, "setting of allreduce"),
    ],
)
def test_settings_that_mean_nothing_are_refused(choices: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build_strategy(AllReduce, tuple(choices.items()))


def test_refusals_name_the_remedy() -> None:
    no_fabric = replace(load_hardware(P3), fabric=None)
    assert "[fabric]" in str(AllReduce().infeasibility(Site(no_fabric, 8)))
    without = replace(load_hardware("p3.2xlarge"), rdma=False)
    assert "--network tcp" in str(AllReduce().infeasibility(Site(without, 2, rdma=True)))
    assert "gloo" in str(AllReduce(library="nccl").infeasibility(site(2, "c5n.large")))
    assert AllReduce().infeasibility(site(16)) is None


def test_answers_say_what_collectives_go_over() -> None:
    words = " ".join(map(str, AllReduce().labels(site(16, "p4d.24xlarge")).assumptions))
    assert "over NVSwitch, times as measured (a100-sxm)" in words
    assert "over RDMA (EFA), times as measured" in words
    tcp = " ".join(map(str, AllReduce().labels(site(16, "p4d.24xlarge", rdma=False)).assumptions))
    assert "over TCP, without RDMA" in tcp
    assert "PCIe" in AllReduce().labels(site(4, "g5.12xlarge")).assumptions[1].text
    assert "estimated" in AllReduce().labels(site(4, "g5.12xlarge")).assumptions[1].text
    assert AllReduce().labels(site(1)).assumptions == AllReduce().labels().assumptions


def test_devices_that_only_pairs_join_go_at_the_speed_between_pairs() -> None:
    """Azure's four A100 in two NVLink pairs: 25 GB/s over four, NVLink over two."""
    two, four = (site_peers(site(count, "Standard_NC96ads_A100_v4"), Nccl()).inside for count in (2, 4))
    assert two is not None
    assert four is not None
    assert four.bytes_per_s == 25e9
    assert two.bytes_per_s > 5 * four.bytes_per_s


def test_fabric_may_span_machines() -> None:
    whole = load_hardware("p4d.24xlarge")
    assert whole.fabric is not None
    rack = replace(whole, fabric=replace(whole.fabric, machines=18, curve="gb200"), device_count=4)
    peers = site_peers(Site(rack, 72), Nccl())
    assert peers.between is None
    assert peers.inside is not None
    assert peers.inside.members == 72
    assert site_peers(Site(rack, 76), Nccl()).between is not None


def test_tcp_on_a_machine_with_rdma_is_many_times_slower() -> None:
    computation = chain([25_000_000] * 8, 1e-3)
    fast, slow = (step_s(PLAIN.lower(computation, site(16, "p4d.24xlarge", rdma=on))) for on in (True, False))
    assert slow > 5 * fast


def test_no_order_of_buckets_ends_a_step_earlier() -> None:
    """What `planner order` says of all-reduce: one lane that never idles is done at one time in any order."""
    case = replace(PLAIN, bucket_bytes=30_000_000, first_bucket_bytes=30_000_000).lower(
        chain([25_000_000] * 6, 1e-3), site(8)
    )
    assert case.profile.order is not None
    turned = replace(case.profile, order=np.ascontiguousarray(case.profile.order[:, ::-1]))
    assert (case.profile.scope >= 0).sum() > 3
    assert step_s(replace(case, profile=turned)) == pytest.approx(step_s(case), rel=1e-9)


def test_gloo_takes_cores_that_compute_and_leaves_spare_ones_alone() -> None:
    """Two ranks on one core each: 48 MB cost what a core needs for sockets and sums, and both copies."""
    computation, market = chain([1_000_000, 10_000_000, 1_000_000], 1e-1), Market(bandwidth_bytes_per_s=1e9)

    def two(threads: int | None, cores: int | None) -> float:
        machine = unnamed_machine("cpu", threads, cores)
        return step_s(AllReduce(jitter=0.0).lower(computation, Site(machine, 2, market)))

    unknown, spare, busy = two(None, None), two(1, 2), two(1, 1)
    assert spare - unknown == pytest.approx(2 * 48e6 * CPU_COPY_S_PER_BYTE, rel=0.02)
    assert busy - spare == pytest.approx(44e6 * GLOO_CPU_S_PER_BYTE, rel=0.1)  # all but the last bucket
    assert two(8, 8) < busy
