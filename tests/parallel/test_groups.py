"""Groups of a cut replica: who is in them, and what of a machine they have."""

from __future__ import annotations

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import load_hardware, match_hardware
from planner.parallel.cut import WHOLE, Cut
from planner.parallel.groups import replicas_site, sharing_site, stages_cross_machines
from planner.parallel.site import Site

P5 = load_hardware("p5.48xlarge")  # 8 x H100, 3.2 Tbit/s


def site(tensor: int, pipeline: int, workers: int) -> Site:
    return Site(P5, workers, cut=Cut.layers(tensor, pipeline))


def test_a_group_of_replicas_has_its_part_of_every_machine() -> None:
    seen = replicas_site(site(4, 2, 64))
    assert (seen.workers, seen.devices, seen.machines) == (8, 2, 4)
    assert seen.nic_bytes_per_s == pytest.approx(Site(P5, 8).nic_bytes_per_s / 4)


def test_all_groups_together_have_the_machine() -> None:
    for tensor in (1, 2, 4, 8):
        seen = replicas_site(site(tensor, 2, 64))
        assert seen.devices * tensor == 8
        assert seen.nic_bytes_per_s * tensor == pytest.approx(Site(P5, 8).nic_bytes_per_s)


def test_layers_shared_by_more_than_a_machine_take_all_its_nics() -> None:
    seen = replicas_site(site(16, 1, 64))
    assert (seen.workers, seen.devices) == (4, 1)


def test_whole_replicas_see_the_site_as_it_is() -> None:
    whole = Site(P5, 16)
    assert replicas_site(whole) is whole


def test_who_shares_layers_is_inside_a_machine_and_stages_cross_where_they_fill_one() -> None:
    assert sharing_site(site(4, 2, 64)).machines == 1
    assert stages_cross_machines(site(4, 2, 64))
    assert not stages_cross_machines(site(2, 4, 8))


def test_a_cut_says_what_it_is() -> None:
    assert Cut.layers() is WHOLE
    assert Cut.layers(8, 4, 2).key == "/t8p4v2"
    assert (Cut.layers(8, 4).workers, Cut(4).key, WHOLE.key) == (32, "/x4", "")
    for wrong in ({"tensor": 0}, {"pipeline": -1}, {"tensor": 2, "interleave": 2}):
        with pytest.raises(BadInput):
            Cut.layers(**wrong)


def test_collectives_go_over_the_faster_network_where_rdma_is_used() -> None:
    found = [
        kind
        for kind in match_hardware(("*",))
        if kind.rdma
        and kind.rdma_bytes_per_s
        and kind.nic_baseline_bytes_per_s
        and kind.rdma_bytes_per_s > kind.nic_baseline_bytes_per_s
    ]
    assert found
    for kind in found:
        assert Site(kind, 16).between_bytes_per_s == kind.rdma_bytes_per_s
        assert Site(kind, 16, rdma=False).between_bytes_per_s == kind.nic_baseline_bytes_per_s
