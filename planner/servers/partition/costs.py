"""Cost tables of the dynamic programme: for every stage its choices (P, R, H) and what each costs.

For one sample a replica spends at stage l, with Q = H R samples under way at once (KDD'15, section 4.2),

    (U_f + U_b + U_w)(l) / Q(l)           table of the stage
    M_f / Q(l) + M_b / Q(source)          table of the link between a source and the stage
    bytes read(l) * price of a byte       table of the stage

where the price of a byte read holds how often and how fast a replica reads, and how many replicas wait for
it (`planner.servers.partition.search`). Choices of H: fewer threads than those with the least computing time
only add waiting, so only H from there up are kept, and of these only the ones that trade computing for
waiting.

The sum of all tables is minimised exactly by eliminating one variable after another: the factors that it
stands in become one over its neighbours, the least cost over its states. On a chain this is the recurrence of
section 5.2; where branches meet, a fork and its join stay in the tables until the branches between them are
gone. Variables go in the order of fewest neighbours, so that networks built of blocks (Inception, ResNet)
never need a table of more than three variables.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.memoize import get_or_make
from planner.model import BYTES_PER_ELEMENT
from planner.servers.partition.layers import PaperConstants, Split, receive_s
from planner.servers.partition.stages import (
    Link,
    Placement,
    Stage,
    Traffic,
    best_placement,
    best_traffic,
    default_placement,
    overlap_matrix,
    traffic_between,
)

Table = npt.NDArray[np.float64]
Factor = tuple[tuple[int, ...], Table]
_MAX_CELLS = 50_000_000


def elimination_order(variables: int, scopes: Sequence[tuple[int, ...]]) -> list[int]:
    """Order in which to eliminate variables: fewest neighbours first, lowest index on ties."""
    neighbours: list[set[int]] = [set() for _ in range(variables)]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(u for u in scope if u != v)
    left = set(range(variables))
    order = []
    while left:
        v = min(left, key=lambda u: (len(neighbours[u]), u))
        for u in neighbours[v]:
            neighbours[u] |= neighbours[v] - {u}
            neighbours[u].discard(v)
        left.discard(v)
        order.append(v)
    return order


def minimise(order: Sequence[int], factors: Sequence[Factor]) -> tuple[float, list[int]]:
    """Least sum of all factors, and the state of each variable that attains it (lowest index on ties)."""
    where: dict[int, list[Factor]] = {v: [] for v in order}
    rank = {v: at for at, v in enumerate(order)}
    constant = 0.0

    def add_factor(scope: tuple[int, ...], table: Table) -> None:
        """Stores a factor under its first variable to be eliminated; sums factors without variables."""
        nonlocal constant
        if scope:
            where[min(scope, key=rank.__getitem__)].append((scope, table))
        else:
            constant += float(table)

    for scope, table in factors:
        add_factor(scope, table)
    choices: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]] = []
    for v in order:
        others = tuple(sorted({u for scope, _ in where[v] for u in scope if u != v}))
        axes = {u: at for at, u in enumerate((v, *others))}
        sizes = {u: n for scope, table in where[v] for u, n in zip(scope, table.shape, strict=True)}
        if math.prod(sizes.values()) > _MAX_CELLS:
            raise BadInput("the model's branches are too entangled to partition exactly; use fewer machines")
        total: Table | None = None
        for scope, table in where[v]:
            spread = _align_axes(scope, table, axes)
            total = spread if total is None else total + spread
        if total is None:
            choices.append((v, (), np.zeros((), np.intp)))
            continue
        best = total.argmin(axis=0)
        choices.append((v, others, best))
        add_factor(others, total.min(axis=0))
    states: dict[int, int] = {}
    for v, others, best in reversed(choices):
        states[v] = int(best[tuple(states[u] for u in others)])
    return constant, [states[v] for v in range(len(order))]


def _align_axes(scope: tuple[int, ...], table: Table, axes: dict[int, int]) -> Table:
    """Transposes a table to the order of `axes`; axes that it lacks get length one."""
    by_axis = sorted(range(len(scope)), key=lambda i: axes[scope[i]])
    shape = [1] * len(axes)
    for i in by_axis:
        shape[axes[scope[i]]] = table.shape[i]
    return table.transpose(by_axis).reshape(shape)


_ALL_DEGREES = 4


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Numbers of partitions, replications and threads of one stage in a replica."""

    partitions: int
    replications: int
    threads: int

    @property
    def degrees(self) -> tuple[int, int]:
        """Degrees (P, R): partitions and replications."""
        return self.partitions, self.replications

    @property
    def concurrency(self) -> int:
        """Samples that a replica processes at once (Q)."""
        return self.replications * self.threads


