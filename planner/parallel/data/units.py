"""Units of sharded training: the blocks of a model, and the stretches of a step in which each one computes.

A device runs its ops in order; an op belongs to the unit whose parameters it reads, or whose gradients it
makes, or else to the unit of the op before it. So a pass is a sequence of stretches, one unit each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from planner.device.computation import BACKWARD, FORWARD, Computation, layout_key
from planner.device.precision import Precision
from planner.memoize import memoize


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters that are gathered and scattered together."""

    name: str
    elements: int
    frozen_bytes: float = 0.0  # of parameters beside them that are not trained

    def gathered_bytes(self, precision: Precision, stage: int) -> float:
        """Bytes that a ZeRO stage gathers; frozen parameters count in stage 3 only, at their stored size."""
        trained = float(self.elements * precision.parameter_bytes)
        return trained + self.frozen_bytes if stage == 3 else trained

    def __add__(self, other: Unit) -> Unit:
        """Both units wrapped as one."""
        return Unit(self.name, self.elements + other.elements, self.frozen_bytes + other.frozen_bytes)

    @property
    def size(self) -> float:
        """Number of elements; frozen parameters count as the 16-bit elements that fill the same bytes."""
        return self.elements + self.frozen_bytes / 2


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive ops of one unit, from `first` to `last`. `gathers`: the unit's parameters are gathered
    before it; `scatters`: units whose gradients are complete after it; `final`: it is in the last
    micro-batch. Its collectives count for `stands_for` micro-batches."""

    name: str
    unit: int
    first: int
    last: int
    gathers: bool
    scatters: tuple[int, ...]
    final: bool
    stands_for: float = 1.0


@dataclass(frozen=True, slots=True)
class Units:
    """Units of a computation, and the index of the unit of each block."""

    units: tuple[Unit, ...]
    of_block: tuple[int, ...]

    def __getitem__(self, number: int) -> Unit:
        return self.units[number]

    def __len__(self) -> int:
        return len(self.units)


def sharding_units(computation: Computation, least: int = 0) -> Units:
    """Units that are gathered together: the blocks in order, small ones merged up to `least` elements."""
    blocks = [Unit(name, 0) for name in computation.blocks]
    for parameter in computation.parameters:
        blocks[parameter.block] += Unit(parameter.name, parameter.elements, parameter.frozen_bytes)
    units: list[Unit] = []
    of_block: list[int] = []
    open_ = False
    for block in blocks:
        if open_:
            units[-1] += block
        else:
            units.append(block)
        of_block.append(len(units) - 1)
        open_ = units[-1].size < least
    if open_ and len(units) > 1:  # what is left over joins the last
        rest = units.pop()
        units[-1] += rest
        of_block = [min(unit, len(units) - 1) for unit in of_block]
    return Units(tuple(units), tuple(of_block))


@memoize(on=layout_key)
def unit_stretches(computation: Computation, units: Units) -> tuple[Stretch, ...]:
    """Stretches of a step in order: consecutive ops that belong to one unit."""
    n = computation.ops // computation.micro_batches
    needs: dict[int, int] = {}  # op of the first micro-batch -> the unit it computes with
    complete: dict[int, int] = {}  # unit -> op after which its gradients are complete
    for parameter in computation.parameters:
        unit = units.of_block[parameter.block]
        for op in parameter.readers:
            needs.setdefault(op % n, unit)
        if parameter.ready is not None:
            needs.setdefault(parameter.ready % n, unit)
            complete[unit] = max(complete.get(unit, 0), parameter.ready % n)
    owner = _unit_by_op(computation, needs, n)
    cuts = [0, *(op for op in range(1, n) if owner[op] != owner[op - 1]), n]
    turn = next((op for op, role in enumerate(computation.role[:n].tolist()) if role == BACKWARD), n)
    if turn not in cuts:
        cuts = sorted([*cuts, turn])
    one_pass = [(owner[first], first, last - 1) for first, last in pairwise(cuts)]
    ends: dict[int, list[int]] = {}
    for unit, op in complete.items():
        ends.setdefault(op, []).append(unit)
    sequence: list[Stretch] = []
    for micro in range(computation.micro_batches):
        kept: int | None = None
        for unit, first, last in one_pass:
            forward = first < turn
            done = [unit for op in range(first, last + 1) for unit in ends.get(op, ())]
            gathers = units[unit].size > 0 and unit != kept
            kept = unit  # still there if it comes next again, as at the turn
            sequence.append(
                Stretch(
                    "forward" if forward else "backward",
                    unit,
                    micro * n + first,
                    micro * n + last,
                    gathers,
                    tuple(done),
                    micro == computation.micro_batches - 1,
                    computation.stands_for[micro] if computation.stands_for else 1.0,
                )
            )
    return tuple(sequence)


def _unit_by_op(computation: Computation, needs: dict[int, int], op_count: int) -> list[int]:
    """Index of the unit of each op in a pass."""
    owner: list[int] = []
    current = next((needs[op] for op in range(op_count) if op in needs), 0)
    for op in range(op_count):
        current = needs.get(op, current)
        owner.append(current)
    role = computation.role.tolist()
    # A backward op that makes no gradient itself works for the next one that does.
    for op in range(op_count - 2, -1, -1):
        if role[op] == BACKWARD and op not in needs and role[op + 1] != FORWARD:
            owner[op] = owner[op + 1]
    return owner
