"""The cost of collectives, as pure functions: what is sent over which links, and what it waits for.

Here are levels of links, phases and the algorithms; `libraries` says what NCCL and Gloo make of them: which
algorithm, at which latency, how many at a time, among which ranks of a site. Nothing here knows plans or the
simulator; data-parallel strategies lower the phases to joint ops, and axes of the mesh take their seconds.

A phase is one transfer that a group does together: bytes that cross the narrowest port of the group, after a
latency in which nothing flows. Its duration alone is `latency_s + bytes / rate`.

Algorithms of collectives: how many bytes cross a port, and how many hops follow each other.

Ring: every rank sends to the next, machine by machine. A reduce-scatter, an all-gather or an all-to-all of S
bytes over n ranks takes n - 1 hops of S / n each; a broadcast goes from its owner through all others, so that
all S bytes cross every port. A ring enters and leaves every machine once, so that a machine's NICs together
carry what one device does: the ring is as fast as its slowest link.

Tree: sums go up a tree of machines, with a chain inside each, and results come down (all-reduce only). Two
trees share the work, as NCCL's double binary tree does, so that a machine sends the data about twice in all,
like a ring; but hops grow with the logarithm of the machines.

Hierarchical, two levels: reduce-scatter inside each machine, all-reduce between machines, all-gather inside.
Each device talks to those in its own place in other machines about its share, so that a machine's NICs carry
the data once, not once per device; and one bucket's inner part overlaps another's outer part.

Measured collectives: `hardware/collectives/curves.csv` has one line for each run of nccl-tests (or its kin).
Runs over one kind of link share a name, by which hardware files point to them: `Fabric.curve` inside a
machine (`h100-sxm`) and `Hardware.network_curves["rdma"]` or `["tcp"]` between machines (`h100-efa`,
`a100-tcp`).

    >>> [run.ranks for run in collective_runs("h100-sxm", "all_gather")]
    [2, 4, 8]
    >>> run = collective_runs("h100-efa", "all_reduce")[-1]
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
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import shipped_folder
from planner.memoize import memoize

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured run of a collective: seconds by message size, sizes ascending."""

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
def collective_runs(name: str, collective: str | None = None) -> tuple[Curve, ...]:
    """Measured runs of a curve name, ordered by machines and ranks, optionally of one collective."""
    if name not in _runs_by_name():
        raise unknown_name("curve", name, _runs_by_name())
    if collective is not None and collective not in COLLECTIVES:
        raise unknown_name("collective", collective, COLLECTIVES)
    return tuple(run for run in _runs_by_name()[name] if collective in (None, run.collective))


@memoize
def nccl_latencies_us() -> dict[tuple[str, str, str, str], float]:
    """Latency constants of NCCL's cost model, by (constant, link, algorithm, protocol). They give 15.2 us for
    a small all-reduce on 8 H100 (16.0 measured) and fail for Blackwell (15 against 26)."""
    return {
        (row["constant"], row["link"], row["algorithm"], row["protocol"]): float(row["value"])
        for row in _read_csv("nccl.csv")
        if row["unit"] == "us"
    }


@memoize
def _runs_by_name() -> dict[str, list[Curve]]:
    """All shipped runs grouped by curve name; cached."""
    by_name: dict[str, list[Curve]] = {}
    for row in _read_csv("curves.csv"):
        sizes = tuple(float(size) for size in row.pop("message_bytes").split())
        seconds = tuple(float(time) * 1e-6 for time in row.pop("time_us").split())
        counts = {name: int(row.pop(name)) for name in ("ranks", "machines")}
        run = Curve(sizes_bytes=sizes, seconds=seconds, **counts, **row)  # type: ignore[arg-type]
        by_name.setdefault(run.curve, []).append(run)
    return by_name


