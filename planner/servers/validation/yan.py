"""Yan et al. (KDD 2015): best configurations, what scales how, and partitioning against replicating.

The paper prints neither its constants nor the widths of its networks; ours are stated with their reasons in
the hardware and model files, chosen with its findings in view (docs/parameter-servers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from planner.errors import BadInput
from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.servers.partition.costs import PartitionProblem, minimise, place_segments
from planner.servers.partition.layers import constants_for
from planner.servers.partition.search import (
    PartitionPlan,
    PartitionRequest,
    PartitionResult,
    partition,
    read_cost_s_per_byte,
)
from planner.servers.partition.stages import stages_of
from planner.validation.row import Paper, Row, Section, compute_once

HOW = (
    "`planner partition`: equation 12 with the constants of private-2xe5-2450-10gbe, which the paper does "
    "not print and which were chosen with these findings in view (docs/parameter-servers.md)"
)
PAPER = Paper("yan", HOW)
GIVEN, CHECKS = PAPER.figures, PAPER.checks
HARDWARE, SMALL, LARGE = GIVEN["hardware"], GIVEN["small"], GIVEN["large"]


def best_plan(model: str, hardware: str, shape: Sequence[int], read_every: int = 70) -> PartitionPlan:
    """Fastest plan with exactly these (workers per replica, replicas, servers)."""
    workers, replicas, servers = shape
    machines = workers * replicas + servers
    request = PartitionRequest(machines, read_every, workers=workers, replicas=replicas, servers=servers)
    return partition(load_model(model), load_hardware(hardware), request).plans[0]


class LayerCost(NamedTuple):
    """Seconds per sample of a replica in which one layer is partitioned or replicated."""

    total_s: float
    activations_s: float
    reading_s: float


def layer_costs(
    model: str, hardware: str, layer: str, shape: tuple[int, int, int]
) -> tuple[LayerCost, LayerCost]:
    """Costs of a replica with one layer partitioned, and with it replicated, over all workers (Figure 14).

    The other layers are at their best.
    """
    workers, constants = shape[0], constants_for(load_hardware(hardware))
    stages = stages_of(load_model(model))
    names = [stage.name for stage in stages]
    if layer not in names:
        raise BadInput(f"no layer {layer!r} to partition; there are {', '.join(names)}")
    price = read_cost_s_per_byte(constants, PartitionRequest(1), *shape)

    def layer_cost(pair: tuple[int, int]) -> LayerCost:
        """Cost of the replica with the layer at these (partitions, replications)."""
        problem = PartitionProblem(stages, constants, workers)
        options = problem.choices[names.index(layer)]
        options[:] = [choice for choice in options if choice.degrees == pair]
        best = place_segments(problem, minimise(problem.order, problem.factors(price))[1])
        reading_s = price * best.read_bytes
        return LayerCost(best.sample_s + reading_s, best.split.network_s, reading_s)

    return layer_cost((workers, 1)), layer_cost((1, workers))


def samples_within(plan: PartitionPlan, epoch_s: float) -> float:
    """Number of samples that a plan trains in `epoch_s` seconds."""
    return plan.samples_per_s * epoch_s


def most_samples_within(model: Model, hardware: Hardware, workers: int, epoch_s: float) -> float:
    """Upper bound on the samples trained in `epoch_s` seconds: peak FLOP/s, no communication.

    No plan, constants or widths of ours allow more.
    """
    stages = stages_of(model)
    passes = 3 * sum(s.connections for s in stages) - sum(s.connections for s in stages if s.is_first)
    return epoch_s * workers * hardware.device.fp32_flops / (2 * passes)


@compute_once
def _partition_results() -> dict[str, PartitionResult]:
    """Partition searches of the paper's small and large networks."""
    request = PartitionRequest(GIVEN["machines"], max_workers=GIVEN["most_workers"])
    return {
        size: partition(load_model(GIVEN[size]), load_hardware(HARDWARE), request)
        for size in ("small", "large")
    }


@PAPER.check()
def check_best(section: Section) -> Iterator[Row]:
    """Yields rows comparing the fastest configuration of 20 machines."""
    for size in ("small", "large"):
        what = f"{GIVEN[size]}: best <workers, replicas, servers> of 20 machines"
        yield section.equal(
            GIVEN[size], what, section.figures[size], _partition_results()[size].plans[0].name
        )


@PAPER.check()
def check_spread(section: Section) -> Iterator[Row]:
    """Yields rows comparing the epoch times of the worst and the best configuration.

    The images of the paper's epoch are not printed, and cannot be the 15 million of its data set: they are
    taken from its worst epoch, to predict its best.
    """
    given = section.figures
    best_min, worst_min, known = given["best_minutes"], given["worst_minutes"], given["data_set_images"]
    plans = _partition_results()["large"].plans
    first, last = plans[0], plans[-1]
    images = samples_within(last, 60 * worst_min)
    workers = first.workers * first.replicas
    most = most_samples_within(load_model(LARGE), load_hardware(HARDWARE), workers, 60 * best_min)
    what, ratio = "imagenet22k: worst epoch over best", last.epoch_s / first.epoch_s
    yield section.near("ratio", what, worst_min / best_min, ratio, 0.25, unit="times")
    what = (
        f"imagenet22k: best epoch, of the {images:,.0f} images that our worst plan, {last.name}, trains in "
        f"the published worst epoch, {worst_min} min"
    )
    yield section.near("best", what, best_min, images / first.samples_per_s / 60, 0.25, unit="min")
    yield section.stated(
        "images",
        f"imagenet22k: images of an epoch of {best_min} min",
        f"not printed; the data set has over {known:,}",
        f"{images:,.0f}; {workers} workers at their peak train {most:,.0f}",
        images < most < known,
        "ours below the peak's, the peak's below the data set's",
    )


