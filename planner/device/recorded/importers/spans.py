"""A set of spans of time, joined where they overlap: how much of another span they fill."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Spans:
    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def within(self, low: float, high: float) -> float:
        """How much of this span is filled."""
        at = max(bisect_right(self._starts, low) - 1, 0)
        filled = 0.0
        while at < len(self._starts) and self._starts[at] < high:
            filled += max(min(self._ends[at], high) - max(self._starts[at], low), 0.0)
            at += 1
        return filled

    def common(self, other: Spans) -> list[tuple[float, float]]:
        """What both fill."""
        out = []
        for start, end in zip(self._starts, self._ends, strict=True):
            at = max(bisect_right(other._starts, start) - 1, 0)
            while at < len(other._starts) and other._starts[at] < end:
                low, high = max(start, other._starts[at]), min(end, other._ends[at])
                if low < high:
                    out.append((low, high))
                at += 1
        return out

    def holds(self, low: float, high: float) -> bool:
        """Whether one of the spans has all of this one."""
        at = bisect_right(self._starts, low) - 1
        return at >= 0 and self._ends[at] >= high
