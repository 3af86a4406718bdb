"""Yan et al. (KDD 2015), section 6: the published result beside ours, whether copies of an output layer pay
by every reading of the paper (docs/parameter-servers.md), and the speed of the search.

Run: python benchmarks/accuracy/partition.py [paper] [speed]
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import NamedTuple

from planner.hardware.catalog import load_hardware
from planner.model import BYTES_PER_ELEMENT
from planner.model.catalog import load_model
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.servers.partition.costs import StageChoice, stage_split
from planner.servers.partition.layers import constants_for
from planner.servers.partition.search import PartitionRequest, partition, reading_price
from planner.servers.partition.stages import stages_of
from planner.servers.validation.yan import most_samples_within, samples_within
from planner.validation import validate

BEST_S, WORST_S = 11.88 * 60, 218.08 * 60
CLUSTER = "private-2xe5-2450-10gbe"
USUAL = PartitionRequest(1)  # machines are as many as a plan names


def paper() -> None:
    emit(validation_tables(validate(["yan"])))


def limits() -> None:
    """What the paper's own figures allow, whatever our widths and constants."""
    model, hardware = load_model("imagenet22k-adam"), load_hardware(CLUSTER)
    plans = partition(model, hardware, PartitionRequest(20, max_workers=4)).plans
    best, worst = plans[0], plans[-1]
    peak = most_samples_within(model, hardware, best.workers * best.replicas, BEST_S)
    print(f"images in 11.88 min: {peak:,.0f} on 16 workers at their peak (the data set: over 15,000,000)")
    images = samples_within(worst, WORST_S)
    print(
        f"images from the worst epoch, 218.08 min on {worst.name}: {images:,.0f}; the best, {best.name}, "
        f"then takes {images / best.samples_per_s / 60:.2f} min (published: 11.88)"
    )
    images = samples_within(best, BEST_S)
    print(
        f"images from the best epoch, 11.88 min on {best.name}: {images:,.0f}; the worst, {worst.name}, "
        f"then takes {images / worst.samples_per_s / 60:.1f} min (published: 218.08)"
    )
    print("output layer cut in 4 or in 4 copies, ms a sample: computing + activations + reading")
    for way in copy_readings("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4)):
        cut, copied = (
            " + ".join(f"{1e3 * part:.2f}" for part in parts) + f" = {1e3 * sum(parts):.2f}"
            for parts in (way.partitioned_s, way.replicated_s)
        )
        print(f"  {way.name}: parts {cut}, copies {copied}")
    inputs = copies_pay_below(CLUSTER, 22_000, (4, 4, 4))
    print(f"copies of a layer with 22,000 outputs pay below {inputs:.1f} inputs; ours has 3,000")


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


def speed() -> None:
    hardware = load_hardware(CLUSTER)
    partition(load_model("mnist-adam"), hardware, PartitionRequest(4))  # imports
    for name, machines, limit in (("inception3", 16, 2.0), ("resnet152", 64, 10.0)):
        model = load_model(name)
        start = time.process_time()
        result = partition(model, hardware, PartitionRequest(machines, samples=1_281_167))
        spent = time.process_time() - start
        gap = max(plan.gap for plan in result.plans[:20])
        print(
            f"{name} on {machines} machines: {spent:.2f} CPU s (limit {limit:.0f}), {result.considered} "
            f"configurations, 10^{result.combinations:.0f} ways to spread the layers, best "
            f"{result.plans[0].name}, at most {gap:.2%} from optimal"
        )


if __name__ == "__main__":
    asked = sys.argv[1:] or ["paper", "speed"]
    if "paper" in asked:
        paper()
        limits()
    if "speed" in asked:
        speed()
