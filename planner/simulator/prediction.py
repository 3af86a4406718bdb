"""What the simulator says of a plan.

How much of each resource a simulation used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.files.tomlfile import convert
from planner.simulator.cluster import COMPUTATION, HOSTS, Cluster, Resource, ResourceKind, as_text
from planner.simulator.run import RunResult
from planner.simulator.statistics import measured_s


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput of a plan with its interval, and where the time goes.

    `utilisation` maps a resource to the share of time (for
    links: of capacity) it is used, averaged over workers for `worker`; `bottleneck` is the most used one.
    """

    samples_per_s: float
    samples_per_s_low: float
    samples_per_s_high: float
    confidence: float
    precision: float  # half-width reached, relative to samples_per_s
    runs: int
    steps: int  # measured steps over all runs and workers
    step_s: float  # mean
    step_s_quantiles: dict[str, float]  # p5, p50, p95
    utilisation: dict[Resource, float]
    bottleneck: Resource
    worker_samples_per_s: tuple[float, ...]
    staleness_mean: float = 0.0
    staleness_max: int = 0
    events: int = 0
    engine: str = ""  # which path ran, as RunResult.path says
    timeline: Any = None
    notes: tuple[str, ...] = field(default=())
    input_s: float = 0.0  # of a step, in which devices wait for their input

    def record(self) -> dict[str, Any]:
        """As stores, studies and JSON keep it, without its timeline."""
        record = asdict(replace(self, timeline=None)) | {
            "utilisation": as_text(self.utilisation),
            "bottleneck": str(self.bottleneck),
        }
        if not self.input_s:
            del record["input_s"]
        return record

    @staticmethod
    def read(record: Mapping[str, Any]) -> Prediction:
        """From its record."""
        used = convert(record.get("utilisation"), dict[str, float])
        typed = {
            "utilisation": {Resource.read(text): share for text, share in used.items()},
            "bottleneck": Resource.read(convert(record.get("bottleneck"), str)),
        }
        return convert({**record, **typed}, Prediction)


def utilisation(
    cluster: Cluster, results: Sequence[RunResult], server_cores: int | None = None
) -> dict[Resource, float]:
    """The share of its capacity that each resource used, over all runs.

    `downlink[s]` and `uplink[s]` are server s's NIC out and in; `worker`, `host` and `ps[s]` are averages
    over workers; what is done once for several of them counts once, and where a node has fewer cores than it
    has workers, or a server has others, `host` and `ps[s]` are shares of those. Where a worker's NIC can be
    the narrower end, `worker downlink` and `worker uplink` are the busiest worker node's NIC. A link goes by
    its name, with the busiest of the ports that its flows cross; a joint op crosses its leader's ports alone,
    so they stand for the other members'.
    """
    seconds = sum(measured_s(result) for result in results)
    sent: npt.NDArray[np.float64] = np.sum([result.link_bytes for result in results], axis=0) / seconds
    busy = np.sum([result.worker_busy_s for result in results], axis=0) / seconds
    updating = np.sum([result.ps_busy_s for result in results], axis=0) / seconds
    nodes = cluster.nodes
    ends = np.array(cluster.ends, np.int64).reshape(cluster.workers, cluster.channels, 2)
    sent = sent * (ends[:, :, 0] != ends[:, :, 1])
    out: dict[Resource, float] = {}
    for s, node in enumerate(cluster.server_nodes):
        out[Resource(ResourceKind.DOWNLINK, s)] = float(sent[0, :, s].sum()) / nodes[node].egress_bytes_per_s
    out[COMPUTATION] = float(busy.mean())
    parsing = np.sum([result.host_busy_s for result in results], axis=0) / seconds
    if parsing.any():
        out[HOSTS] = _hosts(cluster, parsing)
    for s, node in enumerate(cluster.server_nodes):
        out[Resource(ResourceKind.UPLINK, s)] = float(sent[1, :, s].sum()) / nodes[node].ingress_bytes_per_s
    for s, node in enumerate(cluster.server_nodes):
        lanes = max(np.count_nonzero(updating[:, s]), 1)
        cores = server_cores or min(nodes[node].cores or lanes, lanes)
        out[Resource(ResourceKind.PS, s)] = float(updating[:, s].sum() / cores)
    for kind, direction, side in (
        (ResourceKind.WORKER_DOWNLINK, 0, "ingress_bytes_per_s"),
        (ResourceKind.WORKER_UPLINK, 1, "egress_bytes_per_s"),
    ):
        by_node: dict[int, float] = {}
        for w, node in enumerate(cluster.worker_nodes):
            by_node[node] = by_node.get(node, 0.0) + float(sent[direction, w, : cluster.servers].sum())
        other = "egress_bytes_per_s" if direction == 0 else "ingress_bytes_per_s"
        narrowest = min(getattr(nodes[n], side) for n in by_node)
        servers_together = sum(getattr(nodes[n], other) for n in cluster.server_nodes)
        if narrowest < servers_together:
            out[Resource(kind)] = max(value / getattr(nodes[n], side) for n, value in by_node.items())
    for channel in range(cluster.servers, cluster.channels):
        link, busiest = cluster.link_resource(channel), _busiest_port(cluster, ends, sent, channel)
        busy_lane = float(updating[:, channel].max())  # joint ops of a known duration
        out[link] = max(busiest, busy_lane, out.get(link, 0.0))
    return out


def _hosts(cluster: Cluster, parsing: npt.NDArray[np.float64]) -> float:
    """The share of their time, or of their node's cores where these are fewer, that hosts parse for."""
    there = np.array(cluster.worker_nodes)
    shares = []
    for node in np.unique(there).tolist():
        busy = parsing[(there == node) & (parsing > 0)]
        if len(busy):
            shares.append(busy.sum() / min(cluster.nodes[node].cores or len(busy), len(busy)))
    return float(np.mean(shares))


def _busiest_port(
    cluster: Cluster, ends: npt.NDArray[np.int64], sent: npt.NDArray[np.float64], channel: int
) -> float:
    """The share of its capacity that the busiest of a channel's ports used, for this channel."""
    shares = [0.0]
    near, far, nodes = ends[:, channel, 0], ends[:, channel, 1], len(cluster.nodes)
    down, up = sent[0, :, channel], sent[1, :, channel]
    egress = np.bincount(near, up, nodes) + np.bincount(far, down, nodes)
    ingress = np.bincount(far, up, nodes) + np.bincount(near, down, nodes)
    for node in np.flatnonzero(egress + ingress):
        shares.append(egress[node] / cluster.nodes[node].egress_bytes_per_s)
        shares.append(ingress[node] / cluster.nodes[node].ingress_bytes_per_s)
    return float(max(shares))
