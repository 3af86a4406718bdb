"""Ordering strategies, functions of a profile and a setting; Prophet's is in a file of its own.

Named as in the papers: TIC and TAC (TicTac), the simple heuristic (Hashemi et al., 2018), P3 (Jayarajan et
al., MLSys 2019) and ByteScheduler (Peng et al., SOSP 2019; Prophet, section 2.2). P3 and ByteScheduler cut
tensors first (`planner.servers.placement.cut_tensors`) and rank the pieces by layer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import BadInput
from planner.servers.ordering.graph import StepGraph, bit_positions, transfer_priorities
from planner.servers.placement import cut_tensors
from planner.simulator.policy import Credit, Fifo, Ordered, Policy, Sliced
from planner.simulator.step import Profile

MOST_OVERHEAD_S = 1.0  # what is measured is a few milliseconds
DEFAULT_SLICE_BYTES = 160_000  # 40,000 parameters, MXNET_KVSTORE_BIGARRAY_BOUND of the released code
DEFAULT_PARTITION_BYTES = 4_096_000  # BYTEPS_PARTITION_BYTES
DEFAULT_CREDIT_PARTITIONS = 5  # BytePS: NCCL group size (4) + 1 partitions may be under way
_TICKS_PER_S = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Inputs that all strategies share: NIC bandwidth, overhead per message, and a seed.

    Downloads have the overhead of uploads unless `download_overhead_s` is given.
    """

    bandwidth_bytes_per_s: float = 1.25e9
    overhead_s: float = 0.0
    download_overhead_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bandwidth_bytes_per_s) and self.bandwidth_bytes_per_s > 0):
            raise BadInput(
                f"bandwidth is {self.bandwidth_bytes_per_s} bytes a second; ordering needs one above zero"
            )
        for value in (self.overhead_s, self.download_overhead_s or 0.0):
            if not 0 <= value <= MOST_OVERHEAD_S:
                raise BadInput(
                    f"the overhead of a message is {value:g} s; it must lie between 0 and "
                    f"{MOST_OVERHEAD_S:g} s (--overhead is in milliseconds)"
                )


@dataclass(frozen=True, slots=True)
class Schedule:
    """Profile rewritten by a strategy (transfers split or delayed), and the order policy of its transfers."""

    profile: Profile
    policy: Policy


@dataclass(frozen=True, slots=True)
class Strategy:
    """A transfer ordering strategy.

    `plan` makes the schedule, without overheads; `cuts`: it splits tensors.
    """

    summary: str
    plan: Callable[..., Schedule]
    cuts: bool = False


def plan_fifo(profile: Profile, setting: Setting) -> Schedule:
    """Schedules whole transfers unordered: those ready together go in random order by step and worker."""
    return Schedule(profile, Fifo())


def layer_priorities(profile: Profile) -> dict[str, float]:
    """Priority of each transfer by name, in order of consumption; uploads have their download's priority."""
    return transfer_priorities(profile, list(StepGraph.build(profile).pulls))


def plan_p3(profile: Profile, setting: Setting, slice_bytes: int = DEFAULT_SLICE_BYTES) -> Schedule:
    """Schedules slices of tensors, spread over the servers, with the earliest layer's slices first.

    One slice is on the wire at a time, so each pays its overhead.
    """
    sliced = cut_tensors(profile, slice_bytes, deal=True)
    return Schedule(sliced, Sliced(slice_bytes=slice_bytes, priorities=layer_priorities(sliced)))


def plan_bytescheduler(
    profile: Profile,
    setting: Setting,
    partition_bytes: int = DEFAULT_PARTITION_BYTES,
    credit_bytes: int = DEFAULT_PARTITION_BYTES * DEFAULT_CREDIT_PARTITIONS,
) -> Schedule:
    """Schedules partitions by priority, with at most `credit_bytes` in flight.

    More credit hides the overhead of partitions, but lets more low-priority bytes go before a late urgent
    one.
    """
    divided = cut_tensors(profile, partition_bytes)
    priorities = layer_priorities(divided)
    return Schedule(
        divided, Credit(priorities=priorities, slice_bytes=partition_bytes, credit_bytes=credit_bytes)
    )


def impending_counts(graph: StepGraph) -> list[float]:
    """TicTac's M+ per download: the fewest downloads awaited by any op that needs it and another.

    The list is indexed by the download's bit. Infinite if there is no such op (TicTac, Algorithms 1 and 2).
    It is also Order(read) of Hashemi et al. (2018), equation 3.
    """
    out = [float("inf")] * len(graph.pulls)
    open_bits = (1 << len(graph.pulls)) - 1
    sets = {graph.needs[op] for op in graph.computation_ops()}
    for need in sorted((s for s in sets if s.bit_count() > 1), key=int.bit_count):
        for bit in bit_positions(need & open_bits):
            out[bit] = need.bit_count()
        open_bits &= ~need
    return out


def tic_ranks(graph: StepGraph) -> list[int]:
    """TIC rank of each download: the number of downloads with a smaller M+, so that equal ones tie."""
    counts = impending_counts(graph)
    return [sum(other < own for other in counts) for own in counts]


def tic_order(graph: StepGraph) -> list[int]:
    """Download ops by ascending M+; ties keep the order of consumption."""
    counts = impending_counts(graph)
    return [graph.pulls[bit] for bit in sorted(range(len(counts)), key=lambda bit: (counts[bit], bit))]


