"""Gradient accumulation: several forward and backward passes before the optimizer moves the parameters.

A training step ends with the optimizer. The loop may mark every pass (`prof.step()` after each) or the whole
step; either way a step here is all passes up to the optimizer's, and a parameter in it is read by each pass
and sent once, after the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.device.recorded.importers.kineto import OuterOp


@dataclass
class AccumulatedParameter:
    """One parameter (or one bucket of them): who reads it, and after which op its gradient is ready."""

    name: str
    bytes: int
    readers: tuple[int, ...]  # positions of forward ops
    ready: int  # position of the op after which it can be sent
    item_bytes: int = 4  # of an element of its gradient
    passes: int = 1  # that add to its gradient before it is sent


@dataclass(frozen=True)
class MicroSteps:
    """Where the passes of a step begin, as positions of its ops, and the ops that are differentiated."""

    starts: tuple[int, ...]
    forward: tuple[int, ...]

    @property
    def last(self) -> int:
        return self.starts[-1]

    def rank(self, position: int) -> int:
        """The how manyth differentiated op of its pass an op is."""
        start = self.starts[bisect_right(self.starts, position) - 1]
        return bisect_right(self.forward, position) - bisect_right(self.forward, start)

    def split(self, parameters: Sequence[AccumulatedParameter]) -> list[list[AccumulatedParameter]]:
        """The parameters whose gradients each pass makes."""
        out: list[list[AccumulatedParameter]] = [[] for _ in self.starts]
        for parameter in parameters:
            out[bisect_right(self.starts, parameter.ready) - 1].append(parameter)
        return out


def passes_of(ops: Sequence[OuterOp]) -> MicroSteps:
    """A pass begins with a differentiated op that comes after a backward op."""
    forward = sorted({op.forward for op in ops if op.forward is not None})
    differentiated, starts, fresh = set(forward), [], True
    for position, op in enumerate(ops):
        if op.backward:
            fresh = True
        elif fresh and position in differentiated:
            starts.append(position)
            fresh = False
    return MicroSteps(tuple(starts), tuple(forward))


def merged(
    parameters: list[AccumulatedParameter], passes: MicroSteps, notes: list[str]
) -> list[AccumulatedParameter]:
    """The parameters once each. Passes accumulate if each makes the same gradients for the same ops."""
    if len(passes.starts) < 2:
        return parameters
    by_pass = passes.split(parameters)
    alike = [
        [(passes.rank(parameter.readers[0]), parameter.bytes) for parameter in found] for found in by_pass
    ]
    if any(signature != alike[0] for signature in alike):
        notes.append(
            f"{len(by_pass)} backward passes in a step, which make different gradients: each counts as a "
            "tensor of its own"
        )
        return parameters
    notes.append(
        f"gradient accumulation: {len(by_pass)} passes a step, each reads every parameter, the last sends "
        "the gradients; the batch is that of all passes together"
    )
    return [
        replace(
            copies[0],
            readers=tuple(dict.fromkeys(p.readers[0] for p in copies)),
            ready=copies[-1].ready,
            passes=len(by_pass),
        )
        for copies in zip(*by_pass, strict=True)
    ]


def joined(
    windows: Sequence[tuple[float, float]], optimizer_starts: Sequence[float]
) -> list[tuple[float, float]]:
    """Marks of single passes joined to steps, each of which ends with the optimizer. Steps of another number
    of passes than most are left out: the first and the last, of which a part was recorded, and those that
    the optimizer skipped."""
    groups = list(_groups(windows, sorted(optimizer_starts)))
    if not groups:
        return list(windows)
    most = max(Counter(map(len, groups)).items(), key=lambda found: (found[1], -found[0]))[0]
    return [(group[0][0], group[-1][1]) for group in groups if len(group) == most]


def _groups(
    windows: Sequence[tuple[float, float]], optimizer_starts: Sequence[float]
) -> Iterator[list[tuple[float, float]]]:
    group: list[tuple[float, float]] = []
    for low, high in windows:
        group.append((low, high))
        if bisect_left(optimizer_starts, low) < bisect_left(optimizer_starts, high):
            yield group
            group = []
