"""Owned optimizer state lowered and simulated: who owns what, what is sent, and what waits for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_allreduce import check_engine_is_reference, step_s
from test_buckets import chain
from test_sharded import SLOW

from planner.device.computation import Variation, median_steps, repeat_passes
from planner.device.precision import BF16, FP32
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.collectives.libraries import Nccl, site_peers
from planner.parallel.data import EXCHANGES, Job, Site, Tier
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.owned import (
    Owned,
    assign_owners,
    elements_by_owner,
    largest_share,
    tensor_elements,
)
from planner.parallel.mesh import Mesh, data_parallel_group
from planner.parallel.replica import replica_computation
from planner.servers.orders import UNORDERED

PLAIN = Owned(accesses=0.0, jitter=0.0)


def site(workers: int, machine: str = "p3.2xlarge", **more: object) -> Site:
    return Site(load_hardware(machine), workers, **more)  # type: ignore[arg-type]


def test_tensors_are_dealt_out_in_order_and_evenly() -> None:
    assert assign_owners([4, 4, 4, 4], 2) == (0, 0, 1, 1)
    assert assign_owners([4, 4, 4, 4], 4) == (0, 1, 2, 3)
    assert assign_owners([1, 1, 1, 9], 2) == (0, 0, 0, 1)
    assert assign_owners([9, 1, 9, 1], 10) == (2, 4, 7, 9)  # most own nothing
    assert assign_owners([5, 5, 5], 1) == (0, 0, 0)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 100))
def test_every_tensor_has_an_owner_in_order(sizes: list[int], owners: int) -> None:
    result = assign_owners(sizes, owners)
    assert len(result) == len(sizes)
    assert all(before <= after for before, after in pairwise((0, *result)))
    assert max(result) < owners
    share = sum(sizes) / owners
    assert largest_share(sizes, owners) * sum(sizes) <= share + max(sizes) + 1e-6
    assert largest_share(sizes, owners) >= max(sizes) / sum(sizes) * (1 - 1e-12)


def test_one_worker_computes_and_updates_as_with_all_reduce() -> None:
    computation = chain([100] * 4)
    assert step_s(PLAIN.lower(computation, site(1))) == pytest.approx(8.5)


def test_gradients_are_summed_and_parameters_sent_once() -> None:
    computation, where = chain([1000] * 4), site(4, market=SLOW)
    case = PLAIN.lower(computation, where)
    sent = dict(zip(case.profile.names, case.profile.bytes.tolist(), strict=True))
    assert [name for name in sent if name.startswith("broadcast")] == [f"broadcast[{at}]" for at in range(4)]
    assert sum(size for name, size in sent.items() if name.startswith("broadcast")) == 4 * 4000
    assert sum(size for name, size in sent.items() if name.startswith("allreduce")) == 2 * 3 / 4 * 4 * 4000


def test_layer_waits_for_the_owners_of_its_tensors_only() -> None:
    """With links as slow as this all broadcasts are waited for, one after another: the last layer begins when
    the last has come, the first when the first has."""
    computation, where = chain([50_000_000] * 4, 1e-3), site(4, market=SLOW)
    peers = site_peers(where, Nccl())
    one_s = Nccl().seconds("broadcast", 2e8, peers)
    all_s = sum(Nccl().seconds("all_reduce", bucket.bytes, peers) for bucket in PLAIN.buckets(computation))
    result = step_s(PLAIN.lower(computation, where))
    least_s = 4 * one_s + all_s + computation.optimizer_s / 4
    assert least_s < result < least_s + 8 * 1e-3
    case = PLAIN.lower(computation, where)
    first = case.profile.names.index("forward[0]")
    assert [case.profile.names[at] for at in case.profile.deps(first).tolist()] == ["broadcast[0]"]


def test_busiest_owner_decides_update_time_and_memory() -> None:
    computation = chain([9_000_000, 1_000_000, 1_000_000, 1_000_000])
    assert elements_by_owner(computation, 4) == ((9_000_000, 0), (3_000_000, 1))
    half = replace(computation, optimizer_s=1.0)
    assert PLAIN.tail_s(half, (), site_peers(site(4), Nccl()), site(4)) == pytest.approx(0.75)
    model = load_model("vgg11")  # one layer has four fifths of it
    held = PLAIN.memory_shares(model, FP32, site(64))
    assert held.optimizer == pytest.approx(
        largest_share([t.elements for entry in model for t in entry.tensors], 64)
    )
    assert held.optimizer > 0.5 > 1 / 64
    assert held.parameters == held.gradients == 1.0


def test_units_are_dealt_out_by_their_matrices() -> None:
    once = replica_computation(load_model("llama2-7b"), 1, site(8, "p4d.24xlarge"), BF16)
    sizes = tensor_elements(once)
    assert len(sizes) == 2 + 32 * 7
    assert sum(sizes) == pytest.approx(once.elements, rel=1e-4)  # norms are vectors
    assert len(elements_by_owner(once, 8)) == 8
    assert len(elements_by_owner(once, 1024)) == len(sizes)
    assert elements_by_owner(once, 1) == ()


def test_owners_of_a_machine_send_over_its_fabric() -> None:
    where = site(32, "p4d.24xlarge")
    once = replica_computation(load_model("gpt2-xl"), 4, where, BF16)
    whole, inside = PLAIN, replace(PLAIN, within="machine")
    assert (whole.shard_count(where), inside.shard_count(where)) == (32, 8)
    case = inside.lower(once, where)
    scopes = {
        case.profile.scope[at] for at, name in enumerate(case.profile.names) if name.startswith("broadcast")
    }
    assert scopes == {1}
    assert step_s(inside.lower(once, where)) < step_s(whole.lower(once, where))


def test_chain_of_broadcasts_falls_behind_gathers_as_machines_are_added() -> None:
    """InternEvo's ZeRO-1 over all of 1,024 A100 takes 1.6 times as long as inside machines, over 16 hardly
    longer (doc/en/train_performance.md of InternLM/InternEvo); parts of every tensor do not fall so far."""
    model = load_model("llama2-7b").with_sequence_length(2048)
    longer = {}
    for workers in (16, 1024):
        where = site(workers, "p4d.24xlarge")
        once = repeat_passes(replica_computation(model, 2, where, BF16), 4)
        over_all, inside, parts = (
            1 / step_s(entry.lower(once, where))
            for entry in (Owned(), Owned(within="machine"), Sharded(stage=1, each_pass=False, gathers="next"))
        )
        longer[workers] = inside / over_all
        assert parts > over_all
    assert longer[16] < 1.1
    assert longer[1024] > 1.4


def random_owned(seed: int) -> tuple[Owned, Job]:
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.integers(1, 5_000_000, int(random.integers(1, 9)))]
    computation = median_steps(chain(sizes, float(random.uniform(1e-4, 1e-1))), Variation(0.05, 0.0), steps=8)
    computation = repeat_passes(computation, int(random.choice([1, 2, 3, 9])))
    machine = str(random.choice(["p3.16xlarge", "p3.2xlarge", "c5n.large", "p4d.24xlarge"]))
    where = Site(load_hardware(machine), int(random.integers(1, 24)), SLOW)
    inside = where.machines > 1 and where.devices > 1 and bool(random.integers(2))
    exchange = Owned(
        within="machine" if inside else "all",
        bucket_bytes=int(random.choice([1_000_000, 2**25, 2**30])),
        jitter=float(random.choice([0.0, 0.03])),
    )
    return exchange, Job(exchange, computation, where)


@pytest.mark.parametrize("seed", range(40))
def test_no_simulation_exceeds_its_bound(seed: int) -> None:
    exchange, job = random_owned(seed)
    case = exchange.lower(job.computation, job.site)
    (bound,) = Owned.bounds([job])
    assert job.site.workers * case.profile.batch / step_s(case) <= bound * 1.004


@pytest.mark.parametrize("seed", range(12))
def test_engine_is_the_reference(seed: int) -> None:
    exchange, job = random_owned(seed)
    check_engine_is_reference(exchange.lower(job.computation, job.site), seed, 3)


def test_bound_is_near_the_simulation() -> None:
    """Also where broadcasts are nearly all of the step."""
    near = []
    for workers, machine in ((16, "p4d.24xlarge"), (256, "p4d.24xlarge"), (16, "g5.12xlarge")):
        where = site(workers, machine)
        once = replica_computation(load_model("gpt2-xl"), 1, where, BF16)
        (bound,) = Owned.bounds([Job(PLAIN, once, where)])
        near.append(workers / step_s(PLAIN.lower(once, where)) / bound)
    assert min(near) > 0.95


@pytest.mark.parametrize("pipeline", [1, 4])
@pytest.mark.parametrize("times", [1, 3, 64])
def test_micro_batches_are_counted_as_if_they_were_played_out(pipeline: int, times: int) -> None:
    where = site(32, "p4d.24xlarge", mesh=Mesh.of(tensor=2, pipeline=pipeline))
    once = replica_computation(load_model("gpt2"), 2, where, BF16, recompute="full")
    group = data_parallel_group(where)
    counted, played = Owned.bounds(
        [Job(Owned(), once, group, times), Job(Owned(), repeat_passes(once, times), group)]
    )
    assert counted == pytest.approx(played, rel=1e-9)


def test_searches_have_it_only_where_it_is_named() -> None:
    assert not EXCHANGES.entry("owned").considered(1, site(8, "p4d.24xlarge"))
    assert EXCHANGES.entry("owned").tier is Tier.FALLBACK
    assert "within=machine" in UNORDERED["owned"]
    assert set(UNORDERED) == set(EXCHANGES) - {"servers"}


@pytest.mark.parametrize(
    "settings", [{"within": "rack"}, {"bucket_bytes": 0}, {"gradients": "fp64"}, {"jitter": 2.0}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Owned(**settings)  # type: ignore[arg-type]


def test_owners_in_machines_need_several_machines() -> None:
    assert "several whole machines" in str(Owned(within="machine").infeasibility(site(8, "p4d.24xlarge")))
    assert Owned(within="machine").infeasibility(site(16, "p4d.24xlarge")) is None


def test_variants_name_other_settings() -> None:
    words = [variant.label for variant in Owned().variants(site(16, "p4d.24xlarge"))]
    assert words == ["parts of every tensor instead of owners (ZeRO-1)", "owners in each machine"]
    assert "owners" in Owned().labels().name
    assert Owned(within="machine").labels().name.startswith("hybrid")
