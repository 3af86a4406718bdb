"""Whether copies of an output layer pay, by every reading of Yan et al. (docs/parameter-servers.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from planner.hardware.catalog import load_hardware
from planner.model import BYTES_PER_ELEMENT
from planner.model.catalog import load_model
from planner.servers.partition.costs import StageChoice, stage_split
from planner.servers.partition.layers import constants_for
from planner.servers.partition.search import PartitionRequest, reading_price
from planner.servers.partition.stages import stages_of

USUAL = PartitionRequest(1)  # machines are as many as a plan names


def copies_pay_below(hardware: str, outputs: int, shape: tuple[int, int, int]) -> float:
    """The number of inputs of a dense layer below which copies of it beat its parts, in the case best for
    copies: parts exchange all their inputs and, as equation 3 may be read, the error terms of all outputs
    instead of sums of them, at two latencies a sample. Both sides grow with the inputs but for the outputs'
    errors, while copies read inputs times outputs."""
    c = constants_for(load_hardware(hardware))
    workers = shape[0]
    remote = (workers - 1) / workers * BYTES_PER_ELEMENT / c.nic_bytes_per_s  # seconds an element
    latency = 2 * c.latency_s[-1] / c.threads
    read = (workers - 1) * outputs * BYTES_PER_ELEMENT
    price = reading_price(c, USUAL, *shape)
    return (outputs * remote + latency) / (read * price - remote)


class CopyReading(NamedTuple):
    """One way to read the paper on partitioning against replicating a layer: computing, activations and
    reading of the layer in seconds a sample of a replica, with as many parts as workers or as many copies."""

    name: str
    partitioned_s: tuple[float, float, float]
    replicated_s: tuple[float, float, float]


def copy_readings(
    model: str,
    hardware: str,
    layer: str,
    shape: tuple[int, int, int],
) -> list[CopyReading]:
    """A dense layer behind one that is cut, alone, by every way that we see to read section 6.4 and equations
    6 and 10 to 12. From the second line on parts exchange all they can: their inputs, the errors of their
    inputs, all outputs (for the softmax) and the error terms of all outputs."""
    c = constants_for(load_hardware(hardware))
    stage = next(stage for stage in stages_of(load_model(model)) if stage.name == layer)
    workers, replicas, servers = shape
    element_s, latency_s = BYTES_PER_ELEMENT / c.nic_bytes_per_s, c.latency_s[-1] / c.threads
    remote = (workers - 1) / workers

    def computing(cache_bytes: float, partitions: int, replications: int) -> float:
        choice = StageChoice(partitions, replications, c.threads)
        return stage_split(replace(c, cache_bytes=cache_bytes), stage, choice).compute_s

    cut, copied = computing(c.cache_bytes, workers, 1), computing(c.cache_bytes, 1, workers)
    cached = computing(math.inf, workers, 1)
    inputs = 2 * (remote * stage.in_elements * element_s + latency_s)
    everything = inputs + 2 * (remote * stage.out_elements * element_s + latency_s)
    copies = (remote / workers + 1 / workers) * stage.in_elements * element_s + (1 + 1 / workers) * latency_s
    read = stage.weight_bytes / (c.nic_bytes_per_s * min(workers, servers) * USUAL.read_every)
    alone = stage.weight_bytes / (c.nic_bytes_per_s * USUAL.read_every * workers)
    turns, h = replicas * read, c.threads
    return [
        CopyReading("as we count", (cut, inputs, turns), (copied, copies, workers * turns)),
        CopyReading(
            "all outputs and errors travel", (cut, everything, turns), (copied, copies, workers * turns)
        ),
        CopyReading(
            "and threads do not share a wait",
            (cut, h * everything, turns),
            (copied, h * copies, workers * turns),
        ),
        CopyReading(
            "only the reading replica waits", (cut, everything, read), (copied, copies, workers * read)
        ),
        CopyReading(
            "each copy reads after its own samples, only it waits",
            (cut, everything, read),
            (copied, copies, alone),
        ),
        CopyReading("copies are read once", (cut, everything, turns), (copied, copies, turns)),
        CopyReading(
            "copies are read once, no cache effect", (cached, everything, turns), (cached, copies, turns)
        ),
    ]
