"""Device meshes: their keys and settings, process groups, and what of a machine a group has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from planner.device.precision import BF16
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware, match_hardware
from planner.model.catalog import load_model
from planner.parallel._base import Axis, AxisFlag, Divisible, Labels
from planner.parallel.mesh import WHOLE, Group, Mesh, axis_group, data_parallel_group, stage_hop
from planner.parallel.pipeline import PipelineParallel
from planner.parallel.plan import Site
from planner.parallel.replica import slowest_stage
from planner.parallel.tensor import TensorParallel

P5 = load_hardware("p5.48xlarge")  # 8 x H100, 3.2 Tbit/s


def site(tensor: int, pipeline: int, workers: int) -> Site:
    return Site(P5, workers, mesh=Mesh.of(tensor=tensor, pipeline=pipeline))


def test_group_of_replicas_has_its_part_of_every_machine() -> None:
    seen = data_parallel_group(site(4, 2, 64))
    assert (seen.workers, seen.devices, seen.machines) == (8, 2, 4)
    assert seen.nic_bytes_per_s == pytest.approx(Site(P5, 8).nic_bytes_per_s / 4)


def test_all_groups_together_have_the_machine() -> None:
    for tensor in (1, 2, 4, 8):
        seen = data_parallel_group(site(tensor, 2, 64))
        assert seen.devices * tensor == 8
        assert seen.nic_bytes_per_s * tensor == pytest.approx(Site(P5, 8).nic_bytes_per_s)


def test_layers_shared_by_more_than_a_machine_take_all_its_nics() -> None:
    seen = data_parallel_group(site(16, 1, 64))
    assert (seen.workers, seen.devices) == (4, 1)


def test_whole_replicas_see_the_site_as_it_is() -> None:
    whole = Site(P5, 16)
    assert data_parallel_group(whole) is whole


def test_tensor_parallel_group_lies_inside_a_machine() -> None:
    where = site(4, 2, 64)
    assert axis_group(where, where.mesh.axis(TensorParallel)).machines == 1


@dataclass(frozen=True, slots=True)
class Expert(Axis):
    """Ranks bring samples of their own and hold some experts; all hold the dense parameters."""

    kind: ClassVar[str] = "ep"
    flags: ClassVar[tuple[AxisFlag, ...]] = (AxisFlag("expert", "degree", "Expert-parallel degree.", "ep"),)
    splits: ClassVar[frozenset[Divisible]] = frozenset({Divisible.SAMPLES, Divisible.EXPERTS})

    @classmethod
    def candidates(cls, asked, site, model):
        yield cls(2)

    def labels(self, site=None):
        return Labels(f"expert {self.degree}", plan=f"{self.degree} divide the experts")


def test_group_of_experts_is_smaller_than_that_of_dense_parameters() -> None:
    tensor, expert, pipeline = TensorParallel(2), Expert(4), PipelineParallel(2)
    mesh = Mesh((tensor, expert, pipeline))
    assert (mesh.size, mesh.concurrent_micro_batches, mesh.lockstep, mesh.stages) == (16, 4, 8, 2)
    assert mesh.group(tensor, 64) == Group(2, stride=1)
    assert mesh.group(pipeline, 64) == Group(2, stride=32)
    assert mesh.group(None, 64) == mesh.group(None, 64, Divisible.EXPERTS) == Group(4, stride=8)
    assert mesh.group(None, 64, Divisible.DENSE) == Group(16, stride=2)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "workers", "crosses"),
    [
        (8, 2, 16, True),  # the next stage begins exactly where the machine ends
        (4, 4, 16, True),  # half a machine away: every second stage is on the next one
        (2, 4, 8, False),
        (4, 2, 64, True),  # data-parallel ranks stand between stages
        (1, 8, 8, False),
        (16, 2, 32, True),
    ],
)
def test_stage_hop_of_several_machines_goes_between_two(
    tensor: int, pipeline: int, workers: int, crosses: bool
) -> None:
    hop = stage_hop(site(tensor, pipeline, workers))
    assert (hop.workers, hop.machines) == (2, 2 if crosses else 1)


def test_sends_between_stages_of_eight_tensor_parallel_devices_go_over_the_nic() -> None:
    model = load_model("llama3-8b")
    times = [
        slowest_stage(model, 1, Site(machine, 16, mesh=Mesh.of(tensor=8, pipeline=2)), BF16)[0]
        for machine in (P5, replace(P5, rdma_bytes_per_s=P5.rdma_bytes_per_s and P5.rdma_bytes_per_s / 2))
    ]
    fast, slow = (float(work.seconds[work.layout.names.index("stages/send")]) for work in times)
    nic = P5.rdma_bytes_per_s or P5.nic_baseline_bytes_per_s
    assert nic is not None
    wire_s = 8192 / 8 * 4096 * 2 / (0.85 * nic / 8)  # what RDMA reaches of the NIC, once each way
    assert 2 * (wire_s + 20e-6) < fast < 2 * (wire_s + 60e-6)
    assert slow - fast == pytest.approx(2 * wire_s)


def test_mesh_key_and_size_of_its_settings() -> None:
    assert Mesh.of() == WHOLE == Mesh.of(tensor=1, pipeline=1, workers_per_replica=1)
    mesh = Mesh.of(tensor=8, pipeline=4, interleave=2)
    assert (mesh.key, mesh.size) == ("/t8p4v2", 32)
    assert mesh.settings == mesh.nondefault_settings == {"tensor": 8, "pipeline": 4, "interleave": 2}
    assert Mesh.of(pipeline=2).key == "/t1p2v1"
    assert Mesh.of(pipeline=2).nondefault_settings == {"pipeline": 2}
    assert Mesh(mesh.axes[::-1]) == mesh
    assert (Mesh.of(workers_per_replica=4).key, WHOLE.key) == ("/x4", "")


@pytest.mark.parametrize(
    "wrong", [{"tensor": 0}, {"pipeline": -1}, {"tensor": 2, "interleave": 2}, {"expert": 2}]
)
def test_mesh_of_wrong_settings_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        Mesh.of(**wrong)


def test_ranks_of_the_first_and_last_stage_may_hold_most() -> None:
    model = load_model("gpt2")
    first, last = Mesh.of(tensor=2, pipeline=2).memory_shares(model, 8)
    assert (first.in_flight, last.in_flight) == (2, 1)
    assert first.layers is not None
    assert last.layers is not None
    assert first.layers | last.layers == {layer.name for layer in model.layers}
    assert [share.layers for share in Mesh.of(tensor=2).memory_shares(model, 8)] == [None]


def test_collectives_go_over_the_faster_network_where_rdma_is_used() -> None:
    kept_hardware = [
        kind
        for kind in match_hardware(("*",))
        if kind.rdma
        and kind.rdma_bytes_per_s
        and kind.nic_baseline_bytes_per_s
        and kind.rdma_bytes_per_s > kind.nic_baseline_bytes_per_s
    ]
    assert kept_hardware
    for kind in kept_hardware:
        assert Site(kind, 16).between_bytes_per_s == kind.rdma_bytes_per_s
        assert Site(kind, 16, rdma=False).between_bytes_per_s == kind.nic_baseline_bytes_per_s
