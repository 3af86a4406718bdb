"""A request: what the user asks for, with every default in one place and contradictions refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from planner.device.precision import precision_named
from planner.device.recompute import RECOMPUTE_MODES, Recompute
from planner.errors import BadInput
from planner.hardware import Hardware, Network
from planner.hardware.market import Market, own_machines
from planner.hardware.prices.paying import SpotTerms
from planner.hardware.prices.spot import RESTART_S
from planner.model import Model
from planner.search.limits import check_size
from planner.simulator.policy import Mode

if TYPE_CHECKING:
    from planner.device.recorded.recordings import Recordings
    from planner.simulator.step import Profile

Objective = Literal["fastest", "cheapest", "value"]

DEFAULT_PER_REPLICA = (1, 2, 4)  # above 1 on CPU machines only
MAX_WORKERS = 128  # per plan, where neither budget nor machines limit them


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question. None means: choose for me.

    `server_hardware` holds names and patterns, and the words `own` (the workers' hardware), `cheap` (CPU
    machines that no other beats in price and NIC) and `colocated` (on the worker nodes). `batches` are
    those of a worker, or "auto": powers of two up to what fits; with `accumulate` it takes so many of them
    between two exchanges, or as many as make `global_batch` of all workers. `formats` are names of precisions
    (None: the model's own, as far as the device has it). `framework` is the software that computes, of
    `planner.device.rates` (None: PyTorch). `tensor`, `pipeline` and `interleave` are degrees of
    the cut by layers. `exchanges` are kinds of `EXCHANGES`, each with the choices that it fixes; `brief` asks
    for fewer choices where none is named. A profile whose
    machine nobody names runs on a machine without a price.
    """

    model: str
    hardware: tuple[str, ...] | None = None
    gpu: str | None = None
    providers: tuple[str, ...] | None = None
    sold: bool | None = None  # False: machines that nobody can rent too
    exchanges: tuple[tuple[str, Mapping[str, str]], ...] | None = None
    server_hardware: tuple[str, ...] | None = None
    workers: tuple[int, ...] | None = None
    servers: tuple[int, ...] | None = None
    workers_per_replica: tuple[int, ...] | None = None
    batches: tuple[int, ...] | Literal["auto"] | None = None
    formats: tuple[str, ...] | None = None
    recompute: tuple[Recompute, ...] | None = None
    accumulate: int | None = None
    global_batch: int | None = None
    sequence_length: int | None = None
    framework: str | None = None
    tensor: tuple[int, ...] | None = None
    pipeline: tuple[int, ...] | None = None
    interleave: tuple[int, ...] | None = None
    placements: tuple[str, ...] | None = None
    policies: tuple[str, ...] | None = None
    mode: Mode | None = None
    objective: Objective | None = None
    budget_usd_per_hour: float | None = None
    spend_usd: float | None = None
    deadline_s: float | None = None
    samples: float | None = None
    machines: int | None = None
    min_samples_per_s: float | None = None
    region: str | None = None
    spot: bool = False
    interruptions: float | None = None  # share of spot machines taken away in a month; None: as is known
    checkpoint_every_s: float | None = None
    restart_s: float | None = None
    network: Network | None = None
    rdma: bool | None = None  # of collectives between machines; None: where the machine can
    bandwidth_bytes_per_s: float | None = None  # of every NIC, instead of the catalogue's
    profile: Profile | None = None
    more_profiles: tuple[Profile, ...] = ()  # of the same loop and device, at other batches
    seed: int = 0
    interval_width: float = 0.01  # half of it, as a share of the mean
    max_steps: int = 1000  # of a worker, in all runs of a simulation in full
    brief: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        for name in (
            "budget_usd_per_hour",
            "spend_usd",
            "deadline_s",
            "samples",
            "machines",
            "min_samples_per_s",
            "bandwidth_bytes_per_s",
            "max_steps",
            "checkpoint_every_s",
            "restart_s",
        ):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{flag_of(name)} is {value:g}; it must be a number above zero")
        if not 0 < self.interval_width < 0.5:
            raise BadInput(f"--interval-width is {self.interval_width:g}; it must lie between 0 and 0.5")
        self._check_large()
        for name in ("workers", "servers", "workers_per_replica", "batches"):
            values = getattr(self, name)
            if values not in (None, "auto") and not (values and all(value >= 1 for value in values)):
                raise BadInput(f"{flag_of(name)} must hold whole numbers from 1 on")
        for name in ("hardware", "server_hardware", "placements", "policies", "exchanges"):
            if getattr(self, name) == ():
                raise BadInput(f"{flag_of(name)} is empty; name at least one, or leave it out")
        check_size(max(self.workers or (1,)), max(self.servers or (1,)))
        if self.objective is not None and self.objective not in get_args(Objective):
            raise BadInput(
                f"--objective is {self.objective!r}; it is one of {', '.join(get_args(Objective))}"
            )
        self._check_choices()
        if self.mode is not None and self.mode not in get_args(Mode):
            raise BadInput(f"--mode is {self.mode!r}; it is one of {', '.join(get_args(Mode))}")
        for name in ("spend_usd", "deadline_s"):
            if getattr(self, name) is not None and self.samples is None:
                raise BadInput(
                    f"{flag_of(name)} needs to know how much is trained; add --epochs or --samples"
                )
        self._check_spot()
        if self.profile is not None:
            self._check_profile(self.profile)

    def _check_choices(self) -> None:
        """Refuse choices of an exchange where others are named."""
        from planner.parallel.data import EXCHANGES

        if self.exchanges is None:
            return
        named = [kind for kind, _ in self.exchanges]
        for kind, exchange in EXCHANGES.items():
            given = [name for name in exchange.asked_by if getattr(self, name) is not None]
            if given and kind not in named:
                words = f"{flag_of(given[0])} is a choice of --exchange {kind}"
                raise BadInput(f"{words}, and --exchange names {', '.join(named)}; leave one of them out")

    def _check_large(self) -> None:
        for name in self.formats or ():
            precision_named(name)
        for name in self.recompute or ():
            if name not in RECOMPUTE_MODES:
                raise BadInput(f"--recompute is {name!r}; it is one of {', '.join(RECOMPUTE_MODES)}")
        if self.framework is not None:
            from planner.device.rates.times import framework_named

            framework_named(self.framework)
            if self.profile is not None:
                raise BadInput("--framework contradicts --profile, whose steps have their own software")
        if self.accumulate is not None and self.global_batch is not None:
            raise BadInput("--accumulate and --global-batch contradict each other; give one of them")
        if self.interleave is not None and max(self.interleave) > 1 and max(self.pipeline or (1,)) == 1:
            raise BadInput("--interleave is about the stages of a pipeline; add --pipeline with at least 2")
        for name in ("accumulate", "global_batch", "sequence_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{flag_of(name)} is {value}; it must be at least 1")

    def _check_spot(self) -> None:
        if self.interruptions is not None and not 0 <= self.interruptions < 1:
            raise BadInput(
                f"--interruptions is {self.interruptions:g}; it is the share of machines that are taken away "
                "in a month, as 10%"
            )
        for name in ("interruptions", "checkpoint_every_s", "restart_s"):
            if getattr(self, name) is not None and not self.spot:
                raise BadInput(f"{flag_of(name)} is about spot machines; add --spot")

    @property
    def spot_terms(self) -> SpotTerms:
        """How interruptions of spot machines are counted."""
        return SpotTerms(
            self.interruptions,
            self.checkpoint_every_s,
            RESTART_S if self.restart_s is None else self.restart_s,
        )

    def _check_profile(self, profile: Profile) -> None:
        if self.model != profile.model and _named(self.model) != profile.model:
            raise BadInput(
                f"--model {self.model} contradicts --profile, whose steps are those of {profile.model}; "
                "leave --model out, or import the trace again with the right --model"
            )
        if self.batches == "auto":
            raise BadInput(
                f"--batch auto contradicts --profile, which was recorded at batch {profile.batch} and does "
                "not tell what fits in memory; name the batches"
            )
        assert self.recordings is not None
        for batch in self.batches or ():
            self.recordings.check_batch(batch)
        known = profile.recorded
        if self.formats is not None and known is not None and self.formats != (known.facts.precision,):
            raise BadInput(
                f"--precision {','.join(self.formats)} contradicts --profile, which was recorded in "
                f"{known.facts.precision}; record one in that precision, or leave --precision out"
            )

    @cached_property
    def recordings(self) -> Recordings | None:
        """The profiles of the request, for any device and batch that they can speak for."""
        from planner.device.recorded.recordings import Recordings

        return None if self.profile is None else Recordings((self.profile, *self.more_profiles))

    @property
    def goal(self) -> Objective:
        """What decides: the fastest where money is capped, else the cheapest; a deadline says how fast is
        fast enough."""
        if self.objective is not None:
            return self.objective
        capped = self.budget_usd_per_hour is not None and self.deadline_s is None
        return "fastest" if capped else "cheapest"

    @property
    def network_used(self) -> Network:
        """Long training gets the baseline; a burst lasts minutes."""
        return self.network or "baseline"

    @cached_property
    def hardware_words(self) -> tuple[str, ...]:
        """Names and patterns of the workers' machines."""
        narrowed = self.gpu is not None or self.providers is not None or self.sold
        if self.hardware is not None and not narrowed:
            return self.hardware
        if self.profile is not None and self.hardware is None and not (self.any_device or self.gpu):
            return (self.recorded_on.name,)
        from planner.search.machines import machine_names

        names = machine_names(self.market, self.hardware, self.gpu, self.providers, self.sold)
        recordings = self.recordings
        if recordings is None or self.hardware is not None or self.gpu is not None:
            return names
        return tuple(name for name in names if not recordings.refusal(self.market.machine(name)))

    @property
    def any_device(self) -> bool:
        """Whether a recording of a device of the catalogue is asked about, which can be scaled to others."""
        from planner.hardware.device_names import names_machine

        known = self.recordings
        return known is not None and known.source is not None and not names_machine(known.first.hardware)

    @property
    def open_choice(self) -> bool:
        """Whether the machines are ours to choose: neither named nor asked for by their device."""
        return self.hardware is None and self.gpu is None and self.sold is not False

    @cached_property
    def market(self) -> Market:
        """The machines of the request and its terms."""
        own = own_machines((*(self.hardware or ()), *(self.server_hardware or ())))
        unnamed = self.profile is not None and self.hardware is None and not self.any_device
        recorded = (self.recorded_on,) if unnamed else ()
        terms = (self.network_used, self.bandwidth_bytes_per_s, self.region, self.spot)
        return Market(*terms, own=(*own, *recorded), rdma=self.rdma)

    @cached_property
    def recorded_on(self) -> Hardware:
        """The machine that the profile was recorded on; one without a price where the catalogue lacks it."""
        from planner.hardware.catalog import load_hardware
        from planner.hardware.device_names import names_machine

        assert self.profile is not None
        name = self.profile.hardware
        if names_machine(name):
            return load_hardware(name)
        recorded = self.profile.recorded
        facts = None if recorded is None else recorded.facts
        if facts is None or facts.device_kind != "cpu":
            return unnamed_machine(name)
        return unnamed_machine(name, facts.threads, facts.cores)

    def choices(self, kind: str) -> Mapping[str, str]:
        """What the request fixes of an exchange."""
        return dict(self.exchanges or ()).get(kind, {})

    def as_dict(self) -> dict[str, Any]:
        """What was asked, for the JSON answer; a profile appears as its source."""
        hidden = ("brief", "more_profiles")
        out = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in hidden}
        given = () if self.profile is None else (self.profile, *self.more_profiles)
        out["profile"] = "; ".join(one.source or one.model for one in given) or None
        out["objective"], out["network"] = self.goal, self.network_used
        out["hardware"], out["mode"] = self.hardware_words, self.mode or "async"
        out["exchanges"] = None if self.exchanges is None else [kind for kind, _ in self.exchanges]
        return out


