"""Measured collectives: time by message size, interpolated in the logarithm of the size.

An affine law (latency + bytes / bandwidth) misses middle sizes by 20 to 50%, because libraries change their
protocol on the way; so the points themselves are kept. Below the smallest message a collective takes as long
as that one, above the largest it keeps that one's bandwidth.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from planner.errors import BadInput
from planner.hardware.collective_curves import curves as measured_runs
from planner.memoize import memoize


@dataclass(frozen=True, eq=False)
class TimeCurve:
    """One collective over one number of members: sizes of the message in bytes, and seconds."""

    sizes: tuple[float, ...]
    times_s: tuple[float, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.sizes or len(self.sizes) != len(self.times_s):
            raise BadInput(f"a curve of {len(self.sizes)} sizes and {len(self.times_s)} times")
        if min(self.sizes) <= 0 or min(self.times_s) <= 0:
            raise BadInput(f"a curve needs sizes and times above zero ({self.source})")
        if any(a >= b for a, b in pairwise(self.sizes)):
            raise BadInput(f"the sizes of a curve must grow ({self.source})")

    @staticmethod
    def of(points: Iterable[tuple[float, float]], source: str = "") -> TimeCurve:
        """A curve from (bytes, seconds) in any order."""
        sizes, times = zip(*sorted(points), strict=True)
        return TimeCurve(tuple(sizes), tuple(times), source)

    @cached_property
    def _logs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(map(math.log, self.sizes)), tuple(map(math.log, self.times_s))

    def seconds(self, size: float) -> float:
        """How long a message of `size` bytes takes."""
        if size <= self.sizes[0]:
            return self.times_s[0]
        if size >= self.sizes[-1]:
            return self.times_s[-1] * size / self.sizes[-1]
        at, (sizes, times) = bisect_left(self.sizes, size), self._logs
        share = (math.log(size) - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        return math.exp(times[at - 1] + share * (times[at] - times[at - 1]))


@dataclass(frozen=True, eq=False)
class Curves:
    """Measured curves of one kind of link, by collective and number of members."""

    by_kind: Mapping[str, Mapping[int, TimeCurve]]
    name: str = ""

    @staticmethod
    @memoize
    def named(name: str, members: Literal["ranks", "machines"]) -> Curves:
        """The shipped curves of a name: a fabric's by ranks, a network's by machines. Where several runs
        measured the same, the fastest at each size: what the library reaches when it is set up well."""
        times_of: dict[str, dict[int, dict[float, float]]] = {}
        for run in measured_runs(name):
            count = run.ranks if members == "ranks" else run.machines
            times = times_of.setdefault(run.collective, {}).setdefault(count, {})
            for size, seconds in zip(run.sizes_bytes, run.seconds, strict=True):
                times[size] = min(seconds, times.get(size, math.inf))
        return Curves(
            {
                kind: {count: TimeCurve.of(times.items(), name) for count, times in curves.items()}
                for kind, curves in times_of.items()
            },
            name,
        )

    def knows(self, kind: str, members: int) -> bool:
        """Whether this collective was measured over just so many members."""
        return members in self.by_kind.get(kind, ())

    def seconds(self, kind: str, members: int, size: float) -> float | None:
        """The measured time, or None if this collective was not measured at all.

        Between measured numbers of members the time of a nearby number is taken, for the same bytes through
        each port (a ring's busy time) and with its latency grown by the hops.
        """
        curves = self.by_kind.get(kind)
        if not curves:
            return None
        if members in curves:
            return curves[members].seconds(size)
        near = min((n for n in curves if n >= members), default=max(curves))
        here, there = (members - 1) / members, (near - 1) / near
        same_load = size * here / there
        small_s = curves[near].times_s[0]
        return max(
            curves[near].seconds(same_load) + small_s * ((members - 1) / (near - 1) - 1), small_s / near
        )
