"""The base class of strategies over collectives: settings, library and links, and bounds in closed form.

An upper bound on throughput serves thousands of plans at once. The step of a worker in the long run lasts at
least as long as a step with every op at its mean: waiting for others only adds, and the end of a chain of
maxima is convex in its times, so that its mean is not below its value at the means (Jensen). All workers go
at the rate of the slowest. Channels of one level share its wire: where a library has several collectives in
flight only their bytes count, where it has one their latencies count too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from planner.device.computation import WAIT, Computation
from planner.device.precision import Precision
from planner.errors import BadInput, PlannerError, unknown_name
from planner.memoize import first_argument, memoize
from planner.model import Model
from planner.note import Note
from planner.parallel.collectives import Kind, Library, Peers, Phase, ring_bytes, uncontended_s
from planner.parallel.collectives.libraries import Gloo, Nccl, link_notes, site_peers
from planner.parallel.data import Exchange, Job, RequestedSettings
from planner.parallel.data.joint import JITTER_S, JointSteps, contention_s, first_backward_op, mean_s
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.parallel.data.ddp import AllReduce, Bucket
    from planner.parallel.data.fsdp import Sharded, ShardTraffic


GRADIENTS = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes per element, as they are sent
CHOICES: dict[str, tuple[Any, ...]] = {
    "library": ("auto", "nccl", "gloo"),
    "algorithm": ("auto", "ring", "tree", "hierarchical"),
    "gradients": ("auto", *GRADIENTS),
    "within": ("all", "machine"),  # shard over all workers, or inside each machine
    "gathers": ("auto", "after", "next"),
}
POSITIVE = ("bucket_bytes", "first_bucket_bytes")
NOT_NEGATIVE = ("prefetch", "accesses", "jitter_s", "cycle_s")

E = TypeVar("E", bound=Exchange)


class Collective(Exchange):
    """Base class of strategies over collectives: settings and their checks, library, links. Subclasses have
    the fields `library`, `gradients` and `jitter`, and others of `CHOICES`."""

    __slots__ = ()
    library: str
    gradients: str
    jitter: float
    algorithm: str = "auto"
    within: str = "all"

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            name, value = f"{self.kind}:{field.name}", getattr(self, field.name)
            if field.name in CHOICES and value not in CHOICES[field.name]:
                allowed = CHOICES[field.name]
                raise unknown_name(name, value, allowed, hint=f"one of {', '.join(allowed)}")
            if field.name in POSITIVE and not value > 0:
                raise BadInput(f"{name} is {value}; it must be above zero")
            if field.name in NOT_NEGATIVE and not value >= 0:
                raise BadInput(f"{name} is {value}; it must not be below zero")
            if field.name == "jitter" and not 0 <= value <= 1:
                raise BadInput(f"{name} is {value}; it must lie between 0 and 1")

    @classmethod
    def first_candidate(cls, asked: RequestedSettings, site: Site) -> Self | None:
        """Strategy with the requested settings; None if it cannot run, or on one device unless requested."""
        if site.workers < 2 and not asked.choices and not asked.single:
            return None
        exchange = build_strategy(cls, tuple(asked.choices.items()))
        return exchange if exchange.infeasibility(site) is None else None

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error if the site's devices cannot run the strategy's collectives; None if they can."""
        return infeasibility(self.library, site, within=self.within)

    def library_at(self, site: Site) -> Library:
        """Library of collectives that a site uses."""
        return library(self.library, self.algorithm, site)

    def shard_count(self, site: Site) -> int:
        """Number of workers that share the parts of a tensor, or whole tensors."""
        return min(site.devices, site.workers) if self.within == "machine" else site.workers

    def gradient_bytes(self, precision: Precision) -> int:
        """Bytes per element of the stored and sent gradients."""
        return GRADIENTS.get(self.gradients, precision.gradient_bytes)

    def start_steps(self, computation: Computation, site: Site, jitter_s: float = JITTER_S) -> JointSteps:
        """Returns a step without ops on a site; the caller adds computation and collectives."""
        library = self.library_at(site)
        jitter_s = jitter_s if self.jitter else 0.0
        return JointSteps(computation, site, library, site_peers(site, library), self.jitter, jitter_s)

    def link_notes(self, site: Site | None) -> tuple[Note, ...]:
        """Notes on what the strategy assumes about the links of a site."""
        return () if site is None else link_notes(site, self.library_at(site))


