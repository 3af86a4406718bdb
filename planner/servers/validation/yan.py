"""Yan et al. (file 002): best configurations, what scales how, and partitioning against replicating.

The paper prints neither its constants nor the widths of its networks; ours are stated with their reasons in
the hardware and model files, chosen with its findings in view (docs/parameter-servers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from planner.errors import BadInput
from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.servers.partition.costs import Problem, StageSpread
from planner.servers.partition.costs import spread as place_segments
from planner.servers.partition.elimination import minimise
from planner.servers.partition.search import (
    PartitionPlan,
    PartitionRequest,
    PartitionResult,
    partition,
    reading_price,
)
from planner.servers.partition.stages import Stage, stages_of
from planner.validation import row
from planner.validation.row import Row, figures, once

USUAL = PartitionRequest(1)  # machines are as many as a plan names


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """One layer cut into as many parts as workers against as many copies: seconds a sample of a replica."""

    partitioned_s: float
    replicated_s: float
    partitioned_activations_s: float
    replicated_activations_s: float
    partitioned_reading_s: float
    replicated_reading_s: float
    break_even_read_every: float  # samples between reads from which on copies are better


def fixed(
    model: Model | str, hardware: Hardware | str, workers: int, replicas: int, servers: int
) -> PartitionPlan:
    """The best plan of one configuration."""
    request = PartitionRequest(
        workers * replicas + servers, workers=workers, replicas=replicas, servers=servers
    )
    return partition(_model(model), _hardware(hardware), request).plans[0]


def layer_choice(
    model: Model | str,
    hardware: Hardware | str,
    layer: str,
    shape: tuple[int, int, int],
) -> LayerChoice:
    """Partition or replicate one layer, the others at their best for either (the paper's Figure 14)."""
    from planner.servers.partition.layers import constants_for

    workers = shape[0]
    constants = constants_for(_hardware(hardware))
    stages = stages_of(_model(model))
    at = stages.index(_stage_named(stages, layer))
    price = reading_price(constants, USUAL, *shape)

    def best(pair: tuple[int, int]) -> StageSpread:
        problem = Problem(stages, constants, workers)
        choices = [list(options) for options in problem.choices]
        choices[at] = [choice for choice in choices[at] if choice.pair == pair]
        problem.__dict__["choices"] = choices
        return place_segments(problem, minimise(problem.order, problem.factors(price))[1])

    cut, copied = best((workers, 1)), best((1, workers))
    extra = copied.read_bytes - cut.read_bytes
    saved = cut.sample_s - copied.sample_s
    return LayerChoice(
        partitioned_s=cut.sample_s + price * cut.read_bytes,
        replicated_s=copied.sample_s + price * copied.read_bytes,
        partitioned_activations_s=cut.split.network_s,
        replicated_activations_s=copied.split.network_s,
        partitioned_reading_s=price * cut.read_bytes,
        replicated_reading_s=price * copied.read_bytes,
        break_even_read_every=price * extra * USUAL.read_every / saved if saved > 0 else float("inf"),
    )


def samples_within(plan: PartitionPlan, epoch_s: float) -> float:
    """The samples of an epoch that takes the plan so long: for an epoch of which only the time is known."""
    return plan.samples_per_s * epoch_s


def most_samples_within(model: Model | str, hardware: Hardware | str, workers: int, epoch_s: float) -> float:
    """The samples that so many machines could train in that time if every multiply-add of the three passes
    ran at their peak and nothing travelled: no plan, constants or widths of ours allow more."""
    stages = stages_of(_model(model))
    passes = 3 * sum(s.connections for s in stages) - sum(s.connections for s in stages if s.first)
    return epoch_s * workers * _hardware(hardware).device.fp32_flops / (2 * passes)


def _stage_named(stages: Sequence[Stage], layer: str) -> Stage:
    for stage in stages:
        if stage.name == layer:
            return stage
    raise BadInput(f"no layer {layer!r} to partition; there are {', '.join(s.name for s in stages)}")


def _model(model: Model | str) -> Model:
    return load_model(model) if isinstance(model, str) else model


def _hardware(hardware: Hardware | str) -> Hardware:
    return load_hardware(hardware) if isinstance(hardware, str) else hardware


GIVEN: dict[str, Any] = figures("yan")
HARDWARE, SMALL, LARGE = GIVEN["hardware"], GIVEN["small"], GIVEN["large"]
HOW = (
    "`planner partition`: equation 12 with the constants of private-2xe5-2450-10gbe, which the paper does "
    "not print and which were chosen with these findings in view (docs/parameter-servers.md)"
)
_about = row.of_paper("yan", HOW)


def _stated(section: str, name: str, what: str, *, published: str, ours: str, holds: bool, claim: str) -> Row:
    return row.stated(
        published,
        ours,
        holds,
        claim,
        **_about(section, name, what),
    )


@once
def _searched() -> dict[str, PartitionResult]:
    request = PartitionRequest(GIVEN["machines"], max_workers=GIVEN["most_workers"])
    return {
        size: partition(load_model(GIVEN[size]), load_hardware(HARDWARE), request)
        for size in ("small", "large")
    }


def best() -> list[Row]:
    """The best of all configurations of 20 machines."""
    return [
        row.equal(
            GIVEN["best"][size],
            _searched()[size].plans[0].name,
            **_about("best", GIVEN[size], f"{GIVEN[size]}: best <workers, replicas, servers> of 20 machines"),
        )
        for size in ("small", "large")
    ]


def spread() -> list[Row]:
    """How far the worst configuration is from the best, and the epoch itself. The images of the paper's epoch
    are not printed, and cannot be the 15 million of its data set: they are taken from its worst epoch, to
    predict its best."""
    given = GIVEN["spread"]
    plans = _searched()["large"].plans
    first, last = plans[0], plans[-1]
    published = given["worst_minutes"] / given["best_minutes"]
    images = samples_within(last, 60 * given["worst_minutes"])
    workers = first.workers * first.replicas
    most = most_samples_within(LARGE, HARDWARE, workers, 60 * given["best_minutes"])
    return [
        row.near(
            published,
            last.epoch_s / first.epoch_s,
            0.25,
            unit="times",
            **_about("spread", "ratio", "imagenet22k: worst epoch over best"),
        ),
        row.near(
            given["best_minutes"],
            images / first.samples_per_s / 60,
            0.25,
            unit="min",
            **_about(
                "spread",
                "best",
                f"imagenet22k: best epoch, of the {images:,.0f} images that our worst plan, {last.name}, "
                f"trains in the published worst epoch, {given['worst_minutes']} min",
            ),
        ),
        _stated(
            "spread",
            "images",
            f"imagenet22k: images of an epoch of {given['best_minutes']} min",
            published=f"not printed; the data set has over {given['data_set_images']:,}",
            ours=f"{images:,.0f}; {workers} workers at their peak train {most:,.0f}",
            holds=images < most < given["data_set_images"],
            claim="ours below the peak's, the peak's below the data set's",
        ),
    ]


def ranking() -> list[Row]:
    """Who is faster than whom, and why."""
    given = GIVEN["ranking"]
    two, first = (fixed(SMALL, HARDWARE, *given[which]) for which in ("faster", "slower"))
    saved, ahead = first.split.reading_s - two.split.reading_s, first.epoch_s - two.epoch_s
    times = [fixed(SMALL, HARDWARE, *shape).epoch_s for shape in given["fewer_replicas"]]
    return [
        _stated(
            "ranking",
            "reading",
            "mnist: <2,9,2> against <1,18,2>",
            published="faster, because of reading",
            ours=f"{two.epoch_s:.2f} s, {first.epoch_s:.2f} s; reading {two.split.reading_s:.2f}, "
            f"{first.split.reading_s:.2f}",
            holds=0 < ahead < saved,
            claim="faster, by less than reading saves",
        ),
        _stated(
            "ranking",
            "servers",
            "mnist: <1,18,2>, <1,16,4>, <1,12,8>",
            published="slower and slower",
            ours=", ".join(f"{time:.2f} s" for time in times),
            holds=times == sorted(times),
            claim="same order",
        ),
    ]


def _speedups(model: str, shapes: Sequence[Sequence[int]]) -> list[float]:
    times = [fixed(model, HARDWARE, *shape).epoch_s for shape in shapes]
    return [times[0] / time for time in times]


SHAPES: tuple[tuple[str, str, str, str, Callable[[list[float]], bool]], ...] = (
    (
        "workers",
        SMALL,
        "linear to 2, less to 4",
        "above 1.9, then below 3.8",
        lambda s: s[1] > 1.9 and s[2] < 3.8,
    ),
    ("workers", LARGE, "more than linear", "above 2 and 4", lambda s: s[1] > 2 and s[2] > 4),
    ("replicas", SMALL, "linear", "above 3.4 with 4", lambda s: s[2] > 3.4),
    ("replicas", LARGE, "roughly linear", "above 3.4 with 4", lambda s: s[2] > 3.4),
    ("servers", SMALL, "no speedup", "below 1.1 with 4", lambda s: s[2] < 1.1),
    (
        "servers",
        LARGE,
        "speedup, diminishing",
        "above 1.2, then less for each",
        lambda s: s[1] > 1.2 and (s[2] - s[1]) / 2 < s[1] - 1,
    ),
)


def scaling() -> list[Row]:
    """1, 2 and 4 workers a replica, replicas and servers, with 4 of each of the others."""
    rows = []
    for what, model, published, claim, holds in SHAPES:
        ours = _speedups(model, GIVEN["scaling"][what])
        rows.append(
            _stated(
                "scaling",
                f"{what}-{model}",
                f"{model}: speedup with 1, 2 and 4 {what}",
                published=published,
                ours=" ".join(f"{value:.2f}" for value in ours),
                holds=holds(ours),
                claim=claim,
            )
        )
    return rows


def reading() -> list[Row]:
    """How often replicas read the weights."""
    given = GIVEN["reading"]
    workers, replicas, servers = given["shape"]
    times = [
        partition(
            load_model(LARGE),
            load_hardware(HARDWARE),
            PartitionRequest(
                GIVEN["machines"], read_every=every, workers=workers, replicas=replicas, servers=servers
            ),
        )
        .plans[0]
        .epoch_s
        for every in given["every"]
    ]
    return [
        _stated(
            "reading",
            "rate",
            "imagenet22k: reading after 35, 70, 150 images",
            published="less often is faster",
            ours=" ".join(f"{times[1] / time:.2f}" for time in times) + " of the speed at 70",
            holds=times == sorted(times, reverse=True),
            claim="same order",
        )
    ]


def layer() -> list[Row]:
    """Partitioning against replicating the output layer."""
    given = GIVEN["layer"]
    choice = layer_choice(LARGE, HARDWARE, given["layer"], tuple(given["shape"]))

    def pair(partitioned_s: float, replicated_s: float) -> str:
        return f"partitioned {1e3 * partitioned_s:.2f}, replicated {1e3 * replicated_s:.2f} ms"

    return [
        _stated(
            "layer",
            name,
            f"imagenet22k: output layer, {what} a sample",
            published=f"replicated is {'lower' if lower else 'higher'}",
            ours=pair(partitioned, replicated),
            holds=(replicated < partitioned) == lower,
            claim="same order",
        )
        for name, what, partitioned, replicated, lower in (
            ("total", "time", choice.partitioned_s, choice.replicated_s, True),
            (
                "activations",
                "communication of activations",
                choice.partitioned_activations_s,
                choice.replicated_activations_s,
                True,
            ),
            (
                "weights",
                "communication of weights",
                choice.partitioned_reading_s,
                choice.replicated_reading_s,
                False,
            ),
        )
    ]


CHECKS = {
    "best": best,
    "spread": spread,
    "ranking": ranking,
    "scaling": scaling,
    "reading": reading,
    "layer": layer,
}
