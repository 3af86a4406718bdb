import pytest

from planner.errors import BadInput
from planner.simulator.cluster import FABRIC, Cluster, Node


def test_uniform_gives_each_worker_and_server_a_node():
    cluster = Cluster.uniform(3, 2, 1e6)
    assert (cluster.workers, cluster.servers, len(cluster.nodes)) == (3, 2, 5)
    assert not set(cluster.worker_nodes) & set(cluster.server_nodes)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_bandwidth_must_be_positive(bandwidth):
    with pytest.raises(BadInput, match="above zero"):
        Cluster.uniform(1, 1, bandwidth)


def test_no_workers():
    with pytest.raises(BadInput, match="at least one worker"):
        Cluster.uniform(0)


def test_speeds_must_match_workers():
    with pytest.raises(BadInput, match="2 worker speeds"):
        Cluster((Node(1, 1), Node(1, 1)), (0,), (1,), (1.0, 2.0))


PAIR = {"nodes": (Node(1, 1), Node(1, 1)), "worker_nodes": (0,), "server_nodes": (1,)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"worker_nodes": ()}, "at least one worker"),
        ({"worker_nodes": (2,)}, "placed on node 2, but there are 2 nodes"),
        ({"server_nodes": (-1,)}, "placed on node -1"),
        ({"worker_speeds": (0.0,)}, "speed must be a finite number above zero"),
        ({"worker_speeds": (-1.0,)}, "speed must be a finite number above zero"),
        ({"worker_speeds": (float("inf"),)}, "speed must be a finite number above zero"),
        ({"worker_speeds": (float("nan"),)}, "speed must be a finite number above zero"),
        ({"flow_bytes_per_s": 0.0}, "flow_bytes_per_s must be above zero"),
        ({"flow_bytes_per_s": float("nan")}, "flow_bytes_per_s must be above zero"),
        ({"links": (((0, 1),), ((0, 1),))}, "links are given for 2 workers, but there are 1"),
        ({"links": (((0, 2),),)}, "a link ends at node 2, but there are 2 nodes"),
        ({"links": (((0, -1),),)}, "a link ends at node -1"),
        ({"link_resources": (FABRIC,)}, r"1 names are given for 0 link\(s\)"),
        ({"leaders": ((0, 0),)}, "scope 0 groups 2 workers, but there are 1"),
        ({"leaders": ((-1,),)}, "led by -1"),
        ({"worker_nodes": (0, 0), "links": (((0, 1),), ())}, "as many links as the others"),
        ({"worker_nodes": (0, 0), "leaders": ((1, 1),)}, "worker 0 is led by 1, which is not the lowest"),
        (
            {"worker_nodes": (0, 0, 0), "leaders": ((0, 0, 1),)},
            "worker 2 is led by 1",
        ),
    ],
)
def test_clusters_that_cannot_be_are_refused(change, said):
    assert Cluster(**PAIR).workers == 1
    with pytest.raises(BadInput, match=said):
        Cluster(**(PAIR | change))


@pytest.mark.parametrize("cores", [0, -2])
def test_node_without_cores_is_refused(cores):
    assert Node(1, 1, cores=1).cores == 1
    with pytest.raises(BadInput, match=f"a node has {cores} cores"):
        Node(1, 1, cores=cores)


@pytest.mark.parametrize(("workers", "servers"), [(0, 1), (1, 0), (-1, 1)])
def test_uniform_clusters_have_workers_and_servers(workers, servers):
    with pytest.raises(BadInput, match=f"not {workers} and {servers}"):
        Cluster.uniform(workers, servers)


def test_cluster_at_its_limits_is_taken():
    """What the refusals must not catch: the last node, a slow worker, one group of all."""
    cluster = Cluster(
        **(PAIR | {"worker_nodes": (0, 1), "worker_speeds": (0.1, 1.0), "leaders": ((0, 0), (0, 1))}),
        links=(((0, 1),), ((1, 0),)),
        link_resources=(FABRIC,),
    )
    assert cluster.channels == 2
    assert cluster.ends == (((0, 1), (0, 1)), ((1, 1), (1, 0)))
    assert cluster.link_resource(1) == FABRIC
