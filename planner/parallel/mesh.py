"""The device mesh of a plan: the axes that spread one replica, in placement order, and who talks to whom.

Ranks are placed as Megatron numbers them: the axes inside a replica first, in the order of `AXES` (tensor
parallelism on the fastest links), then the data-parallel ranks, then axes that split layers (pipeline
stages). The ranks of a group are `stride` devices apart, so that tensor-parallel groups lie inside a machine
where they fit; and a data-parallel group has one member per `stride` devices and its part of each machine's
NICs, because the other groups exchange at the same time.

`AXES` is the registry: a new axis is one file and one line here (or one call of `register`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeVar

from planner import flags
from planner.errors import BadInput, PlannerError
from planner.memoize import memoize
from planner.parallel._base import (
    Axis,
    Communication,
    Divisible,
    MemoryShare,
    RequestedSettings,
    Shard,
    StageSchedule,
)
from planner.parallel.pipeline import PipelineParallel
from planner.parallel.tensor import TensorParallel

if TYPE_CHECKING:
    from planner.model import Chain, Model
    from planner.parallel._base import StagesTime
    from planner.parallel.plan import Site

AXES: dict[str, type[Axis]] = {axis.kind: axis for axis in (TensorParallel, PipelineParallel)}
# Axes that one data-parallel strategy lowers itself, by the flag of their degree: loaded when asked for, and
# the strategy.
STRATEGY_AXES = {"workers_per_replica": ("planner.servers.parameter_servers:FeatureSplit", "servers")}
# Shard of every key of a mesh, also at degree 1: keys of stored plans have both.
_KEYED = (TensorParallel, PipelineParallel)

AxisT = TypeVar("AxisT", bound=Axis)


def _register_flags(axis: type[Axis]) -> None:
    """Registers the command-line flags of an axis."""
    section = flags.FlagSection.PARALLELISM
    flags.add_flags(*(flags.Flag(own.name, own.help, section, flags.COUNTS) for own in axis.flags))


for _axis in AXES.values():
    _register_flags(_axis)


def axis_help(flag: str) -> str:
    """Help text of an axis's flag."""
    return next(own.help for axis in AXES.values() for own in axis.flags if own.name == flag)


def register(axis: type[AxisT], *, before: str = "pp") -> type[AxisT]:
    """Adds an axis to the registry, placed before the axis `before`; also a class decorator."""
    _register_flags(axis)
    rest = list(AXES.items())
    AXES.clear()
    for name, known in rest:
        if name == before:
            AXES[axis.kind] = axis
        AXES[name] = known
    AXES.setdefault(axis.kind, axis)
    return axis


def axis_flag_names() -> tuple[str, ...]:
    """Names of the flags of all registered axes, without the dashes."""
    return tuple(flag.name for axis in AXES.values() for flag in axis.flags)


def degree_flags() -> tuple[str, ...]:
    """Names of the flags that set the degree of each registered axis."""
    return tuple(axis.flags[0].name for axis in AXES.values())


def reject_settings_without_degree(asked: Mapping[str, tuple[int, ...]]) -> None:
    """Raises BadInput if a request sets an axis's option but leaves its degree at 1."""
    for axis in AXES.values():
        degree, *others = (flag.name for flag in axis.flags)
        for name in others:
            if max(asked.get(name, (1,))) > max(asked.get(degree, (1,))) == 1:
                option = flags.option_name(name)
                raise BadInput(
                    f"{option} needs {flags.option_name(degree)} of at least 2; add it, or drop {option}"
                )