def unnamed_machine(name: str, threads: int | None = None, cores: int | None = None) -> Hardware:
    """The machine that a profile was recorded on, of which nothing but its step is known, and on how many of
    its cores it computed."""
    from planner.hardware import Device, bare_machine

    device = Device(name or "recorded", "cpu", flops={}, memory_bytes=math.inf, cores=threads)
    vcpus = None if cores is None else 2 * cores  # as elsewhere, two for a core
    return bare_machine(device.name, device, vcpus=vcpus, still_sold=True)


def model_of(request: Request) -> Model:
    """The model of a request. A profile of the user's own may be of a network that the catalogue does not
    hold; then all that is known of it is its name."""
    from planner.model.catalog import load_model, model_names

    profile = request.profile
    if profile is not None and request.model == profile.model and request.model not in model_names():
        return Model(profile.model, layers=(), default_batch=profile.batch)
    model = load_model(request.model)
    return model if request.sequence_length is None else model.with_sequence_length(request.sequence_length)


def _named(model: str) -> str:
    """The name of a model that may be given as a file."""
    from planner.files.folders import looks_like_path
    from planner.model.catalog import load_model

    return load_model(model).name if looks_like_path(model) else model


_FLAGS = {
    "budget_usd_per_hour": "--budget",
    "spend_usd": "--spend",
    "deadline_s": "--deadline",
    "min_samples_per_s": "--min-throughput",
    "bandwidth_bytes_per_s": "--bandwidth",
    "checkpoint_every_s": "--checkpoint-every",
    "restart_s": "--restart",
    "batches": "--batch",
    "placements": "--placement",
    "policies": "--policy",
    "exchanges": "--exchange",
}


def flag_of(name: str) -> str:
    """The flag that sets a field of a request."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
