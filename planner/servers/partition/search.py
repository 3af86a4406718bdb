"""The scalability optimizer of Yan et al. (KDD 2015), section 5: servers, replicas, workers a replica, and
for every layer partitions, replications and threads, for the least epoch time (its Figure 7).

    minimise   T_epoch = N_sample ( sum_l [U + M](l) / (Q(l) N_mr) + M_w / N_read )            (12)
    subject to C1  N_wr N_mr + N_ps <= N machines
               C2  H(l) <= cores
               C3  segments of one layer stand on different workers: P(l) R(l) <= N_wr
               C4  the threads of a segment share its worker (H counts threads of one machine)
               and, which the paper leaves out, what a worker holds fits in its memory.

For a given N_wr the layers' part is solved by dynamic programming (`elimination`) for a price of a byte read
that depends on N_mr, N_ps and N_read. The least cost as a function of that price is concave and piecewise
linear: we find its pieces once for each N_wr, which answers every (N_mr, N_ps) exactly. On branching models
segments' mapping is the only approximation, and `PartitionPlan.gap` bounds what it loses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from planner.errors import BadInput, Infeasible
from planner.hardware import Hardware, Network
from planner.model import Model
from planner.note import Progress, ignore_progress
from planner.servers.partition.costs import PartitionProblem, ReplicaPlacement, minimise, place_segments
from planner.servers.partition.layers import (
    PaperConstants,
    Split,
    reading_s_per_byte,
    stage_splits,
    worker_constants,
)
from planner.servers.partition.stages import Stage, stages_of
from planner.units import format_bytes

USABLE_MEMORY = 0.9  # of a machine: the rest is the operating system's
REPORTED = 10_000  # plans between two reports of progress


MOST_MACHINES = 1_024


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """Options of `planner partition`; defaults are those of Yan et al. (KDD 2015), section 6."""

    machines: int
    read_every: int = 70
    reading: float = 0.0
    max_workers: int | None = None
    workers: int | None = None
    replicas: int | None = None
    servers: int | None = None
    threads: int | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        for name in (entry.name for entry in fields(self) if entry.name != "reading"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        if self.machines > MOST_MACHINES:
            raise BadInput(
                f"--machines is {self.machines:,}; at most {MOST_MACHINES} are searched, as time and memory "
                "grow with the square; the paper's clusters have 20"
            )
        if not 0 <= self.reading <= 1:
            raise BadInput(f"--reading is {self.reading}; it lies between 0 (best case) and 1 (worst)")


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One configuration of workers, replicas and servers, with its stages' choices and epoch time."""

    workers: int  # a replica
    replicas: int
    servers: int
    epoch_s: float
    samples_per_s: float
    reading_s: float  # a sample of a replica
    samples: int  # of an epoch
    stages: tuple[Stage, ...]
    spread: ReplicaPlacement
    gap: float  # how far above the least possible this may lie, relative (0: proven optimal)
    worst_epoch_s: float  # with all replicas reading from one server at once
    worker_bytes: float  # the most that any worker of the replica holds
    devices: int = 1  # of a machine, each of them a worker

    @property
    def split(self) -> Split:
        """Seconds per epoch, split by part of training."""
        return (self.spread.split + Split(reading_s=self.reading_s)).scale_by(self.samples / self.replicas)

    @property
    def name(self) -> str:
        """Text of the shape: `<workers,replicas,servers>`."""
        return f"<{self.workers},{self.replicas},{self.servers}>"

    @property
    def machines(self) -> int:
        """Number of machines, including servers."""
        return -(-self.workers * self.replicas // self.devices) + self.servers


@dataclass(frozen=True)
class PartitionResult:
    """Plans by epoch time, fastest first, with search statistics and constants."""

    model: Model
    hardware: Hardware
    request: PartitionRequest
    plans: tuple[PartitionPlan, ...]
    considered: int
    refused: int  # for memory
    combinations: float  # ways to spread the layers, the power of ten, for the largest replica
    programmes: int  # dynamic programmes solved
    constants: PaperConstants


def partition(
    model: Model,
    hardware: Hardware,
    request: PartitionRequest,
    *,
    network: Network = "baseline",
    progress: Progress = ignore_progress,
) -> PartitionResult:
    """Searches all requested (workers per replica, replicas, servers) and ranks the plans by epoch time."""
    constants = worker_constants(hardware, network)
    if request.threads is not None and request.threads > constants.threads:
        raise Infeasible(
            f"C2 binds: {request.threads} threads are asked, {hardware.name} has {constants.threads} cores; "
            f"--threads {constants.threads} is the most"
        )
    samples = epoch_samples(model, request)
    devices = hardware.device_count
    shapes = list(_cluster_shapes(request, devices))
    if not shapes:
        raise _machines_error(request, devices)
    stages = stages_of(model)
    splits = stage_splits(model, stages, hardware, request.read_every)
    memory = USABLE_MEMORY * (hardware.memory_bytes or hardware.device.memory_bytes)
    if hardware.device.kind == "gpu":
        memory = USABLE_MEMORY * hardware.device.memory_bytes
    worst_case = replace(request, reading=1.0)
    plans: list[PartitionPlan] = []
    programmes = refused = 0
    shared: dict[Hashable, Any] = {}
    least_bytes = float("inf")
    combinations = 0.0
    for workers, mine in groupby(shapes, key=itemgetter(0)):
        problem = PartitionProblem(
            stages, constants, workers, threads=request.threads, splits=splits, memory=shared
        )
        combinations = max(combinations, problem.log10_combinations)
        prices = {shape: read_cost_s_per_byte(constants, request, *shape) for shape in mine}
        spreads = pareto_placements(problem, min(prices.values()), max(prices.values()))
        programmes += len(spreads)
        tensors = sum(stage.tensors for stage in stages)
        parse_s = constants.parse_s * tensors / request.read_every
        # plain numbers: up to a million plans are made of them
        choices = [(each.sample_s, each.least_s, each.read_bytes, each) for each in spreads]
        for shape, price in prices.items():
            if not (len(plans) + refused) % REPORTED:
                progress("ranking", len(plans) + refused, len(shapes))
            plan = _make_plan(
                shape,
                choices,
                price=price,
                worst_price=read_cost_s_per_byte(constants, worst_case, *shape),
                parse_s=parse_s * shape[1] if shape[2] else 0.0,
                samples=samples,
                stages=stages,
                devices=devices,
            )
            least_bytes = min(least_bytes, plan.worker_bytes)
            if plan.worker_bytes > memory:
                refused += 1
            else:
                plans.append(plan)
    if not plans:
        raise Infeasible(
            f"memory binds: every plan of {model.name} on {request.machines} machines needs at least "
            f"{format_bytes(least_bytes)} on one worker, {hardware.name} has {format_bytes(memory)} usable; "
            "more workers a replica (--max-workers, --machines) or fewer --threads need less"
        )
    plans.sort(key=lambda plan: (plan.epoch_s, plan.machines, plan.workers, plan.servers))
    return PartitionResult(
        model=model,
        hardware=hardware,
        request=request,
        plans=tuple(plans),
        considered=len(shapes),
        refused=refused,
        combinations=combinations,
        programmes=programmes,
        constants=constants,
    )


def epoch_samples(model: Model, request: PartitionRequest) -> int:
    """Samples per epoch: as requested, or as the model's file says."""
    samples = request.samples or model.samples_per_epoch
    if samples is None:
        raise BadInput(f"{model.name} says no samples_per_epoch; give --samples")
    return samples


def _cluster_shapes(request: PartitionRequest, devices: int = 1) -> Iterator[tuple[int, int, int]]:
    """All (workers per replica, replicas, servers) that constraint C1 and the request allow.

    Replicas fill the devices of their machines, as a device left over would idle. A single machine has no
    servers: it holds one replica, which reads nothing.
    """
    n = request.machines
    if n == 1 and request.servers is None and request.replicas in (None, 1):
        for workers in _count_range(request.workers, min(devices, request.max_workers or devices)):
            yield workers, 1, 0
        return
    most = (n - 1) * devices
    for workers in _count_range(request.workers, min(most, request.max_workers or most)):
        filling = {nodes * devices // workers for nodes in range(1, n)} - {0}
        for replicas in sorted(filling) if request.replicas is None else _count_range(request.replicas, most):
            nodes = -(-workers * replicas // devices)
            for servers in _count_range(request.servers, n - nodes):
                yield workers, replicas, servers


def _count_range(requested: int | None, maximum: int) -> range:
    """Counts to try: the requested one if it is at most `maximum`, or all from 1 to `maximum`."""
    return range(1, maximum + 1) if requested is None else range(requested, min(requested, maximum) + 1)


def _machines_error(request: PartitionRequest, devices: int = 1) -> Infeasible:
    """Error for a request that needs more workers or machines than it allows."""
    workers, replicas, servers = request.workers or 1, request.replicas or 1, request.servers or 1
    need = -(-workers * replicas // devices) + servers
    if request.max_workers is not None and workers > request.max_workers:
        return Infeasible(
            f"{workers} workers a replica are asked and at most {request.max_workers} allowed; "
            f"--max-workers {workers} is the smallest change"
        )
    return Infeasible(
        f"C1 binds: <{workers} workers a replica, {replicas} replicas, {servers} servers> need {need} "
        f"machines, {request.machines} are given; --machines {need} is the smallest change"
    )


def read_cost_s_per_byte(
    constants: PaperConstants, request: PartitionRequest, workers: int, replicas: int, servers: int
) -> float:
    """Seconds per sample that reading one byte of weights costs; replicas read in turn (equation 12)."""
    if not servers:
        return 0.0
    return replicas * reading_s_per_byte(constants, workers, servers, request.reading) / request.read_every


def pareto_placements(problem: PartitionProblem, low: float, high: float) -> list[ReplicaPlacement]:
    """Pareto-optimal placements: each is best at some cost per byte read, from `low` to `high` seconds."""

    def solve_at(s_per_byte: float) -> _Point:
        """Solves the partition problem at one cost per byte read."""
        states = minimise(problem.order, problem.factors(s_per_byte))[1]
        return _Point(tuple(states), *problem.sample_s_and_read_bytes(states))

    def points_between(low_cost: _Point, high_cost: _Point) -> list[_Point]:
        """Solutions that are optimal at some cost per byte read between those of two solutions."""
        if low_cost.read_bytes <= high_cost.read_bytes:
            return []
        price = (high_cost.sample_s - low_cost.sample_s) / (low_cost.read_bytes - high_cost.read_bytes)
        middle = solve_at(price)
        line = low_cost.sample_s + price * low_cost.read_bytes
        if middle.sample_s + price * middle.read_bytes >= line * (1 - 1e-9):
            return []
        return [*points_between(low_cost, middle), middle, *points_between(middle, high_cost)]

    first = solve_at(low)
    last = solve_at(high) if high > low else first
    points = [first] if last.states == first.states else [first, *points_between(first, last), last]
    return [place_segments(problem, point.states) for point in points]


class _Point(NamedTuple):
    """Optimal solution at one cost per byte: its states, seconds per sample, and bytes read."""

    states: tuple[int, ...]
    sample_s: float
    read_bytes: float


def _make_plan(
    shape: tuple[int, int, int],
    choices: Sequence[tuple[float, float, float, ReplicaPlacement]],
    *,
    price: float,
    worst_price: float,
    parse_s: float,
    samples: int,
    stages: tuple[Stage, ...],
    devices: int,
) -> PartitionPlan:
    """Plan of one (workers, replicas, servers), with the fastest placement at this cost per byte read."""
    workers, replicas, servers = shape
    best_s, read_bytes, best = min(
        ((sample_s + price * read, read, spread) for sample_s, _, read, spread in choices),
        key=itemgetter(0),
    )
    least = min([least_s + price * read for _, least_s, read, _ in choices]) + parse_s
    sample_s = best_s + parse_s
    return PartitionPlan(
        workers=workers,
        replicas=replicas,
        servers=servers,
        epoch_s=samples * sample_s / replicas,
        samples_per_s=replicas / sample_s,
        reading_s=price * read_bytes + parse_s,
        samples=samples,
        stages=stages,
        spread=best,
        gap=sample_s / least - 1.0,
        worst_epoch_s=samples * (best.sample_s + worst_price * read_bytes + parse_s) / replicas,
        worker_bytes=best.worker_bytes,
        devices=devices,
    )
