"""What one device of a cut replica computes in a micro-batch: the share of a stage that it holds.

A replica of t x p devices has p stages of units, each shared by t devices. All devices of a stage do the
same; a step is as long as the slowest stage makes it. So one device of that stage stands for all: its ops are
the forward and backward passes of its units, the sums of the tensor cut between them, what is computed again
because it was not kept, and the wait for the other stages to fill and to drain
(`planner.parallel.cut.schedule`), that of a whole step. Exchanges lower it as they lower any computation.

The other way, a program for every rank, would show which stage waits when; it costs p times the events for a
step that differs by the sends between stages alone, which are a hundredth of it where stages are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from planner.device.computation import BACKWARD, COMPUTE, FORWARD, OTHER, RECOMPUTE, SUM, WAIT, Parameter
from planner.device.recompute import Recompute, recomputed_layers
from planner.errors import BadInput
from planner.model import Model
from planner.model.layers import kind_of
from planner.model.units import Chain, Floats, Ints, chain_of
from planner.parallel.cut.schedule import bubble_s, exposed_sends_s
from planner.parallel.cut.stages import balanced
from planner.parallel.cut.tensor import shared


class LayerTimes(Protocol):
    """Seconds of each layer of a model for a batch, and of the optimizer's pass over its parameters."""

    @property
    def forward_s(self) -> Floats: ...
    @property
    def backward_s(self) -> Floats: ...
    @property
    def optimizer_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take: a model's layers for a batch; a sum of so many elements by the devices that share
    layers; and by what share the slowest of them is behind their mean in a pass of so many seconds, as the
    others wait for it at every sum."""

    times: Callable[[Model, int], LayerTimes]
    sum_s: Callable[[float], float]
    lag: Callable[[float], float] = lambda pass_s: 0.0


@dataclass(frozen=True, eq=False)
class UnitTimes:
    """Seconds of each unit of a shared model for one micro-batch."""

    chain: Chain
    forward_s: Floats
    backward_s: Floats
    recompute_s: Floats
    sum_s: Floats  # of one pass; the backward pass has as many
    sum_again_s: Floats  # of what is computed again
    held: Chain  # the units as the device holds them
    optimizer_s: float
    sent_elements: float  # between units, a micro-batch

    @property
    def both_s(self) -> Floats:
        """Forward and backward seconds of each unit, all included."""
        again_s = self.recompute_s + self.sum_again_s
        return np.asarray(self.forward_s + self.backward_s + 2 * self.sum_s + again_s)


@dataclass(frozen=True, eq=False)
class OpPlaces:
    """The ops of one micro-batch on a stage in their order, without their times: names, roles, what they do,
    and where their times stand: in which row (`_ROWS`) and of which unit. One object for all micro-batches
    that have the same, so that what follows from it is found once."""

    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    work: npt.NDArray[np.uint8]
    row: Ints
    unit: Ints
    parameters: tuple[Parameter, ...]
    blocks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StageWork:
    """What the slowest stage does in one micro-batch, and how long each of its ops takes."""

    layout: OpPlaces
    seconds: Floats
    optimizer_s: float
    stages: tuple[int, ...]  # where each begins and the last ends, in units
    stage: int  # the slowest


def unit_times(
    model: Model,
    batch: int,
    tensor: int,
    recompute: Recompute,
    costs: Costs,
    *,
    sequence: bool = True,
    stops_early: bool = False,
) -> UnitTimes:
    """What each unit takes on one of `tensor` devices. `sequence`: positions are cut over them where features
    are not, so that each also sends its part alone to the next stage. `stops_early`: of full recompute
    (`planner.device.recompute`)."""
    cut = shared(model, tensor, sequence=sequence)
    times = costs.times(cut.model, batch)
    chain = chain_of(model)
    forward_s = chain.summed(times.forward_s)
    sums = np.zeros(len(model.layers))
    at, elements, which = _summed_layers(model, tensor, sequence)
    if len(at):
        sums[at] = np.array([costs.sum_s(each * batch) for each in elements])[which]
    again = recomputed_layers(model, recompute, stops_early)
    widest = _widest(model)
    backward_s = chain.summed(times.backward_s)
    recompute_s = chain.summed(np.where(again, times.forward_s, 0.0))
    lag = costs.lag(float(forward_s.sum() + backward_s.sum()))
    return UnitTimes(
        chain,
        forward_s,
        backward_s,
        recompute_s,
        chain.summed(sums) + lag * (forward_s + backward_s) / 2,
        chain.summed(np.where(again, sums, 0.0)) + lag * recompute_s,
        chain_of(cut.model),
        times.optimizer_s,
        float(widest) * batch / (tensor if sequence else 1),
    )


@lru_cache(maxsize=64)
def _summed_layers(model: Model, tensor: int, sequence: bool) -> tuple[Ints, list[float], Ints]:
    """The layers after which devices add up, the numbers of elements of a sample that there are, and which of
    them it is for each layer."""
    places = {layer.name: place for place, layer in enumerate(model.layers)}
    sums = shared(model, tensor, sequence=sequence).sums
    elements, which = np.unique([float(one.elements) for one in sums], return_inverse=True)
    at = np.array([places[one.layer] for one in sums], np.intp)
    return at, elements.tolist(), which.astype(np.intp)


@lru_cache(maxsize=64)
def _widest(model: Model) -> int:
    """Elements of a sample that go from one unit to the next."""
    return max((layer.output_elements for layer in model.layers if kind_of(layer).joins_residual), default=0)


def stage_work(
    times: UnitTimes,
    send_s: Callable[[float], float],
    *,
    pipeline: int = 1,
    interleave: int = 1,
) -> StageWork:
    """One micro-batch on the slowest stage, with the wait of a step. `send_s`: seconds in which so many
    elements are sent to the next stage."""
    chain = times.chain
    if pipeline > chain.length:
        raise BadInput(
            f"{pipeline} pipeline stages for {chain.length} units; the nearest that works is {chain.length}"
        )
    both_s = times.both_s
    ends = _ends(both_s.tobytes(), pipeline)
    stage_s = np.add.reduceat(both_s, ends[:-1])
    slowest = int(np.argmax(stage_s))
    one_s = send_s(times.sent_elements) if pipeline > 1 else 0.0
    wait_s = bubble_s(stage_s, interleave) + 2 * one_s * (pipeline - 1)
    sent_s = exposed_sends_s(one_s, interleave)
    first, last = ends[slowest], ends[slowest + 1]
    layout = _layout(
        chain,
        (first, last),
        (pipeline > 1, sent_s > 0),
        tuple((times.sum_s[first:last] != 0).tolist()),
        tuple((times.recompute_s[first:last] != 0).tolist()),
        tuple((times.sum_again_s[first:last] != 0).tolist()),
        times.held,
    )
    table = np.empty((7, chain.length))
    for row, seconds in (
        (_FORWARD, times.forward_s),
        (_SUM, times.sum_s),
        (_SUM_AGAIN, times.sum_again_s),
        (_RECOMPUTE, times.recompute_s),
        (_BACKWARD, times.backward_s),
        (_WAIT, wait_s),
        (_SEND, sent_s),
    ):
        table[row] = seconds
    held = times.held.elements
    share = float(held[first:last].sum() / max(held.sum(), 1))
    return StageWork(layout, table[layout.row, layout.unit], times.optimizer_s * share, ends, slowest)


@lru_cache(maxsize=4096)
def _ends(unit_s: bytes, stages: int) -> tuple[int, ...]:
    """Where stages of units that take so long begin and end: the same however they are interleaved."""
    found = balanced(np.frombuffer(unit_s), stages)
    assert found is not None
    return found


_FORWARD, _SUM, _RECOMPUTE, _SUM_AGAIN, _BACKWARD, _WAIT, _SEND = range(7)  # rows of the table of times


@lru_cache(maxsize=512)
def _layout(  # noqa: PLR0917
    chain: Chain,
    units: tuple[int, int],
    waits: tuple[bool, bool],
    sums: tuple[bool, ...],
    again: tuple[bool, ...],
    sums_again: tuple[bool, ...],
    held: Chain,
) -> OpPlaces:
    """Of units from the first to before the last: which are summed, computed again and then summed again, and
    as the device holds them. `waits`: for other stages in a step, and for what it sends them in a
    micro-batch."""
    first, last = units
    ops: list[tuple[str, int, int, int, int]] = []  # name, role, work, row, unit
    if waits[0]:
        ops.append(("stages/wait", OTHER, WAIT, _WAIT, first))
    if waits[1]:
        ops.append(("stages/send", OTHER, SUM, _SEND, first))
    forward_at, backward_at = {}, {}
    for unit in range(first, last):
        name = chain.names[unit]
        forward_at[unit] = len(ops)
        ops.append((f"{name}/forward", FORWARD, COMPUTE, _FORWARD, unit))
        if sums[unit - first]:
            ops.append((f"{name}/forward/sum", FORWARD, SUM, _SUM, unit))
    for unit in reversed(range(first, last)):
        name = chain.names[unit]
        if again[unit - first]:
            ops.append((f"{name}/recompute", BACKWARD, RECOMPUTE, _RECOMPUTE, unit))
            if sums_again[unit - first]:
                ops.append((f"{name}/recompute/sum", BACKWARD, SUM, _SUM_AGAIN, unit))
        if sums[unit - first]:
            ops.append((f"{name}/backward/sum", BACKWARD, SUM, _SUM, unit))
        backward_at[unit] = len(ops)
        ops.append((f"{name}/backward", BACKWARD, COMPUTE, _BACKWARD, unit))
    names, role, work, row, at = zip(*ops, strict=True)
    parameters = tuple(
        Parameter(
            chain.names[unit],
            elements,
            (forward_at[unit],),
            backward_at[unit],
            unit - first,
            matrices=held.matrices[unit],
        )
        for unit, elements in enumerate(held.elements[first:last].tolist(), first)
        if elements
    )
    return OpPlaces(
        names,
        np.array(role, np.uint8),
        np.array(work, np.uint8),
        np.array(row, np.intp),
        np.array(at, np.intp),
        parameters,
        tuple(chain.names[first:last]),
    )
