"""A request: the question asked, as typed values. Its flags are declared in `flags.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from planner.flags import Flag, flags_of
from planner.hardware import Hardware, Market, Network, load_machines_from_files
from planner.hardware.prices.cost import RESTART_S, SpotTerms
from planner.parallel.mesh import axis_flag_names, degree_flags
from planner.search.flag_values import (
    CONFIDENCE,
    MIN_MARGINAL_EFFICIENCY,
    Objective,
    check_contradictions,
    check_ranges,
    job_samples,
    request_flags,
)
from planner.search.training import apply_training

if TYPE_CHECKING:
    from planner.device.activations import Recompute
    from planner.device.recorded.recordings import Recordings
    from planner.model import Model
    from planner.simulator.policy import Mode
    from planner.simulator.step import Profile

SERVER_WORDS = ("own", "cheap", "colocated")  # hardware of servers that is no machine's name
MAX_WORKERS = 128  # per plan, where neither budget nor machines limit them


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question as typed values; None leaves a choice to planner.

    `server_hardware` holds names and patterns, and the words `own` (the workers' hardware), `cheap` (CPU
    machines that no other beats in price and NIC) and `colocated` (on the worker nodes). `batches` are
    micro-batches, or "auto": powers of two up to what fits. `exchanges` are strategies and the options they
    fix; `brief` searches fewer options where none is named; `fills_machines` rounds workers up. A profile
    without a named machine runs on a machine without a price. `extra` holds flags of training methods and
    registries.
    """

    FLAGS: ClassVar[tuple[Flag, ...]] = request_flags()

    model: str
    profile: Profile | None = None
    more_profiles: tuple[Profile, ...] = ()  # of the same loop and device, at other batches
    batches: tuple[int, ...] | Literal["auto"] | None = None
    global_batch: int | None = None
    accumulate: int | None = None
    sequence_length: int | None = None
    formats: tuple[str, ...] | None = None
    recompute: tuple[Recompute, ...] | None = None
    framework: str | None = None
    input: str | float | None = None
    epochs: InitVar[float | None] = None
    tokens: InitVar[float | None] = None
    samples: float | None = None
    hardware: tuple[str, ...] | None = None
    gpu: str | None = None
    providers: tuple[str, ...] | None = None
    sold: bool | None = None
    region: str | None = None
    spot: bool = False
    interruptions: float | None = None
    checkpoint_every_s: float | None = None
    restart_s: float | None = None
    network: Network | None = None
    rdma: bool | None = None  # of collectives between machines; None: where the machine can
    bandwidth_bytes_per_s: float | None = None
    budget_usd_per_hour: float | None = None
    own_usd_per_hour: float | None = None
    deadline_s: float | None = None
    spend_usd: float | None = None
    machines: int | None = None
    min_samples_per_s: float | None = None
    objective: Objective | None = None
    confidence: float = CONFIDENCE
    min_marginal_efficiency: float = MIN_MARGINAL_EFFICIENCY
    all_offers: bool = False
    max_workers: int | None = None
    workers: tuple[int, ...] | None = None
    exchanges: tuple[tuple[str, Mapping[str, str]], ...] | None = None
    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    interleave: tuple[int, ...] | None = None
    servers: tuple[int, ...] | None = None
    server_hardware: tuple[str, ...] | None = None
    placements: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    mode: Mode | None = None
    workers_per_replica: tuple[int, ...] | None = None
    seed: int = 0
    interval_width: float = 0.01
    max_steps: int = 1000
    extra: Mapping[str, Any] = field(default_factory=dict)
    brief: bool = field(default=False, repr=False)
    fills_machines: bool = field(default=False, repr=False)

    def __post_init__(self, epochs: float | None, tokens: float | None) -> None:
        job = {"epochs": epochs, "samples": self.samples, "tokens": tokens}
        for declared in flags_of(Request):
            name = declared.fields[0] if declared.fields else ""
            declared.check(job[name] if name in job else getattr(self, name, None))
        check_ranges(self)
        object.__setattr__(self, "samples", job_samples(self, epochs, tokens))
        check_contradictions(self)

    @property
    def axis_settings(self) -> dict[str, tuple[int, ...]]:
        """Requested values of the mesh axes by flag name, without unset ones."""
        by_name = {name: getattr(self, name, None) or self.extra.get(name) for name in axis_flag_names()}
        return {name: values for name, values in by_name.items() if values is not None}

    @property
    def is_mesh_named(self) -> bool:
        """Whether the request sets the degree of a mesh axis."""
        return not self.axis_settings.keys().isdisjoint(degree_flags())

    @property
    def spot_terms(self) -> SpotTerms:
        """Interruption rate, checkpoint interval and restart time of spot machines."""
        return SpotTerms(
            self.interruptions,
            self.checkpoint_every_s,
            RESTART_S if self.restart_s is None else self.restart_s,
        )

    @cached_property
    def recordings(self) -> Recordings | None:
        """Recorded profiles, which can be scaled to other devices and batches; None without a profile."""
        if self.profile is None:
            return None
        from planner.device.recorded.recordings import Recordings

        return Recordings((self.profile, *self.more_profiles))

    @cached_property
    def goal(self) -> Objective:
        """Objective of the search; the default is "fastest" if all machines are owned, else "balanced"."""
        from planner.search.machines import uses_own_machines

        return self.objective or ("fastest" if uses_own_machines(self) else "balanced")

    @property
    def network_used(self) -> Network:
        """NIC bandwidth to assume: `baseline` for long training, `burst` for minutes."""
        return self.network or "baseline"

    @cached_property
    def hardware_words(self) -> tuple[str, ...]:
        """Names and patterns that select the worker machines."""
        narrowed = self.gpu is not None or self.providers is not None or self.sold
        if self.hardware is not None and not narrowed:
            return self.hardware
        if self.profile is not None and self.hardware is None and not (self.may_use_any_device or self.gpu):
            return (self.recorded_on.name,)
        from planner.search.machines import machine_names

        names = machine_names(self.market, self.hardware, self.gpu, self.providers, self.sold)
        recordings = self.recordings
        if recordings is None or self.hardware is not None or self.gpu is not None:
            return names
        return tuple(name for name in names if not recordings.mismatch_reason(self.market.find_machine(name)))

    @property
    def may_use_any_device(self) -> bool:
        """Whether recordings on a catalog device may be scaled to other machines."""
        from planner.hardware.catalog import is_machine_name

        known = self.recordings
        return known is not None and known.source is not None and not is_machine_name(known.first.hardware)

    @property
    def is_choice_open(self) -> bool:
        """Whether the search may choose among all machines."""
        return self.hardware is None and self.gpu is None and self.sold is not False

    @cached_property
    def market(self) -> Market:
        """Machine catalog with the request's prices, region and network."""
        own = load_machines_from_files((*(self.hardware or ()), *(self.server_hardware or ())))
        unnamed = self.profile is not None and self.hardware is None and not self.may_use_any_device
        recorded = (self.recorded_on,) if unnamed else ()
        terms = (self.network_used, self.bandwidth_bytes_per_s, self.region, self.spot)
        return Market(*terms, own=(*own, *recorded), rdma=self.rdma, own_usd_per_hour=self.own_usd_per_hour)

    @cached_property
    def recorded_on(self) -> Hardware:
        """Machine that the profile was recorded on."""
        from planner.search.machines import recorded_machine

        assert self.profile is not None
        return recorded_machine(self.profile)

    def as_dict(self) -> dict[str, Any]:
        """The `request` object of the JSON answers, with profiles by the name of their source."""
        hidden = ("brief", "fills_machines", "more_profiles", "extra", "max_workers")
        out = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in hidden}
        out |= self.extra
        given = [self.profile, *self.more_profiles] if self.profile else []
        out["profile"] = "; ".join(entry.source or entry.model for entry in given) or None
        out["objective"], out["network"] = self.goal, self.network_used
        out["hardware"], out["mode"] = self.hardware_words, self.mode or "async"
        out["exchanges"] = None if self.exchanges is None else [kind for kind, _ in self.exchanges]
        return out


def model_of(request: Request) -> Model:
    """Model with the request's training settings; without layers if only a recorded profile describes it."""
    from planner.model import Model
    from planner.model.catalog import load_model, model_names

    profile = request.profile
    if profile is not None and request.model == profile.model and request.model not in model_names():
        return Model(profile.model, layers=(), default_batch=profile.batch)
    return apply_training(load_model(request.model), request)
