"""Measured collectives: seconds of an all-reduce by its size and the number of ranks.

`hardware/collectives/curves.csv` has one line for each run of nccl-tests (or its kin). Runs over one kind of
link share a name, by which hardware files point to them: `Fabric.curve` inside a machine (`h100-sxm`) and
`Hardware.network_curves["rdma"]` or `["tcp"]` between machines (`h100-efa`, `a100-tcp`).

    >>> [run.ranks for run in curves("h100-sxm", "all_gather")]
    [2, 4, 8]
    >>> run = curves("h100-efa", "all_reduce")[-1]
    >>> run.machines, run.ranks, f"{run.sizes_bytes[-1] / run.seconds[-1] / 1e9:.0f} GB/s"
    (32, 256, '161 GB/s')

Before fitting anything to them, know:

- `sizes_bytes` is the whole buffer, as nccl-tests counts it: for all-gather what every rank has at the end,
  for reduce-scatter what it has at the start.
- With exactly two machines a tree sends half of what a ring sends, so the bus bandwidth exceeds the wire
  (487 GB/s over 400 on p5; 357 on four machines, 321 on 32). Do not extrapolate from two machines.
- Small messages are not monotonic, and t = a + bytes / b misses middle sizes by 20 to 50%: interpolate in the
  logarithm of the size.
- Plain TCP on a machine with RDMA is another curve: 4 to 8 GB/s instead of 77 on p4d.

`Curves` interpolate in the logarithm of the size: libraries switch protocols, so the points themselves are
kept. Below the smallest message a collective takes as long as that one, above the largest it keeps that
bandwidth.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import shipped_folder
from planner.memoize import memoize

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: seconds by message size, sizes ascending."""

    curve: str
    run: str
    machine: str
    device: str
    machines: int
    ranks: int
    collective: str
    library: str
    sizes_bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    source: str
    as_of: str
    note: str = ""


@memoize
def curves(name: str, collective: str | None = None) -> tuple[Curve, ...]:
    """Measured runs filed under a curve name, ordered by machines and ranks; optionally of one collective."""
    if name not in _runs_by_name():
        raise unknown_name("curve", name, _runs_by_name())
    if collective is not None and collective not in COLLECTIVES:
        raise unknown_name("collective", collective, COLLECTIVES)
    return tuple(run for run in _runs_by_name()[name] if collective in (None, run.collective))


@memoize
def nccl_latencies_us() -> dict[tuple[str, str, str, str], float]:
    """Latencies in NCCL's own cost model in microseconds, by constant, link, algorithm and protocol. They
    give 15.2 us for a small all-reduce on 8 H100 (16.0 measured) and fail for Blackwell (15 against 26)."""
    return {
        (row["constant"], row["link"], row["algorithm"], row["protocol"]): float(row["value"])
        for row in _read_csv("nccl.csv")
        if row["unit"] == "us"
    }


@memoize
def _runs_by_name() -> dict[str, list[Curve]]:
    """All shipped runs, grouped by curve name."""
    by_name: dict[str, list[Curve]] = {}
    for row in _read_csv("curves.csv"):
        sizes = tuple(float(size) for size in row.pop("message_bytes").split())
        seconds = tuple(float(time) * 1e-6 for time in row.pop("time_us").split())
        counts = {name: int(row.pop(name)) for name in ("ranks", "machines")}
        run = Curve(sizes_bytes=sizes, seconds=seconds, **counts, **row)  # type: ignore[arg-type]
        by_name.setdefault(run.curve, []).append(run)
    return by_name


def _read_csv(name: str) -> list[dict[str, str]]:
    """Rows of a shipped CSV file in `hardware/collectives`, by column."""
    path = shipped_folder("hardware") / "collectives" / name
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; install planner again") from error


@dataclass(frozen=True, eq=False)
class TimeCurve:
    """Seconds of one collective over one number of members, by message size in bytes."""

    sizes: tuple[float, ...]
    times_s: tuple[float, ...]

    @staticmethod
    def from_points(points: Iterable[tuple[float, float]], source: str = "") -> TimeCurve:
        """Build a curve from (bytes, seconds) pairs in any order."""
        sizes, times = zip(*sorted(points), strict=True)
        if min(*sizes, *times) <= 0 or any(a >= b for a, b in pairwise(sizes)):
            raise BadInput(f"a curve needs different sizes, and sizes and times above zero ({source})")
        return TimeCurve(sizes, times)

    @cached_property
    def _logs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(map(math.log, self.sizes)), tuple(map(math.log, self.times_s))

    def seconds(self, size: float) -> float:
        """Seconds for a message of `size` bytes, interpolated in the logarithm of the size."""
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
        """The shipped curves with this name, by ranks for a fabric or by machines for a network."""
        times_of: dict[str, dict[int, dict[float, float]]] = {}
        for run in curves(name):
            count = run.ranks if members == "ranks" else run.machines
            times = times_of.setdefault(run.collective, {}).setdefault(count, {})
            for size, seconds in zip(run.sizes_bytes, run.seconds, strict=True):
                times[size] = min(seconds, times.get(size, math.inf))
        by_kind = {
            kind: {count: TimeCurve.from_points(times.items(), name) for count, times in by_count.items()}
            for kind, by_count in times_of.items()
        }
        return Curves(by_kind, name)

    def has_measured(self, kind: str, members: int) -> bool:
        """Whether this collective was measured with exactly this number of members."""
        return members in self.by_kind.get(kind, ())

    def seconds(self, kind: str, members: int, size: float) -> float | None:
        """Seconds of a collective, measured or scaled from a nearby member count; None if never measured.
        Scaling keeps the bytes through each port (a ring's busy time) and grows the latency with the hops."""
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
