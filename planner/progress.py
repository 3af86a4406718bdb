"""How long work tells that it goes on: which stage it is in, how much of that is done, and of how much."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Progress = Callable[[str, int, int], None]  # stage, done, of

EARLY = 0.05  # of the whole, below which nobody can say how long the rest takes


def ignore_progress(stage: str, done: int, of: int) -> None:
    """No-op progress callback."""


class Meter:
    """Progress through several stages as one share that never falls, with the time left.

    `ends` gives the share of the whole at which each stage ends, in order. A stage that it does not name runs
    from the current share to the end. If a stage turns out to have more work, the share stays until it
    catches up.
    """

    def __init__(
        self, ends: Mapping[str, float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ends = dict(ends or {})
        self.clock = clock
        self.began_s = clock()
        self.stage = ""
        self.share = 0.0
        self._start = 0.0

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage != self.stage:
            self.stage, self._start = stage, self.share
        end = max(self.ends.get(stage, 1.0), self._start)
        part = min(max(done / of, 0.0), 1.0) if of > 0 else 0.0
        self.share = max(self.share, self._start + (end - self._start) * part)

    @property
    def left_s(self) -> float | None:
        """Seconds left at the speed so far; None in the first twentieth."""
        if self.share < EARLY:
            return None
        return (self.clock() - self.began_s) * (1 - self.share) / self.share

    @property
    def words(self) -> str:
        """`simulating, 40%, about 3 s left`."""
        from planner.units import format_seconds

        left_s = self.left_s
        left = "" if left_s is None else f", about {format_seconds(max(1.0, round(left_s)))} left"
        return f"{self.stage}, {self.share:.0%}{left}"