def degree_pairs(workers: int) -> list[tuple[int, int]]:
    """Pairs (partitions P, replications R) to try: all up to four workers, else (1, 1) and P R = N_wr."""
    up_to = range(1, workers + 1)
    if workers <= _ALL_DEGREES:
        return [(p, r) for p in up_to for r in up_to if p * r <= workers]
    return [(1, 1), *((p, workers // p) for p in up_to if workers % p == 0)]


def stage_split(constants: PaperConstants, stage: Stage, choice: StageChoice) -> Split:
    """Compute seconds per sample of one stage, forward, backward and update (equations 5, 7, 8 and 9)."""
    part, threads = stage.largest_share(choice.partitions), choice.threads
    connections, neurons = stage.connections * part, stage.neurons * part
    muladd = constants.muladd_seconds(stage.working_set_bytes(choice.partitions, threads), threads)
    slower = constants.interference[threads - 1]
    return Split(
        forward_compute_s=muladd * connections + slower * constants.act_s * neurons,
        # where a stage is the first no error goes further down
        backward_compute_s=muladd * (0.0 if stage.is_first else connections)
        + slower * constants.err_s * neurons,
        update_compute_s=muladd * connections if stage.weight_bytes else 0.0,
    ).scale_by(1.0 / choice.concurrency)


def link_split(
    constants: PaperConstants, link: Link, traffic: Traffic, source: StageChoice, stage: StageChoice
) -> Split:
    """Network seconds per sample between a source stage and this stage, forward and backward."""

    def network_s(share: float, messages: float, choice: StageChoice) -> float:
        """Seconds to receive one stage's share of the elements, for this many messages per sample."""
        if messages <= 0:
            return 0.0
        once = receive_s(constants, share / messages * link.elements, choice.threads)
        return messages * once / choice.concurrency

    return Split(
        forward_network_s=network_s(traffic.forward, traffic.forward_messages, stage),
        backward_network_s=network_s(traffic.backward, traffic.backward_messages, source),
    )


@dataclass(frozen=True)
class PartitionProblem:
    """Choices and cost tables of all stages for a given number of workers per replica."""

    stages: tuple[Stage, ...]
    constants: PaperConstants
    workers: int
    threads: int | None = None  # a fixed H, for studies
    every_worker: bool = False  # only choices with a segment on every worker
    # computing of a sample of each stage on all threads of a worker together, instead of the constants'
    splits: tuple[Split, ...] | None = None
    memory: dict[Hashable, Any] = field(default_factory=dict)  # shared by problems of one model and machine

    @cached_property
    def choices(self) -> list[list[StageChoice]]:
        """Choices of partitions, replications and threads, one list per stage."""
        return [
            [
                StageChoice(p, r, h)
                for p, r in degree_pairs(self.workers)
                if p <= stage.rows and (p * r == self.workers or not self.every_worker)
                for h in self._thread_counts(stage, p)
            ]
            for stage in self.stages
        ]

    def _thread_counts(self, stage: Stage, partitions: int) -> list[int]:
        """Thread counts worth trying: each trades compute time against network latency."""
        if self.threads is not None:
            return [self.threads]

        def select_counts() -> list[int]:
            """Pareto-optimal thread counts in compute time and latency."""
            counts = range(1, self.constants.threads + 1)
            cost = {h: self._base_compute_s(stage, StageChoice(partitions, 1, h)) for h in counts}
            wait = {h: self.constants.latency_s[h - 1] / h for h in counts}
            kept: list[int] = []
            for h in sorted(counts, key=lambda h: (cost[h], wait[h], -h)):
                if not kept or wait[h] < wait[kept[-1]] * (1 - 1e-9):
                    kept.append(h)
            return kept

        return get_or_make(self.memory, ("threads", stage.signature, partitions), select_counts)

    def _base_compute_s(self, stage: Stage, choice: StageChoice) -> float:
        """Compute seconds per sample of a choice without replication; memoized for all problems."""
        alone = StageChoice(choice.partitions, 1, choice.threads)
        key = ("compute", stage.signature, choice.partitions, choice.threads)
        return get_or_make(self.memory, key, lambda: stage_split(self.constants, stage, alone).compute_s)

    @cached_property
    def compute_s(self) -> list[Table]:
        """Compute seconds per sample of a replica: for each stage an array over its choices."""
        if self.splits is not None:
            return [
                np.array([self.compute_split(at, choice).compute_s for choice in options])
                for at, options in enumerate(self.choices)
            ]
        return [
            np.array([self._base_compute_s(stage, choice) / choice.replications for choice in options])
            for stage, options in zip(self.stages, self.choices, strict=True)
        ]

    def compute_split(self, index: int, choice: StageChoice) -> Split:
        """Compute seconds per sample of a replica at one stage, split into forward and backward parts."""
        stage = self.stages[index]
        if self.splits is None:
            return stage_split(self.constants, stage, choice)
        used = choice.threads / self.constants.threads  # of the device
        return self.splits[index].scale_by(
            stage.largest_share(choice.partitions) / (used * choice.replications)
        )

    @cached_property
    def read_bytes(self) -> list[Table]:
        """Weight bytes that a replica reads: for each stage an array over its choices."""
        return [
            np.array([stage.read_bytes(*choice.degrees) for choice in options])
            for stage, options in zip(self.stages, self.choices, strict=True)
        ]

    @cached_property
    def links(self) -> list[tuple[int, int, Table]]:
        """Links as (source, stage, cost table in seconds) at the best placement; equal ones share a table."""
        known: dict[object, Table] = {}
        tables = []
        for index, stage in enumerate(self.stages):
            for link in stage.links:
                source_choices, choices = self.choices[link.source], self.choices[index]
                key = (link.elements, link.geometry, tuple(source_choices), tuple(choices))
                if key not in known:
                    known[key] = self._link_table(link, source_choices, choices)
                tables.append((link.source, index, known[key]))
        return tables

    def _link_table(
        self, link: Link, source_choices: Sequence[StageChoice], stage_choices: Sequence[StageChoice]
    ) -> Table:
        """Network seconds per sample of a link, for every pair of choices of its two stages."""
        geometry = link.geometry
        traffic = np.array(
            [[best_traffic(geometry, a.degrees, b.degrees) for b in stage_choices] for a in source_choices]
        )
        per_element = BYTES_PER_ELEMENT * link.elements / self.constants.nic_bytes_per_s
        latency = np.array(self.constants.latency_s)

        def s_per_element_and_message(choices: Sequence[StageChoice]) -> tuple[Table, Table]:
            """Seconds per element and per message, one array each over the choices."""
            copies = np.array([choice.replications for choice in choices], float)
            threads = np.array([choice.threads for choice in choices])
            return per_element / copies, latency[threads - 1] / (threads * copies)

        source_bytes, source_messages = s_per_element_and_message(source_choices)
        stage_bytes, stage_messages = s_per_element_and_message(stage_choices)
        forward = traffic[:, :, 0] * stage_bytes + traffic[:, :, 1] * stage_messages
        backward = traffic[:, :, 2] * source_bytes[:, None] + traffic[:, :, 3] * source_messages[:, None]
        return np.asarray(forward + backward)

    @property
    def order(self) -> list[int]:
        """Order in which the dynamic programme eliminates the stages."""
        scopes = [(link.source, at) for at, stage in enumerate(self.stages) for link in stage.links]
        return get_or_make(self.memory, "order", lambda: elimination_order(len(self.stages), scopes))

    def factors(self, s_per_byte: float) -> list[Factor]:
        """Cost tables of all stages and links in seconds per sample; weight bytes cost `s_per_byte` each."""
        nodes: list[Factor] = [
            ((at,), self.compute_s[at] + s_per_byte * self.read_bytes[at]) for at in range(len(self.stages))
        ]
        return nodes + [((source, stage), table) for source, stage, table in self.links]

    def sample_s_and_read_bytes(self, states: Sequence[int]) -> tuple[float, float]:
        """Seconds per sample with segments placed best, and weight bytes read per replica."""
        sample_s = sum(float(self.compute_s[at][state]) for at, state in enumerate(states))
        sample_s += sum(float(table[states[a], states[b]]) for a, b, table in self.links)
        return sample_s, sum(float(self.read_bytes[at][state]) for at, state in enumerate(states))

    @property
    def log10_combinations(self) -> float:
        """Decimal logarithm of the number of combinations of all stages' choices."""
        return sum(math.log10(len(options)) for options in self.choices)


@dataclass(frozen=True)
class ReplicaPlacement:
    """Choice and worker placement of every stage of a replica, with the seconds per sample that they take."""

    choices: tuple[StageChoice, ...]
    placements: tuple[Placement, ...]
    splits: tuple[Split, ...]  # by stage: computing and network, without reading
    read_bytes: float
    least_s: float  # no mapping of these choices costs less per sample (without reading)
    worker_bytes: float  # the most that any worker holds

    @cached_property
    def split(self) -> Split:
        """Seconds per sample, summed over stages and split by part of training."""
        total = Split()
        for part in self.splits:
            total += part
        return total

    @property
    def sample_s(self) -> float:
        """Seconds per sample of a replica."""
        return self.split.total_s


def place_segments(problem: PartitionProblem, states: Sequence[int]) -> ReplicaPlacement:
    """Places the segments of each stage on the workers that hold most of their inputs.

    Optimal on a chain; where branches meet, `least_s` bounds how far it is from the optimum.
    """
    c = problem.constants
    choices = [options[state] for options, state in zip(problem.choices, states, strict=True)]
    placements: list[Placement] = []
    splits: list[Split] = []
    for at, (stage, choice) in enumerate(zip(problem.stages, choices, strict=True)):
        split = problem.compute_split(at, choice)
        sources = [choices[link.source] for link in stage.links]
        if len(sources) == 1 and sources[0].degrees == choice.degrees:  # segments stay with their sources
            link = stage.links[0]
            place = placements[link.source]
            traffic = best_traffic(link.geometry, choice.degrees, choice.degrees)
            split += link_split(c, link, traffic, sources[0], choice)
        elif sources:
            maps = [
                overlap_matrix(link.geometry, source.partitions, choice.partitions)
                for link, source in zip(stage.links, sources, strict=True)
            ]
            pulls = [
                (overlap * link.elements, placements[link.source])
                for link, overlap in zip(stage.links, maps, strict=True)
            ]
            place = best_placement(problem.workers, *choice.degrees, pulls)
            for link, source, overlap in zip(stage.links, sources, maps, strict=True):
                traffic = traffic_between(overlap, placements[link.source], place)
                split += link_split(c, link, traffic, source, choice)
        else:
            place = default_placement(*choice.degrees)
        placements.append(place)
        splits.append(split)
    least, read = problem.sample_s_and_read_bytes(states)
    held = peak_worker_bytes(problem.stages, choices, placements, problem.workers)
    return ReplicaPlacement(tuple(choices), tuple(placements), tuple(splits), read, least, held)


def peak_worker_bytes(
    stages: Sequence[Stage], choices: Sequence[StageChoice], placements: Sequence[Placement], workers: int
) -> float:
    """Memory of the fullest worker in bytes: weights, gradients, and each thread's activations and errors."""
    held = np.zeros(workers)
    for stage, choice, place in zip(stages, choices, placements, strict=True):
        part = stage.largest_share(choice.partitions)
        weights = stage.weight_bytes * (part if stage.dense else 1.0)
        held[place.ravel()] += (
            2 * weights + 2 * choice.threads * stage.out_elements * part * BYTES_PER_ELEMENT
        )
    return float(held.max())