def library(name: str, algorithm: str, site: Site) -> Library:
    """The collective library of this name; `auto` is Gloo on CPU machines, as NCCL needs GPUs."""
    if name == "auto":
        name = "nccl" if site.hardware.device.kind == "gpu" else "gloo"
    return Nccl(algorithm) if name == "nccl" else Gloo()  # type: ignore[arg-type]


def infeasibility(name: str, site: Site | None, *, within: str = "all") -> BadInput | None:
    """Error that explains why collectives cannot run on a site, with the remedy; None if they can."""
    if site is None:
        return None
    hardware, words = site.hardware, ""
    if within == "machine" and not can_shard_within_machines(site):
        words = "groups within machines need several whole machines with several devices; use within=all"
    elif name == "nccl" and hardware.device.kind == "cpu":
        words = f"{hardware.name} has no GPU, and NCCL needs one; use library gloo"
    elif min(site.devices, site.workers) > 1 and site.fabric is None:
        words = (
            f"how the {site.devices} devices of {hardware.name} are joined is not known; add a [fabric] to "
            "its hardware file (docs/hardware.md)"
        )
    elif site.machines > 1:
        words = site.missing_rdma_reason or missing_bandwidth_reason(site)
    return BadInput(words) if words else None


def missing_bandwidth_reason(site: Site) -> str:
    """Explains that a site's NIC bandwidth is not published, with the remedy; empty string if it is."""
    if site.market.nic_bytes_per_s(site.hardware) is None:
        return f"the NIC of {site.hardware.name} is not published; give --bandwidth"
    return ""


def can_shard_within_machines(site: Site) -> bool:
    """Whether a site has several full machines with several devices each."""
    return site.machines > 1 and site.devices > 1 and site.workers % site.devices == 0