def _read_csv(name: str) -> list[dict[str, str]]:
    """Reads a shipped CSV file of `hardware/collectives` into one dictionary per row."""
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
        """Builds a curve from (bytes, seconds) pairs in any order."""
        sizes, times = zip(*sorted(points), strict=True)
        if min(*sizes, *times) <= 0 or any(a >= b for a, b in pairwise(sizes)):
            raise BadInput(f"a curve needs different sizes, and sizes and times above zero ({source})")
        return TimeCurve(sizes, times)

    @cached_property
    def _logs(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Natural logarithms of the sizes and of the times."""
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
    def load(name: str, members: Literal["ranks", "machines"]) -> Curves:
        """Loads the shipped curves of a name, by ranks for a fabric or by machines for a network."""
        times_of: dict[str, dict[int, dict[float, float]]] = {}
        for run in collective_runs(name):
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
        """Seconds of a collective, measured or scaled from a nearby member count; None if unmeasured. Scaling
        keeps the bytes through each port (a ring's busy time) and grows the latency with the hops."""
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


def ring_bytes(kind: Kind, size: float, members: int) -> float:
    """Bytes that cross each port of a ring during one collective of `size` bytes."""
    if kind in ("broadcast", "send_recv"):
        return size if members > 1 else 0.0
    return ring_passes(kind) * (members - 1) / members * size


def ring_hops(kind: Kind, peers: Peers) -> tuple[int, int]:
    """Number of consecutive hops of a ring inside machines and between machines."""
    if kind == "send_recv":
        return (0, 1) if peers.machines > 1 else (1, 0)
    between = ring_passes(kind) * (peers.machines - 1)
    return ring_passes(kind) * (peers.ranks - 1) - between, between


def tree_bytes(size: float, peers: Peers) -> float:
    """Bytes that cross each port of a tree in one all-reduce; two machines only swap sums."""
    if peers.machines == 2:
        return size
    return 2 * (peers.ranks - 1) / peers.ranks * size


def tree_hops(peers: Peers) -> tuple[float, float]:
    """Number of consecutive hops of a tree inside machines and between machines."""
    return 2 * (peers.devices - 1), 2 * math.log2(peers.machines) if peers.machines > 1 else 0.0


def hierarchical_parts(kind: Kind, size: float, peers: Peers) -> list[tuple[Level, Scope, Kind, float]]:
    """Parts of a hierarchical collective, as (level, scope, kind, message bytes), in order."""
    inside, between = peers.inside, peers.between
    if inside is None or between is None:
        only = inside or between
        return [] if only is None else [(only, "all", kind, size)]
    scatter: list[tuple[Level, Scope, Kind, float]] = [(inside, "machine", "reduce_scatter", size)]
    gather: list[tuple[Level, Scope, Kind, float]] = [(inside, "machine", "all_gather", size)]
    match kind:
        case "all_reduce":
            return [*scatter, (between, "all", "all_reduce", size), *gather]
        case "reduce_scatter":
            return [*scatter, (between, "all", "reduce_scatter", size)]
        case "all_gather":
            return [(between, "all", "all_gather", size), *gather]
        case "all_to_all" | "broadcast":
            return [(between, "all", kind, size), (inside, "machine", kind, size)]
        case "send_recv":
            return [(between, "all", kind, size)]


Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"]
Link = Literal["NVLink", "PCI", "Net"]
Scope = Literal["all", "machine"]
LevelName = Literal["fabric", "network"]


@dataclass(frozen=True, slots=True)
class Level:
    """Members connected by one kind of link: the devices of a machine, or the machines.

    `bytes_per_s` is the rate at which the narrowest member sends, and at the same time receives, when a
    collective runs: the link's figure times the share that a library reaches. `round_trip_s` is the time of a
    small message between two members and back, beyond the library's own constants. A link that was idle lets
    `burst_bytes` through at once (the bucket of a shaper). `channels` is the number of rings that a library
    runs over the members at the same time. `curves` are measured collectives over these members.
    """

    name: LevelName
    link: Link
    members: int
    bytes_per_s: float
    round_trip_s: float = 0.0
    burst_bytes: float = 0.0
    channels: int = 1
    curves: Curves | None = None

    def __post_init__(self) -> None:
        if self.members < 2:
            raise BadInput(f"a collective over {self.members} member(s); it needs at least 2")
        if not self.bytes_per_s > 0:
            raise BadInput(f"the {self.name} moves {self.bytes_per_s} bytes a second; give a rate above zero")


@dataclass(frozen=True, slots=True)
class Peers:
    """Ranks of a collective. `inside`: devices of each machine (None: one per machine); `between`: machines
    (None: one). `ranks` is less than their product where the last machine is not full."""

    inside: Level | None
    between: Level | None
    ranks: int

    @staticmethod
    def of(inside: Level | None = None, between: Level | None = None) -> Peers:
        """Builds the ranks of machines that all hold equally many; None stands for a level without links."""
        ranks = (inside.members if inside else 1) * (between.members if between else 1)
        return Peers(inside, between, ranks)

    @property
    def devices(self) -> int:
        """Number of ranks per machine."""
        return self.inside.members if self.inside else 1

    @property
    def machines(self) -> int:
        """Number of machines."""
        return self.between.members if self.between else 1

    @property
    def slower_level(self) -> Level | None:
        """Slower level of links, which limits a flat ring over all ranks; None for a single rank."""
        if self.between is None or self.inside is None:
            return self.between or self.inside
        return self.between if self.between.bytes_per_s <= self.inside.bytes_per_s else self.inside

    def bytes_per_s(self, name: LevelName) -> float:
        """Bandwidth of a level in bytes per second."""
        level = self.inside if name == "fabric" else self.between
        assert level is not None
        return level.bytes_per_s


@dataclass(frozen=True, slots=True)
class Phase:
    """One joint transfer of a collective."""

    level: LevelName
    scope: Scope
    bytes: int
    latency_s: float

    def seconds(self, bytes_per_s: float) -> float:
        """Seconds of the phase when nothing else runs."""
        return self.latency_s + self.bytes / bytes_per_s


def uncontended_s(phases: Iterable[Phase], peers: Peers) -> float:
    """Seconds of consecutive phases with no other traffic."""
    return sum(phase.seconds(peers.bytes_per_s(phase.level)) for phase in phases)


class Library(ABC):
    """A library of collectives; at most `in_flight` of them run at once."""

    __slots__ = ()
    name: ClassVar[str]
    in_flight: ClassVar[int] = 1

    @abstractmethod
    def phases(self, kind: Kind, size: float, peers: Peers, *, opposed: bool = False) -> tuple[Phase, ...]:
        """Transfers of a collective of `size` bytes, in order. `opposed`: the other direction has
        collectives at the same time."""

    def seconds(self, kind: Kind, size: float, peers: Peers) -> float:
        """Seconds of a collective with no other traffic."""
        return uncontended_s(self.phases(kind, size, peers), peers)


def ring_passes(kind: Kind) -> int:
    """Number of times that the data crosses a ring: two for an all-reduce, one for the others."""
    return 2 if kind == "all_reduce" else 1


def make_phase(level: Level, scope: Scope, volume: float, seconds: float) -> Phase:
    """Phase that takes `seconds`: `volume` bytes at the level's rate, then latency. If the bytes alone would
    take longer, the volume shrinks to fit."""
    wire_s = volume / level.bytes_per_s
    moved = volume if seconds >= wire_s else seconds * level.bytes_per_s
    latency_s = max(seconds - moved / level.bytes_per_s, 0.0)
    return Phase(level.name, scope, max(round(moved), 1), latency_s)


def repeat_phases(phases: tuple[Phase, ...], times: float) -> tuple[Phase, ...]:
    """Merges the phases of `times` consecutive collectives into one set of phases."""
    if times == 1:
        return phases
    return tuple(
        replace(phase, bytes=round(phase.bytes * times), latency_s=phase.latency_s * times)
        for phase in phases
    )