@PAPER.check()
def check_ranking(section: Section) -> Iterator[Row]:
    """Yields rows comparing the ranking of fixed configurations, and checking that weight reads explain
    it."""
    given = section.figures
    two, first = (best_plan(SMALL, HARDWARE, given[which]) for which in ("faster", "slower"))
    saved_s, ahead_s = first.split.reading_s - two.split.reading_s, first.epoch_s - two.epoch_s
    readings = f"reading {two.split.reading_s:.2f}, {first.split.reading_s:.2f}"
    what, ours = "mnist: <2,9,2> against <1,18,2>", f"{two.epoch_s:.2f} s, {first.epoch_s:.2f} s; {readings}"
    holds, claim = 0 < ahead_s < saved_s, "faster, by less than reading saves"
    yield section.stated("reading", what, "faster, because of reading", ours, holds, claim)
    times_s = [best_plan(SMALL, HARDWARE, shape).epoch_s for shape in given["fewer_replicas"]]
    what, ours = "mnist: <1,18,2>, <1,16,4>, <1,12,8>", ", ".join(f"{time:.2f} s" for time in times_s)
    yield section.stated("servers", what, "slower and slower", ours, times_s == sorted(times_s), "same order")


SHAPES: tuple[tuple[str, str, str, str, Callable[[float, float], bool]], ...] = (  # of speedups with 2 and 4
    (
        "workers",
        SMALL,
        "linear to 2, less to 4",
        "above 1.9, then below 3.8",
        lambda x, y: x > 1.9 and y < 3.8,
    ),
    ("workers", LARGE, "more than linear", "above 2 and 4", lambda x, y: x > 2 and y > 4),
    ("replicas", SMALL, "linear", "above 3.4 with 4", lambda x, y: y > 3.4),
    ("replicas", LARGE, "roughly linear", "above 3.4 with 4", lambda x, y: y > 3.4),
    ("servers", SMALL, "no speedup", "below 1.1 with 4", lambda x, y: y < 1.1),
    (
        "servers",
        LARGE,
        "speedup, diminishing",
        "above 1.2, then less for each",
        lambda x, y: x > 1.2 and (y - x) / 2 < x - 1,
    ),
)


@PAPER.check()
def check_scaling(section: Section) -> Iterator[Row]:
    """Yields rows comparing speedups with 1, 2 and 4 workers per replica, replicas and servers."""
    for kind, model, published, claim, holds in SHAPES:
        times_s = [best_plan(model, HARDWARE, shape).epoch_s for shape in section.figures[kind]]
        speedups = [times_s[0] / time_s for time_s in times_s]
        what, ours = f"{model}: speedup with 1, 2 and 4 {kind}", " ".join(f"{each:.2f}" for each in speedups)
        yield section.stated(f"{kind}-{model}", what, published, ours, holds(*speedups[1:]), claim)


@PAPER.check()
def check_reading(section: Section) -> Iterator[Row]:
    """Yields rows comparing epoch times by how often replicas read the weights."""
    given = section.figures
    times_s = [best_plan(LARGE, HARDWARE, given["shape"], every).epoch_s for every in given["every"]]
    ours = " ".join(f"{times_s[1] / time_s:.2f}" for time_s in times_s) + " of the speed at 70"
    holds, what = times_s == sorted(times_s, reverse=True), "imagenet22k: reading after 35, 70, 150 images"
    yield section.stated("rate", what, "less often is faster", ours, holds, "same order")


@PAPER.check()
def check_layer(section: Section) -> Iterator[Row]:
    """Yields rows comparing partitioning with replicating the output layer."""
    given = section.figures
    parts, copies = layer_costs(LARGE, HARDWARE, given["layer"], tuple(given["shape"]))
    for name, words, part_s, copy_s, lower in (
        ("total", "time", parts.total_s, copies.total_s, True),
        ("activations", "communication of activations", parts.activations_s, copies.activations_s, True),
        ("weights", "communication of weights", parts.reading_s, copies.reading_s, False),
    ):
        what, holds = f"imagenet22k: output layer, {words} a sample", (copy_s < part_s) == lower
        published = f"replicated is {'lower' if lower else 'higher'}"
        ours = f"partitioned {1e3 * part_s:.2f}, replicated {1e3 * copy_s:.2f} ms"
        yield section.stated(name, what, published, ours, holds, "same order")
