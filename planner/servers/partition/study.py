"""Questions about one layer or one setting, beside the search: what a change costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import BadInput
from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.servers.partition.costs import Problem, StageSpread, spread
from planner.servers.partition.elimination import minimise
from planner.servers.partition.search import PartitionPlan, PartitionRequest, partition, reading_price
from planner.servers.partition.stages import Stage, stages_of

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
    from planner.servers.partition.constants import constants_for

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
        return spread(problem, minimise(problem.order, problem.factors(price))[1])

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