def strategy_axis(flag: str) -> type[Axis]:
    """Axis class in `STRATEGY_AXES` whose degree this flag sets."""
    module, _, name = STRATEGY_AXES[flag][0].partition(":")
    axis: type[Axis] = getattr(import_module(module), name)
    return axis


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate with each other: `members` devices, `stride` devices apart."""

    members: int
    stride: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """Axes of degree above 1, in placement order. Without axes, each device holds a whole replica."""

    axes: tuple[Axis, ...] = ()
    size: int = field(init=False, compare=False)  # devices of a replica
    # The data-parallel strategy that lowers the replica itself; empty: this package does, for all.
    lowered_by: str = field(init=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for axis in self.axes:
            if axis.degree < 1:
                raise BadInput(f"--{axis.flags[0].name} is {axis.degree}; it is at least 1")
        order = {name: place for place, name in enumerate(AXES)}
        axes = sorted(
            (axis for axis in self.axes if axis.degree > 1), key=lambda axis: order.get(axis.kind, len(order))
        )
        if len({axis.kind for axis in axes}) < len(axes):
            raise BadInput("a mesh has each axis once")
        object.__setattr__(self, "axes", tuple(axes))
        object.__setattr__(self, "size", prod(axis.degree for axis in axes))
        degrees = (axis.flags[0].name for axis in axes)
        lowered_by = next((STRATEGY_AXES[flag][1] for flag in degrees if flag in STRATEGY_AXES), "")
        object.__setattr__(self, "lowered_by", lowered_by)
        object.__setattr__(self, "_hash", hash(self.axes))

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(**settings: int) -> Mesh:
        """Builds a mesh from settings keyed by flag name: `Mesh.of(tensor=8, pipeline=4, interleave=2)`."""
        axes = []
        classes = [*AXES.values(), *(strategy_axis(flag) for flag in STRATEGY_AXES if flag in settings)]
        for axis in classes:
            own = {flag.field: settings.pop(flag.name) for flag in axis.flags if flag.name in settings}
            if own:
                axes.append(axis(**own))
        if settings:
            known = ", ".join(axis_flag_names())
            raise BadInput(f"no axis has a setting {', '.join(settings)}; known: {known}")
        return Mesh(tuple(axes))

    @property
    def settings(self) -> dict[str, int]:
        """Settings of all registered axes, keyed by flag name, as in JSON answers."""
        return {
            flag.name: getattr(self.axis(kind), flag.field) for kind in AXES.values() for flag in kind.flags
        }

    @property
    def nondefault_settings(self) -> dict[str, int]:
        """Settings above 1, keyed by flag name, as a command line or a store needs them."""
        return {
            flag.name: value
            for axis in self.axes
            for flag in axis.flags
            if (value := getattr(axis, flag.field)) > 1
        }

    def axis(self, kind: type[AxisT]) -> AxisT:
        """Axis of this class in the mesh; an axis of degree 1 if the mesh has none."""
        return next((axis for axis in self.axes if isinstance(axis, kind)), None) or kind()

    @property
    def is_whole(self) -> bool:
        """Whether each device holds a whole replica."""
        return not self.axes

    @property
    def is_sharded(self) -> bool:
        """Whether each device holds a shard of the model that this package derives."""
        return bool(self.axes) and not self.lowered_by

    @property
    def key(self) -> str:
        """Text of the mesh in a plan's key, `/t8p4v2`; empty for whole replicas."""
        if not self.is_sharded:
            return "".join(f"/{axis.key}" for axis in self.axes)
        others = "".join(axis.key for axis in self.axes if not isinstance(axis, _KEYED))
        return "/" + "".join(self.axis(kind).key for kind in _KEYED) + others

    @property
    def concurrent_micro_batches(self) -> int:
        """Number of micro-batches that a replica processes at once; 1 if its ranks share samples."""
        return prod(axis.degree for axis in self.axes if Divisible.SAMPLES in axis.splits)

    @property
    def label(self) -> str:
        """Degrees as text: `tensor 8 x pipeline 4`."""
        return " x ".join(axis.labels().cell for axis in self.axes)

    @property
    def short_label(self) -> str:
        """Degrees in the usual short form: `TP8 + PP4`."""
        return " + ".join(f"{axis.kind.upper()}{axis.degree}" for axis in self.axes)

    @property
    def detail_text(self) -> str:
        """Text that follows a list of degrees: `, 2 virtual pipeline stages per device`."""
        return "".join(f", {aside}" for axis in self.axes if (aside := axis.labels().aside))

    @property
    def roles_text(self) -> str:
        """Text on the roles of a replica's ranks: `8 share every layer, in 4 stages`."""
        return ", ".join(axis.labels().plan for axis in self.axes)

    @property
    @memoize
    def inner_mesh(self) -> Mesh:
        """Mesh without the axes that split the chain of layers."""
        return Mesh(tuple(axis for axis in self.axes if Divisible.LAYERS not in axis.splits))

    @property
    def stage_axes(self) -> tuple[Axis, ...]:
        """Axes that split the chain of layers into consecutive stages."""
        return tuple(axis for axis in self.axes if Divisible.LAYERS in axis.splits)

    @property
    def lockstep(self) -> int:
        """Number of ranks of a replica that wait for each other at every collective."""
        return self.size // self.stages

    @property
    def stages(self) -> int:
        """Number of pipeline stages; consecutive ranks share a stage."""
        return prod(axis.degree for axis in self.stage_axes)

    def group(self, axis: Axis | None, workers: int, part: Divisible | None = None) -> Group:
        """Communication group of a device along an axis, in a mesh of `workers` devices. Without an axis,
        it contains the data-parallel ranks, one per replica; with a `part`, all ranks that hold the same
        parameters of that part."""
        replicas = workers // self.size
        if axis is None and part is None:
            return Group(replicas, self.lockstep)
        inner, outer = self.inner_mesh.axes, self.stage_axes
        if axis is None:
            alike = [other for other in inner if part not in other.splits]
            copies = prod(other.degree for other in alike)
            return Group(copies * replicas, self.lockstep // copies)
        if axis in outer:
            before = prod(other.degree for other in outer[: outer.index(axis)])
            return Group(axis.degree, self.lockstep * replicas * before)
        return Group(axis.degree, prod(other.degree for other in inner[: inner.index(axis)]))

    def schedule(
        self, chain: Chain, stages_s: StagesTime, send_s: float, *, even: bool = False
    ) -> StageSchedule:
        """Schedules the units of a chain in pipeline stages; one stage without a pipeline axis."""
        made = next((axis.schedule(chain, stages_s, send_s, even=even) for axis in self.stage_axes), None)
        return made or StageSchedule((0, chain.length))

    def shard(self, model: Model) -> Shard:
        """Shards the model for one rank of the mesh."""
        return self._shard_and_communications(model)[0]

    def communications(self, model: Model) -> tuple[tuple[Axis, Communication], ...]:
        """Collectives inside a replica, each with its axis."""
        return self._shard_and_communications(model)[1]

    @memoize
    def _shard_and_communications(self, model: Model) -> tuple[Shard, tuple[tuple[Axis, Communication], ...]]:
        """Shard of the model for one rank, and the collectives with their axes; cached."""
        part, communications = Shard(model), []
        for axis in self.axes:
            part = axis.shard(replace(part, communications=()))
            communications += [(axis, each) for each in part.communications]
        return part, tuple(communications)

    def infeasibility(self, site: Site, model: Model, batch: int = 1) -> PlannerError | None:
        """Error that explains why a site cannot run the mesh; None if it can."""
        errors = (axis.infeasibility(site, model, batch) for axis in self.axes)
        return next((error for error in errors if error is not None), None)

    def can_combine_with(self, strategy: str) -> bool:
        """Whether a data-parallel strategy can train replicas of this mesh."""
        return self.lowered_by in ("", strategy)

    def partial_replica_error(self, workers: int) -> str:
        """Explains why `workers` form no whole replicas, with the nearest multiple; else empty string."""
        if workers % self.size == 0:
            return ""
        few, more = workers // self.size * self.size, -(-workers // self.size) * self.size
        return (
            f"{workers} workers are no whole replicas of {self.size} ({self.label}); the nearest that works "
            f"is --workers {f'{few} or ' if few else ''}{more}"
        )

    @memoize
    def memory_shares(self, model: Model, micro_batches: int) -> tuple[MemoryShare, ...]:
        """Memory shares of the ranks that may need the most memory, combined over the axes."""
        shares = []
        for ranks in product(*(axis.memory_shares(model, micro_batches) for axis in self.axes)):
            layers = [rank.layers for rank in ranks if rank.layers is not None]
            in_flight = prod((rank.in_flight for rank in ranks), start=1.0)
            shares.append(MemoryShare(frozenset.intersection(*layers) if layers else None, in_flight))
        return tuple(shares)

    @property
    def parameter_shards(self) -> int:
        """Number of parts into which a replica's parameters are split."""
        return prod(axis.degree for axis in self.axes if Divisible.DENSE in axis.splits)


WHOLE = Mesh()


def meshes(
    model: Model, site: Site, asked: Mapping[str, tuple[int, ...]], *, free: bool = False
) -> list[Mesh]:
    """Feasible meshes for the requested settings on a machine; raises BadInput if there is none. Without a
    requested degree, `free` returns all meshes worth searching."""
    named = [flag for flag in degree_flags() if flag in asked]
    choices: list[list[Axis]] = []
    for kind in AXES.values():
        own = {flag.name: asked[flag.name] for flag in kind.flags if flag.name in asked}
        if named and kind.flags[0].name not in own:
            choices.append([kind()])
            continue
        tried = list(kind.candidates(RequestedSettings(own), site, model)) if named or free else [kind()]
        errors = [axis.infeasibility(None, model) if axis.degree > 1 else None for axis in tried]
        choices.append([axis for axis, error in zip(tried, errors, strict=True) if error is None])
        if named and not choices[-1] and (error := next(filter(None, errors), None)):
            raise error
    return list(dict.fromkeys(Mesh(axes) for axes in product(*choices)))


def data_parallel_group(site: Site, part: Divisible | None = None) -> Site:
    """Reduces a site to one data-parallel group; with a `part`, to all ranks with the same shard of it."""
    if not site.mesh.is_sharded:
        return site
    group = site.mesh.group(None, site.workers, part)
    return site.get_or_make(("group", group), lambda: _strided_site(site, group))


def axis_group(site: Site, axis: Axis) -> Site:
    """Reduces a site to one group of an axis, with its share of each machine."""
    group = site.mesh.group(axis, site.workers)
    return replace(site, workers=group.members) if group.stride == 1 else _strided_site(site, group)


def stage_hop(site: Site) -> Site:
    """Site of two ranks in neighbouring pipeline stages. On two machines where there are several, as the
    slowest hop sets the pace of all stages."""
    strides = [site.mesh.group(axis, site.workers).stride for axis in site.mesh.stage_axes]
    return _strided_site(site, Group(2, site.devices if site.machines > 1 else max(strides)))


def _strided_site(site: Site, group: Group) -> Site:
    """Reduces a site to a group of devices `stride` apart, with its share of each machine's NICs."""
    hardware = site.hardware
    # a group of more devices than a machine has takes whole machines, and all of their NICs
    part = min(group.stride, site.devices)

    def group_share(rate: float | None) -> float | None:
        """Share of a rate that one group gets; None if the rate is unknown."""
        return None if rate is None else rate / part

    seen = replace(
        hardware,
        device_count=max(site.devices // group.stride, 1),
        nic_burst_bytes_per_s=group_share(hardware.nic_burst_bytes_per_s),
        nic_baseline_bytes_per_s=group_share(hardware.nic_baseline_bytes_per_s),
        rdma_bytes_per_s=group_share(hardware.rdma_bytes_per_s),
        nics=max((hardware.nics or 1) // part, 1),
        network_curves=hardware.network_curves if part == 1 else {},
    )
    given = site.market.bandwidth_bytes_per_s
    market = replace(site.market, bandwidth_bytes_per_s=given / part) if given else site.market
    return replace(site, hardware=seen, workers=group.members, market=market)


def placement_key(site: Site) -> Hashable:
    """Cache key of what changes a sharded device's computation on a site; None if nothing is sharded."""
    if not site.mesh.is_sharded:
        return None
    return site.mesh, site.hardware.name, site.machines > 1
