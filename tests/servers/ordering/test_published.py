"""What papers published about orders, and what we get; `planner validate` has more of it."""

from __future__ import annotations

import numpy as np
import pytest

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers import orders
from planner.servers.ordering import schedule
from planner.servers.ordering.graph import StepGraph
from planner.servers.ordering.strategies import tac_order, tic_order
from planner.servers.synthesis import NO_PARSING, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK, WORKER


def test_alpha_explains_step_time() -> None:
    """File 001, Figure 13: R^2 of 0.98 on Inception v2. As computation varies between steps, it is not 1."""
    profile = profile_for(
        load_model("slim-inception-v2"), 128, load_hardware("g3.8xlarge"),
        training=False, steps=50, parsing=NO_PARSING,
    )  # fmt: skip
    compute_s = float(profile.durations_s.mean(axis=0)[profile.resource == WORKER].sum())
    size = float(profile.bytes[profile.resource == DOWNLINK].sum())
    bandwidth = size / compute_s  # rho is 1
    policy = schedule(profile, "fifo", bandwidth_bytes_per_s=bandwidth).policy
    options = RunOptions(steps=300, timeline=True)
    result = run(profile, Cluster.uniform(1, 1, bandwidth), policy, "async", options)
    assert result.timeline is not None
    times = result.step_ends_s[0] - result.step_starts_s[0]
    busy = times - orders.idle_s(result.timeline)
    alpha = [orders.overlap_coefficient(size / bandwidth, c, t) for c, t in zip(busy, times, strict=True)]
    r_squared = np.corrcoef(alpha, times)[0, 1] ** 2
    assert 0.95 <= r_squared < 0.9999
    assert orders.count_download_orders(result.timeline) == (300, 300)


@pytest.mark.parametrize(("model", "transfers"), [("inception3", 190), ("resnet152", 467)])
def test_orders_of_large_models_are_permutations(model: str, transfers: int) -> None:
    profile = profile_for(load_model(model), 32, load_hardware("g3.8xlarge"))
    graph = StepGraph.build(profile)
    assert len(graph.pulls) == transfers
    for entry in (tic_order(graph), tac_order(graph, 1.25e9)):
        assert sorted(entry) == sorted(graph.pulls)
        assert entry[:2] == list(graph.pulls[:2])  # the first layer comes first
