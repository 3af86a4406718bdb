"""Clusters of catalog hardware: layout, NICs, limits of a connection, and the words for the network."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.hardware.catalog import hardware_names, load_hardware
from planner.parallel.plan import network_figure
from planner.servers.lowering import cluster_of
from planner.units import GBIT_BYTES_PER_S

WITH_NIC = [n for n in hardware_names() if load_hardware(n).nic_bytes_per_s("baseline")]
WITHOUT_NIC = [n for n in hardware_names() if n not in WITH_NIC]


def test_machine_with_eight_gpus_holds_eight_workers_on_one_nic() -> None:
    cluster = cluster_of("p3.16xlarge", 12, "c5.4xlarge", servers=2)
    assert [node.hardware for node in cluster.nodes] == ["c5.4xlarge"] * 2 + ["p3.16xlarge"] * 2
    assert cluster.server_nodes == (0, 1)
    assert cluster.worker_nodes == (2,) * 8 + (3,) * 4
    assert cluster.nodes[2].egress_bytes_per_s == 25 * GBIT_BYTES_PER_S
    assert cluster.nodes[0].ingress_bytes_per_s == 5 * GBIT_BYTES_PER_S


def test_baseline_and_burst() -> None:
    assert cluster_of("p3.2xlarge", 1).nodes[0].egress_bytes_per_s == 2.5 * GBIT_BYTES_PER_S
    burst = cluster_of("p3.2xlarge", 1, network="burst")
    assert burst.nodes[0].egress_bytes_per_s == 10 * GBIT_BYTES_PER_S
    p3 = load_hardware("p3.2xlarge")
    assert "2.5 Gbit/s baseline (burst 10 Gbit/s lasts minutes)" in network_figure(p3).words
    assert "10 Gbit/s burst (lasts minutes; baseline 2.5 Gbit/s)" in network_figure(p3, "burst").words
    assert network_figure(load_hardware("g6.xlarge"), "burst").basis == "estimated"
    assert network_figure(load_hardware("g6.xlarge")).basis == "published"


def test_one_connection_is_limited_by_the_cloud_and_not_by_a_private_switch() -> None:
    assert cluster_of("p4d.24xlarge", 8).flow_bytes_per_s == 10 * GBIT_BYTES_PER_S
    assert math.isinf(cluster_of("private-opteron", 8).flow_bytes_per_s)


def test_colocated_servers_add_no_machine() -> None:
    cluster = cluster_of("g5.12xlarge", 8, servers=3, colocated=True)
    assert len(cluster.nodes) == 2
    assert cluster.server_nodes == (0, 1, 0)
    with pytest.raises(BadInput, match=r"c5\.large"):
        cluster_of("g5.12xlarge", 8, "c5.large", colocated=True)


@pytest.mark.parametrize("name", WITHOUT_NIC)
def test_unpublished_network_is_refused_unless_given(name: str) -> None:
    with pytest.raises(BadInput, match="no network figure is published"):
        cluster_of(name, 2)
    cluster = cluster_of(name, 2, bandwidth_bytes_per_s=1e8)
    assert {node.egress_bytes_per_s for node in cluster.nodes} == {1e8}


def test_which_networks_are_unpublished() -> None:
    big = [name for name in WITHOUT_NIC if load_hardware(name).provider in ("aws", "azure", "gcp")]
    assert set(big) == {
        "c4.large", "c4.xlarge", "c4.2xlarge", "c4.4xlarge", "p2.xlarge", "Standard_NC6", "Standard_NC6s_v3",
        "a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g",
        "g4-standard-48", "g4-standard-96", "g4-standard-192",
    }  # fmt: skip


@pytest.mark.parametrize(("workers", "servers"), [(0, 1), (-1, 1), (1, 0), (10**9, 1)])
def test_absurd_counts(workers: int, servers: int) -> None:
    with pytest.raises(BadInput, match="between 1 and"):
        cluster_of("p3.2xlarge", workers, servers=servers)


def test_unknown_network_and_bandwidth() -> None:
    with pytest.raises(BadInput, match="baseline, burst"):
        cluster_of("p3.2xlarge", 1, network="fast")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="above zero"):
        cluster_of("p3.2xlarge", 1, bandwidth_bytes_per_s=-1.0)


@settings(max_examples=60, deadline=None)
@given(
    worker=st.sampled_from(WITH_NIC),
    server=st.sampled_from(WITH_NIC),
    workers=st.integers(1, 40),
    servers=st.integers(1, 8),
    colocated=st.booleans(),
)
def test_layout(worker: str, server: str, workers: int, servers: int, colocated: bool) -> None:
    kind = load_hardware(worker)
    server_kind = None if colocated else load_hardware(server)
    cluster = cluster_of(kind, workers, server_kind, servers, colocated=colocated)
    assert (cluster.workers, cluster.servers) == (workers, servers)
    on_node = [cluster.worker_nodes.count(node) for node in set(cluster.worker_nodes)]
    assert max(on_node) <= kind.device_count
    assert len(on_node) == math.ceil(workers / kind.device_count)
    assert set(cluster.worker_nodes) | set(cluster.server_nodes) == set(range(len(cluster.nodes)))
    names = [node.hardware for node in cluster.nodes]
    own = [] if colocated else [server] * servers
    assert sorted(names) == sorted([*own, *[worker] * len(on_node)])
    if not colocated:
        assert not set(cluster.worker_nodes) & set(cluster.server_nodes)


def test_machine_of_ones_own_needs_no_catalog() -> None:
    mine = dataclasses.replace(load_hardware("p3.2xlarge"), name="mine", nic_baseline_bytes_per_s=5e8)
    assert cluster_of(mine, 3).nodes[-1].ingress_bytes_per_s == 5e8
