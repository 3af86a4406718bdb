import pytest

from planner.cluster import Cluster, Node
from planner.errors import BadInput


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