@memoize
def build_strategy(kind: type[E], choices: tuple[tuple[str, str], ...]) -> E:
    """Builds a strategy with requested settings, given as text such as `bucket_bytes=1000000`."""
    default = kind()
    types = {field.name: type(getattr(default, field.name)) for field in fields(default)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in choices:
        if name not in types:
            raise unknown_name(f"setting of {kind.kind}", name, types)
        values[name] = _parse_setting(f"{kind.kind}:{name}", text, types[name])
    return replace(default, **values)  # type: ignore[type-var]


def _parse_setting(name: str, text: str, kind: type) -> Any:
    """Converts the text of a setting to the type of its default."""
    if kind is bool:
        if text not in ("yes", "no"):
            raise BadInput(f"{name} is {text!r}; give yes or no")
        return text == "yes"
    if kind is str:
        return text
    try:
        value = float(text)
        if not math.isfinite(value) or (kind is int and value != int(value)):
            raise ValueError
    except ValueError:
        raise BadInput(f"{name} is {text!r}; give a {'whole ' if kind is int else ''}number") from None
    return kind(value)


def allreduce_bound(exchange: AllReduce, job: Job) -> float:
    """Upper bound on the samples per second of an all-reduce job."""
    from planner.parallel.data.ddp import backward_slowdown

    computation, site, times = job.computation, job.site, job.accumulate
    library = exchange.library_at(site)
    peers = site_peers(site, library)
    buckets = exchange.buckets(computation)
    factor = backward_slowdown(
        *(computation, buckets, library, peers, site),
        accesses=exchange.accesses,
        copied=exchange.copied,
        passes=times,
    )
    forward_s, ready_s, pass_s = _ready_s(computation, buckets)
    # One wait for other stages in a step: each pass has its part, and buckets leave in the last pass.
    others_s = _wait_s(computation) * (1 - 1 / times)
    forward_s, pass_s = forward_s - others_s, pass_s - others_s
    before_s, total_s = (times - 1) * pass_s - others_s, times * pass_s
    slowest = min(site.speeds, default=1.0)
    step_s = (forward_s + (total_s - forward_s) * factor) / slowest
    costs: dict[float, tuple[float, dict[str, float]]] = {}
    free_s: dict[str, float] = {}  # when each level is free again
    for bucket, at_s in zip(buckets, ready_s, strict=True):
        if bucket.bytes not in costs:
            phases = library.phases("all_reduce", bucket.bytes, peers)
            costs[bucket.bytes] = uncontended_s(phases, peers), _level_busy_s(phases, library, peers)
        alone, busy = costs[bucket.bytes]
        ready = (forward_s + (before_s + at_s - forward_s) * factor) / slowest
        for level, busy_s in busy.items():
            free_s[level] = max(free_s.get(level, 0.0), ready) + busy_s
        step_s = max(step_s, ready + alone)
    step_s = max(step_s, *free_s.values(), 0.0)
    return _samples_per_s(job, step_s + exchange.tail_s(computation, buckets, peers, site) / slowest)


def _samples_per_s(job: Job, step_s: float) -> float:
    """Samples per second of a job whose step takes `step_s` seconds."""
    return job.computation.batch * job.accumulate * job.site.workers / max(step_s, 1e-12)


@dataclass(frozen=True, slots=True)
class _TrafficTimes:
    """Collectives of one micro-batch: seconds in sequence, seconds per level, and seconds that nothing
    hides."""

    gathers_s: float
    scatters_s: float
    gathers_busy_s: Mapping[str, float]
    scatters_busy_s: Mapping[str, float]
    contention_s: tuple[float, float]  # from computation, by gathers and by scatters
    exposed_s: float
    after_s: float  # after the optimizer


def _traffic_times(exchange: Sharded, traffic: ShardTraffic, library: Library, site: Site) -> _TrafficTimes:
    """Seconds of the gathers and scatters of one micro-batch: in total, by link level, and exposed."""
    peers = site_peers(site, library)
    whole, across = shard_and_replica_groups(exchange, peers)
    gathers = [(library.phases("all_gather", size, whole), whole, times) for size, times in traffic.gathers]
    scatters = []
    for size, times in traffic.scatters:
        scatters.append((library.phases("reduce_scatter", size, whole), whole, times))
        if across is not None:
            scatters.append((library.phases("all_reduce", size, across), across, times))
    alone, busy = [], []
    for sent in (gathers, scatters):
        alone.append(sum(uncontended_s(phases, group) * times for phases, group, times in sent))
        levels: dict[str, float] = {}
        for phases, group, times in sent:
            for level, busy_s in _level_busy_s(phases, library, group).items():
                levels[level] = levels.get(level, 0.0) + busy_s * times
        busy.append(levels)
    exposed_s = library.seconds("all_gather", traffic.first, whole) if traffic.first else 0.0
    exposed_s += library.seconds("reduce_scatter", traffic.last, whole)
    after_s = library.seconds("all_gather", traffic.after, whole) if traffic.after else 0.0
    contention_s = overlap_loss_s(exchange, traffic, library, peers, site)
    return _TrafficTimes(alone[0], alone[1], busy[0], busy[1], contention_s, exposed_s, after_s)


def sharded_bound(exchange: Sharded, job: Job) -> float:
    """Upper bound on the samples per second of a sharded job."""
    computation, site = job.computation, job.site
    library = exchange.library_at(site)
    traffic = exchange.traffic(computation, site)
    key = ("sent", traffic, exchange.within, exchange.library, exchange.accesses)
    sent = site.get_or_make(key, lambda: _traffic_times(exchange, traffic, library, site))
    slowest = min(site.speeds, default=1.0)
    gathered = job.accumulate if exchange.stage == 3 else 1
    scattered = job.accumulate if exchange.each_pass else 1
    alone = gathered * sent.gathers_s + scattered * sent.scatters_s
    mean = job.accumulate * _total_s(computation) - (job.accumulate - 1) * _wait_s(computation)
    contention_s = gathered * sent.contention_s[0] + scattered * sent.contention_s[1]
    compute_s = (mean if exchange.blocking else mean + min(contention_s, mean)) / slowest
    if exchange.blocking and exchange.within == "all":
        step_s = compute_s + alone
    else:
        step_s = compute_s + sent.exposed_s
        # gradients are ready from the first backward pass on that scatters them
        before = 0 if exchange.each_pass else job.accumulate - 1
        ready_s = before * _total_s(computation) + _ready_s(computation, ())[0]
        ready_s = (ready_s - (before + 1) * _wait_s(computation)) / slowest
        for level in (*sent.gathers_busy_s, *sent.scatters_busy_s):
            busy_s = gathered * sent.gathers_busy_s.get(level, 0.0)
            scatters_s = scattered * sent.scatters_busy_s.get(level, 0.0)
            step_s = max(step_s, busy_s + scatters_s, ready_s + scatters_s)
    step_s += computation.optimizer_s / exchange.shard_count(site) / slowest + sent.after_s
    return _samples_per_s(job, step_s)


@memoize(on=first_argument)
def _wait_s(computation: Computation) -> float:
    """Seconds per step of waiting for other pipeline stages."""
    return 0.0 if computation.work is None else float(mean_s(computation)[computation.work == WAIT].sum())


@memoize(on=first_argument)
def _total_s(computation: Computation) -> float:
    """Seconds of all ops of a step together, averaged over steps."""
    return float(mean_s(computation).sum())


@memoize(on=first_argument)
def _ready_s(computation: Computation, buckets: tuple[Bucket, ...]) -> tuple[float, tuple[float, ...], float]:
    """Seconds until the backward pass begins, until each bucket is ready, and of all ops."""
    ends = np.cumsum(mean_s(computation))
    turn = first_backward_op(computation)
    forward_s = float(ends[turn - 1]) if 0 < turn < computation.ops else 0.0
    return forward_s, tuple(float(ends[bucket.ready]) for bucket in buckets), float(ends[-1])


def _level_busy_s(phases: Iterable[Phase], library: Library, peers: Peers) -> dict[str, float]:
    """Seconds for which phases occupy each level of links."""
    busy_s: dict[str, float] = {}
    for phase in phases:
        wire_s = phase.bytes / peers.bytes_per_s(phase.level)
        waits_s = phase.latency_s if library.in_flight == 1 else 0.0
        busy_s[phase.level] = busy_s.get(phase.level, 0.0) + wire_s + waits_s
    return busy_s


def shard_and_replica_groups(exchange: Sharded, peers: Peers) -> tuple[Peers, Peers | None]:
    """Ranks that share a unit's shards, and ranks that sum equal shards (None: no other rank)."""
    if exchange.within == "all" or peers.inside is None or peers.between is None:
        return peers, None
    return Peers.of(inside=peers.inside), Peers.of(between=peers.between)


def overlap_loss_s(
    exchange: Sharded, traffic: ShardTraffic, library: Library, peers: Peers, site: Site
) -> tuple[float, float]:
    """Seconds that computation loses to concurrent gathers, and to scatters
    (`planner.parallel.data.joint`)."""
    whole, across = shard_and_replica_groups(exchange, peers)

    def lost_s(kind: Kind, size: float, group: Peers, devices: int = 1) -> float:
        """Seconds that computation loses to one collective."""
        sent_bytes = ring_bytes(kind, size, group.ranks) / devices
        return contention_s(exchange.accesses, sent_bytes, library.seconds(kind, size, group), site)

    gathers_s = sum(lost_s("all_gather", size, whole) * times for size, times in traffic.gathers)
    scatters_s = sum(lost_s("reduce_scatter", size, whole) * times for size, times in traffic.scatters)
    if across is not None:  # what a machine sends is sent by its devices together
        scatters_s += sum(
            lost_s("all_reduce", size, across, site.devices) * times for size, times in traffic.scatters
        )
    return gathers_s, scatters_s