def tac_order(graph: StepGraph, bandwidth_bytes_per_s: float, overhead_s: float = 0.0) -> list[int]:
    """Download ops in TAC order, from transfer and computation times (TicTac, Algorithms 1 and 3).

    Of the outstanding downloads R, take again and again the one that is first under
        A before B  iff  min(P_B, M_A) < min(P_A, M_B), or these are equal and M+_A < M+_B      (equation 2)
    where M is the time of the transfer, P the computation that waits for this download alone, M+ the least
    transfer time that completes an op waiting for it and for others.

    Where we differ: Algorithm 3 prints the comparison the wrong way round, equation 2 has it right. The
    comparator is not transitive, so this is one pass over R in order of consumption, in which a later
    download replaces the best so far only if it comes strictly before it. Ops that wait for the same set
    are one entry, and an entry shrinks as downloads are taken, so that a round costs O(sets). Time is in
    whole femtoseconds: sums are exact and ties are ties. The oracle of an op is its least recorded
    duration.
    """
    profile = graph.profile
    least_s = profile.durations_s.min(axis=0).tolist()
    transfer = [
        round((overhead_s + int(profile.bytes[op]) / bandwidth_bytes_per_s) * _TICKS_PER_S)
        for op in graph.pulls
    ]
    work: dict[int, int] = {}  # set of outstanding downloads -> computation that waits for exactly them
    for op in graph.computation_ops():
        work[graph.needs[op]] = work.get(graph.needs[op], 0) + round(least_s[op] * _TICKS_PER_S)
    cost = {need: sum(transfer[bit] for bit in bit_positions(need)) for need in work}

    outstanding = list(range(len(transfer)))
    order = []
    while outstanding:
        best = _first_download(outstanding, transfer, *_tac_times(work, cost, len(transfer)))
        outstanding.remove(best)
        order.append(graph.pulls[best])
        work, cost = _remove_download(1 << best, transfer[best], work, cost)
    return order


def _tac_times(work: dict[int, int], cost: dict[int, int], pulls: int) -> tuple[list[int], list[float]]:
    """Computation time that each download unlocks by itself (P), and its M+, both in femtoseconds."""
    alone = [0] * pulls
    impending = [float("inf")] * pulls
    open_bits = (1 << pulls) - 1
    for need in sorted(work, key=cost.__getitem__):
        if need.bit_count() == 1:
            alone[need.bit_length() - 1] = work[need]
        elif new := need & open_bits:
            for bit in bit_positions(new):
                impending[bit] = cost[need]
            open_bits ^= new
    return alone, impending


def _first_download(
    outstanding: list[int], transfer: list[int], alone: list[int], impending: list[float]
) -> int:
    """Outstanding download that comes first by TAC's comparison."""
    best = outstanding[0]
    for other in outstanding[1:]:
        ours, theirs = min(alone[best], transfer[other]), min(alone[other], transfer[best])
        if ours < theirs or (ours == theirs and impending[other] < impending[best]):
            best = other
    return best


def _remove_download(
    bit: int, time: int, work: dict[int, int], cost: dict[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """TAC's times, keyed by sets of outstanding downloads, after the arrival of one download."""
    new_work: dict[int, int] = {}
    new_cost: dict[int, int] = {}
    for need, load in work.items():
        rest = need & ~bit
        if rest:
            new_work[rest] = new_work.get(rest, 0) + load
            new_cost[rest] = cost[need] - time if need & bit else cost[need]
    return new_work, new_cost


def _random_order(graph: StepGraph, setting: Setting) -> list[int]:
    """Download ops in a random order, the baseline for any fixed order."""
    pulls = list(graph.pulls)
    random.Random(setting.seed).shuffle(pulls)
    return pulls


def _fixed_order_strategy(
    summary: str,
    order: Callable[[StepGraph, Setting], Sequence[int]],
    ranks: Callable[[StepGraph], Sequence[float]] | None = None,
) -> Strategy:
    """Strategy with one fixed order of downloads; each upload has the rank of its tensor's download.

    `ranks` returns the rank of each download of `order`, for orders with ties.
    """

    def plan(profile: Profile, setting: Setting) -> Schedule:
        """Schedules the transfers by the rank of their tensor's download."""
        graph = StepGraph.build(profile)
        tied = ranks(graph) if ranks else None
        priorities = transfer_priorities(profile, list(order(graph, setting)), tied)
        return Schedule(profile, Ordered(priorities=priorities))

    return Strategy(summary, plan)


RANKINGS = {
    "tic": _fixed_order_strategy(
        "TicTac without timing: fewest downloads to the next op first",
        lambda graph, setting: tic_order(graph),
    ),
    "tac": _fixed_order_strategy(
        "TicTac with timing: the download that hides most computation first",
        lambda graph, setting: tac_order(graph, setting.bandwidth_bytes_per_s, setting.overhead_s),
    ),
    # Order(read) = min |Dep(op)| over the ops with more than one dependency that need it: TIC's M+.
    "simple": _fixed_order_strategy(
        "Hashemi et al. (2018), equation 3: as TIC, equals in order of arrival",
        lambda graph, setting: graph.pulls,
        tic_ranks,
    ),
    "layer": _fixed_order_strategy("first consumed, first sent", lambda graph, setting: graph.pulls),
    "random": _fixed_order_strategy("one random order, enforced in every step", _random_order),
    "reverse": _fixed_order_strategy(
        "last consumed, first sent: the worst order of a chain", lambda graph, setting: graph.pulls[::-1]
    ),
}
