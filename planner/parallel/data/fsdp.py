"""Sharded data parallelism, as ZeRO and FSDP do it: each worker stores a part of the state that all of
them need.

Stage 1 shards the optimizer's state, stage 2 the gradients too, stage 3 the parameters as well. Units are
the model's blocks. With stage 3 a unit's parameters are gathered before its forward pass and again before
its backward pass (the last unit keeps them), and its gradients are reduced and scattered after it. With
stages 1 and 2 gradients are scattered unit by unit in the backward pass. Updated parameters are then
gathered at once after the optimizer, exposed, as DeepSpeed does, or unit by unit in the next forward pass,
as Megatron (`--overlap-param-gather`) and FSDP's SHARD_GRAD_OP do. `prefetch` units are gathered ahead of
the one that computes.

`within="machine"` shards inside each machine only (HSDP): gathers and scatters stay on its fabric, and
each worker sums its shard of the gradients with the same shard in other machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from planner.device.computation import Computation, layout_key, unit_name
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.errors import BadInput
from planner.memoize import get_or_make_on, memoize
from planner.model import Model
from planner.parallel.collectives import Kind, Library, Peers, repeat_phases
from planner.parallel.data import ChangeKind, Exchange, Job, Labels, RequestedSettings, Variant
from planner.parallel.data.collective import (
    Collective,
    E,
    can_shard_within_machines,
    overlap_loss_s,
    shard_and_replica_groups,
    sharded_bound,
)
from planner.parallel.data.joint import ACCESSES, BETWEEN_WORKERS, JITTER, JointSteps, mean_s
from planner.parallel.data.units import Stretch, Unit, sharding_units, unit_stretches
from planner.parallel.plan import Site

if TYPE_CHECKING:
    from planner.parallel.data import Floats
    from planner.simulator.simulate import Case

STAGES = (1, 2, 3)
LEAST_UNIT = 1_000_000  # elements; blocks of transformers have more


@dataclass(frozen=True, slots=True)
class Sharded(Collective):
    """ZeRO and FSDP: each worker stores a shard of the training state. `each_pass`: gradients are scattered
    after every micro-batch, not only after the last (FSDP without no_sync, ZeRO-2). `gradients` is the format
    that they are scattered in, FSDP's reduce_dtype (auto: that of the precision). `gathers`: with stages 1
    and 2, whether parameters are gathered "after" the optimizer or in the "next" forward pass (auto: after
    it, except with tensor or pipeline parallelism). `blocking`: computation waits for every collective, as
    FSDP2 on CPUs does. Blocks of fewer than `least_unit` elements are wrapped together. `accesses` of a
    device's memory for each byte that it sends slow computing down, and `jitter` is how much steps differ
    (`planner.parallel.data.joint`)."""

    kind: ClassVar[str] = "sharded"

    stage: int = 3
    prefetch: int = 1
    within: str = "all"
    each_pass: bool = True
    blocking: bool = False
    library: str = "auto"
    gradients: str = "auto"
    least_unit: int = LEAST_UNIT
    accesses: float = ACCESSES
    jitter: float = JITTER
    gathers: str = "auto"

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise BadInput(f"sharded:stage is {self.stage}; it is 1, 2 or 3")
        Collective.__post_init__(self)

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields sharding with the requested settings, then the stages and groups worth searching."""
        first = cls.first_candidate(asked, site)
        if first is None:
            return
        yield first
        if "stage" not in asked.choices:
            yield _replace_settings(first, stage=2)  # and stage 1 takes as long, with more memory
        if "within" not in asked.choices and can_shard_within_machines(site):
            yield _replace_settings(first, within="machine")

    def has_late_gather(self, site: Site) -> bool:
        """Whether updated parameters are gathered after the optimizer, while nothing computes."""
        auto = self.gathers == "auto" and not site.mesh.is_sharded
        return self.stage < 3 and (auto or self.gathers == "after")

    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Shares of a worker with its shard of the state, plus gathered units."""
        share = 1 / self.shard_count(site)
        whole = gathered_bytes(model, precision, self.prefetch)
        return Shares(
            parameters=share if self.stage == 3 else 1.0,
            gradients=(share if self.stage >= 2 else 1.0)
            * self.gradient_bytes(precision)
            / precision.gradient_bytes,
            optimizer=share,
            buffers_bytes=float(whole if self.stage == 3 else 0),
            communicators=int(site.workers > 1),
        )

    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a step: gathers before units and reduce-scatters after them."""
        return _Lowering(self, self.start_steps(computation, site)).case()

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """Upper bounds in closed form, from computation plus exposed collectives or from all traffic."""
        return np.array([sharded_bound(cast(Sharded, job.exchange), job) for job in jobs])

    def traffic(self, computation: Computation, site: Site) -> ShardTraffic:
        """Collectives of one step; cached per computation."""
        width = self.gradient_bytes(computation.precision)
        of: dict[str, Any] = {
            "each_pass": self.each_pass,
            "width": width,
            "after": self.has_late_gather(site),
        }
        key = ("traffic", computation.precision, self.stage, self.least_unit, *of.values())
        return get_or_make_on(
            layout_key(computation),
            key,
            lambda: shard_traffic(computation, self.stage, self.least_unit, **of),
        )

    def variants(self, site: Site) -> Iterator[Variant]:
        """Yields other stages, groups and prefetch depths that may be faster."""
        if self.stage > 1:
            yield Variant(ChangeKind.STAGE, f"stage {self.stage - 1}", replace(self, stage=self.stage - 1))
        if self.within == "all" and can_shard_within_machines(site):
            yield Variant(ChangeKind.WITHIN, "sharding inside machines only", replace(self, within="machine"))
        yield Variant(ChangeKind.PREFETCH, "two units ahead", replace(self, prefetch=2))

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on what is sharded, and over which devices."""
        inside = " inside each machine" if self.within == "machine" else ""
        what = {
            1: "optimizer state",
            2: "gradients and optimizer state",
            3: "parameters, gradients and state",
        }
        name = "FSDP" if self.stage == 3 else f"ZeRO-{self.stage}"
        return Labels(
            name=f"{'hybrid ' if inside else ''}{name}",
            cell=f"sharded (stage {self.stage}{', machine' if inside else ''})",
            plan=f"{what[self.stage]} sharded across the workers{inside} (stage {self.stage})",
            assumptions=self.link_notes(site),
            resources=BETWEEN_WORKERS,
        )


@memoize
def _replace_settings(exchange: E, **settings: Any) -> E:
    """Strategy with other settings; cached because a search repeats this on every site."""
    return replace(exchange, **settings)  # type: ignore[type-var]


def memory_saving_variants(exchange: Exchange) -> Iterator[Variant]:
    """Yields variants with less memory per device, most memory first, labelled as `--exchange`."""
    sharded = exchange if isinstance(exchange, Sharded) else None
    for stage in STAGES[0 if sharded is None else sharded.stage :]:
        saving = Sharded(stage=stage) if sharded is None else replace(sharded, stage=stage)
        yield Variant(ChangeKind.STAGE, f"sharded:stage={stage}", saving)
    if sharded is not None and sharded.within == "machine":
        label = f"sharded:stage={sharded.stage}:within=all"
        yield Variant(ChangeKind.WITHIN, label, replace(sharded, within="all"))


@memoize
def gathered_bytes(model: Model, precision: Precision, prefetch: int = 1) -> float:
    """Bytes of the units gathered at the same time: the one that computes, and those prefetched."""
    units: dict[str, float] = {}
    for layer in model:
        trained = sum(tensor.trained_elements for tensor in layer.tensors) * precision.parameter_bytes
        size = trained + sum(tensor.frozen_bytes for tensor in layer.tensors)
        units[unit_name(layer)] = units.get(unit_name(layer), 0.0) + size
    sizes = list(units.values())
    return max((sum(sizes[at : at + 1 + prefetch]) for at in range(len(sizes))), default=0.0)


@dataclass(frozen=True, slots=True)
class ShardTraffic:
    """Collectives of a step of sharded training, as (bytes, count) pairs and single messages. `gathers` and
    `scatters` are the pairs that overlap with computation; `first`, `last` and `after` are bytes of the
    gather before the first op, of the scatter after the last op, and of the gather after the optimizer."""

    gathers: tuple[tuple[float, float], ...]
    scatters: tuple[tuple[float, float], ...]
    first: float
    last: float
    after: float = 0.0


def shard_traffic(
    computation: Computation, stage: int, least_unit: int, *, each_pass: bool, width: int, after: bool
) -> ShardTraffic:
    """Collectives of one step of sharded training. `width`: bytes per gradient element; `after`: gather after
    the optimizer."""
    units, precision = sharding_units(computation, least_unit), computation.precision
    result = unit_stretches(computation, units)
    gathers: dict[float, float] = {}
    scatters: dict[float, float] = {}
    first_use, last = _first_stretch_by_unit(result), 0.0
    for at, stretch in enumerate(result):
        if stretch.gathers and (stage == 3 or at == first_use[stretch.unit]):
            size = units[stretch.unit].gathered_bytes(precision, stage)
            gathers[size] = gathers.get(size, 0.0) + (stretch.stands_for if stage == 3 else 1.0)
        for number in stretch.scatters if stretch.final or each_pass else ():
            last = float(units[number].elements * width)
            scatters[last] = scatters.get(last, 0.0) + stretch.stands_for
    if after:
        in_all = sum(size * times for size, times in gathers.items())
        return ShardTraffic((), tuple(scatters.items()), 0.0, last, in_all)
    first = units[result[0].unit].gathered_bytes(precision, stage)
    return ShardTraffic(tuple(gathers.items()), tuple(scatters.items()), first, last)


def _first_stretch_by_unit(stretches: Sequence[Stretch]) -> dict[int, int]:
    """Index of the first stretch that gathers each unit."""
    first: dict[int, int] = {}
    for at, stretch in enumerate(stretches):
        if stretch.gathers:
            first.setdefault(stretch.unit, at)
    return first


class _Lowering:
    """A step under construction, with the collectives issued so far."""

    def __init__(self, exchange: Sharded, steps: JointSteps) -> None:
        self.exchange = exchange
        self.steps = steps
        self.units = sharding_units(steps.computation, exchange.least_unit)
        self.traffic = exchange.traffic(steps.computation, steps.site)
        self.stretches = unit_stretches(steps.computation, self.units)
        self.first_use = _first_stretch_by_unit(self.stretches)
        self.whole, self.across = shard_and_replica_groups(exchange, steps.peers)
        self.factor = compute_slowdown(exchange, steps.computation, steps.library, steps.peers, steps.site)
        self.last: tuple[int, ...] = ()  # the end of computation so far
        self.begun: list[tuple[int, ...]] = []  # what each stretch waited for: computation and its gather
        self.scattered: list[int] = []

    def case(self) -> Case:
        """Adds all ops of the step; returns the simulator's input."""
        steps, exchange = self.steps, self.exchange
        for at in range(len(self.stretches)):
            self._add_stretch(at)
        share_s = steps.computation.optimizer_s / exchange.shard_count(steps.site)
        updated = steps.add_optimizer(share_s, (*self.last, *self.scattered))
        if self.traffic.after:
            self._add_collective("gather", "all_gather", self.traffic.after, (updated,))
        return steps.case()

    def _add_stretch(self, at: int) -> None:
        """Adds the ops of a stretch, with the gather before them and the scatters after them."""
        exchange, steps, stretch = self.exchange, self.steps, self.stretches[at]
        waits, needed = self.last, exchange.stage == 3 or at == self.first_use[stretch.unit]
        if stretch.gathers and needed and not self.traffic.after:
            waits += self._add_gather(at)
        self.begun.append(waits)
        name = f"{stretch.name}[{at}]"
        self.last = (steps.add_compute(name, stretch.first, stretch.last, waits, self.factor),)
        if not (stretch.final or exchange.each_pass):
            return
        for number in stretch.scatters:
            ends = self._add_scatter(f"scatter[{at}.{number}]", self.units[number], at)
            self.scattered += ends
            if exchange.blocking:
                self.last = ends

    def _add_gather(self, at: int) -> tuple[int, ...]:
        """Adds the gather of a unit's parameters; returns the ops to wait for. It starts with the stretch
        `prefetch` places earlier, or with its own stretch without prefetch. Below stage 3 all gathers are
        issued together, as gathered parameters stay."""
        exchange, steps = self.exchange, self.steps
        stretch, ahead = self.stretches[at], at - exchange.prefetch
        deps: tuple[int, ...] = ()
        if exchange.blocking or ahead == at:
            deps = self.last
        elif exchange.stage == 3 and ahead >= 0:
            deps = self.begun[ahead]
        precision = steps.computation.precision
        size = self.units[stretch.unit].gathered_bytes(precision, exchange.stage)
        if not size:
            return ()
        times = stretch.stands_for if exchange.stage == 3 else 1.0
        return self._add_collective(f"gather[{at}]", "all_gather", size, deps, times=times)

    def _add_scatter(self, name: str, unit: Unit, at: int) -> tuple[int, ...]:
        """Adds the reduce-scatter of a unit, and the sum across machines; returns the ops to wait for."""
        steps, exchange = self.steps, self.exchange
        size = float(unit.elements * exchange.gradient_bytes(steps.computation.precision))
        together = exchange.stage == 3 and not exchange.blocking
        opposed = together and any(later.gathers for later in self.stretches[at + 1 :])
        times = self.stretches[at].stands_for
        ends = self._add_collective(name, "reduce_scatter", size, self.last, opposed=opposed, times=times)
        if self.across is None:
            return ends
        phases = steps.library.phases("all_reduce", size, self.across)
        return steps.add_phases(f"{name}/sum", repeat_phases(phases, times), ends)

    def _add_collective(
        self,
        name: str,
        kind: Kind,
        size: float,
        deps: tuple[int, ...],
        *,
        opposed: bool = False,
        times: float = 1.0,
    ) -> tuple[int, ...]:
        """Adds a collective among the ranks that share shards; returns the ops to wait for."""
        phases = repeat_phases(self.steps.library.phases(kind, size, self.whole, opposed=opposed), times)
        if self.across is not None:
            phases = tuple(replace(phase, scope="machine") for phase in phases)
        return self.steps.add_phases(name, phases, deps)


def compute_slowdown(
    exchange: Sharded, computation: Computation, library: Library, peers: Peers, site: Site
) -> float:
    """Factor by which concurrent collectives lengthen computation, from 1 to 2."""
    compute_s = float(mean_s(computation).sum())
    if exchange.blocking or compute_s <= 0:
        return 1.0
    taken = overlap_loss_s(exchange, exchange.traffic(computation, site), library, peers, site)
    return 1 + min(sum(taken) / compute_s, 1.0)
