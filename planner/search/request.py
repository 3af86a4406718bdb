"""A request: the question asked, as typed values. Each flag of the answers is declared on its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, InitVar, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from planner.flags import (
    BANDWIDTH,
    COUNTS,
    DURATION,
    NAMES,
    NUMBER,
    SHARE,
    SWITCH,
    TEXT,
    TOKENS,
    USD_PER_HOUR,
    WHOLE,
    FlagSection,
    flag,
    flags_of,
)
from planner.hardware import Hardware, Market, Network, load_machines_from_files
from planner.hardware.prices.cost import RESTART_S, SpotTerms
from planner.parallel.data import EXCHANGES as STRATEGIES
from planner.parallel.mesh import axis_flag_names, axis_help, degree_flags
from planner.search import flag_values
from planner.search.flag_values import (
    CONFIDENCE,
    MIN_MARGINAL_EFFICIENCY,
    Objective,
    check_contradictions,
    check_ranges,
    job_samples,
)
from planner.search.training import apply_training

if TYPE_CHECKING:
    from planner.device.activations import Recompute
    from planner.device.recorded.recordings import Recordings
    from planner.model import Model
    from planner.simulator.policy import Mode
    from planner.simulator.step import Profile

JOB, MACHINES, LIMITS, PARALLELISM, SERVERS, OUTPUT = FlagSection

SERVER_WORDS = ("own", "cheap", "colocated")  # hardware of servers that is no machine's name
MAX_WORKERS = 128  # per plan, where neither budget nor machines limit them
OBJECTIVES, MODES = get_args(Objective), ("async", "sync")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question as typed values; None leaves a choice to planner.

    `server_hardware` holds names and patterns, and the words `own` (the workers' hardware), `cheap` (CPU
    machines that no other beats in price and NIC) and `colocated` (on the worker nodes). `batches` are
    micro-batches, or "auto": powers of two up to what fits. `exchanges` are strategies and the options they
    fix; `brief` searches fewer options where none is named; `fills_machines` rounds workers up. A profile
    without a named machine runs on a machine without a price. `extra` holds flags of registries.
    """

    model: str = flag(
        JOB,
        TEXT,
        "Network: a catalog name, a .toml file or a Hugging Face config.json, e.g. vgg11.",
        default=MISSING,
        spellings=("-m",),
        metavar="NAME",
    )
    profile: Profile | None = flag(
        JOB,
        flag_values.PROFILES,
        "Recorded training steps to use instead of predicted ones, e.g. a.json.gz,b.json.gz.",
        fields=("profile", "more_profiles"),
        metavar="FILES",
    )
    more_profiles: tuple[Profile, ...] = ()  # of the same loop and device, at other batches
    batches: tuple[int, ...] | Literal["auto"] | None = flag(
        JOB,
        flag_values.BATCHES,
        "Micro-batch: samples per worker and pass, e.g. 32, 32,64 or auto.",
        name="batch",
        spellings=("-b", "--micro-batch"),
    )
    global_batch: int | None = flag(
        JOB, WHOLE, "Samples of all workers per optimizer step, e.g. 1024; sets --accumulate.", minimum=1
    )
    accumulate: int | None = flag(
        JOB, WHOLE, "Gradient accumulation: micro-batches per optimizer step, e.g. 4.", minimum=1
    )
    sequence_length: int | None = flag(
        JOB, WHOLE, "Tokens per sample instead of the model's own, e.g. 4096.", name="seq_length", minimum=1
    )
    formats: tuple[str, ...] | None = flag(
        JOB,
        NAMES,
        "Number format: fp32, tf32, fp16, bf16 or fp8; by default mixed bf16 or fp16 where supported.",
        name="precision",
    )
    recompute: tuple[Recompute, ...] | None = flag(
        JOB, NAMES, "Activation recompute: none, selective (of the framework: per-op or attention) or full."
    )
    framework: str | None = flag(
        JOB,
        TEXT,
        "Training software: pytorch (default), pytorch-compiled, transformer-engine, megatron, ngc or xla.",
        metavar="NAME",
    )
    input: str | float | None = flag(
        JOB,
        flag_values.INPUT,
        "Input of image models: jpeg (default), dali, none or images/s per vCPU, e.g. 150.",
    )
    epochs: InitVar[float | None] = flag(
        JOB, NUMBER, "Length of the job in passes over the training set, e.g. 90.", positive=True
    )
    tokens: InitVar[float | None] = flag(JOB, TOKENS, "Length of the job in tokens, e.g. 300M or 2T.")
    samples: float | None = flag(JOB, NUMBER, "Length of the job in samples, e.g. 1e9.", positive=True)
    hardware: tuple[str, ...] | None = flag(
        MACHINES, NAMES, "Machines of the workers: names, patterns or files, e.g. 'p3.*,g5.xlarge'."
    )
    gpu: str | None = flag(
        MACHINES,
        flag_values.JOINED,
        "Machines with this device: H100, H100:8 (eight) or 'A100,L4'.",
        metavar="DEVICE",
    )
    providers: tuple[str, ...] | None = flag(
        MACHINES, NAMES, "Providers to rent from, e.g. aws,gcp (default: aws).", name="provider"
    )
    sold: bool | None = flag(
        MACHINES,
        SWITCH,
        "Only machines that can be rented (default), or retired and example machines too.",
        spellings=("--sold/--all",),
    )
    region: str | None = flag(
        MACHINES, TEXT, "Region of the prices, e.g. us-east-1; cheapest: that of each machine."
    )
    spot: bool = flag(
        MACHINES,
        SWITCH,
        "Rent spot machines where they are cheaper, interruptions included.",
        default=False,
        spellings=("--spot/--on-demand",),
    )
    interruptions: float | None = flag(
        MACHINES, SHARE, "Spot machines interrupted per month, e.g. 10%; the published share by default."
    )
    checkpoint_every_s: float | None = flag(
        MACHINES,
        DURATION,
        "Time between checkpoints on spot machines, e.g. 30min; the cheapest interval by default.",
        name="checkpoint_every",
        positive=True,
    )
    restart_s: float | None = flag(
        MACHINES,
        DURATION,
        "Time to resume after an interruption, e.g. 5min (default).",
        name="restart",
        positive=True,
    )
    network: Network | None = flag(
        MACHINES,
        flag_values.NETWORK,
        "NIC bandwidth, baseline (hours) or burst (minutes), and transport, tcp or rdma: 'burst,tcp'.",
        fields=("network", "rdma"),
    )
    rdma: bool | None = None  # of collectives between machines; None: where the machine can
    bandwidth_bytes_per_s: float | None = flag(
        MACHINES, BANDWIDTH, "Measured bandwidth of every NIC, e.g. 9.4Gbit.", name="bandwidth", positive=True
    )
    budget_usd_per_hour: float | None = flag(
        LIMITS, USD_PER_HOUR, "Budget in USD per hour, e.g. 20 or 20/h.", name="budget", positive=True
    )
    own_usd_per_hour: float | None = flag(
        MACHINES,
        NUMBER,
        "USD per hour of one machine of your own, e.g. 12; without it, plans are ranked by time.",
        name="price", metavar="USD", positive=True,
    )  # fmt: skip
    deadline_s: float | None = flag(
        LIMITS, DURATION, "Deadline of the whole job, e.g. 36h, 90min or 2d.", name="deadline", positive=True
    )
    spend_usd: float | None = flag(
        LIMITS,
        NUMBER,
        "Budget of the whole job in USD, e.g. 500.",
        name="spend",
        metavar="USD",
        positive=True,
    )
    machines: int | None = flag(
        LIMITS, WHOLE, "Maximum machines, servers included, e.g. 16.", positive=True, commands=("recommend",)
    )
    min_samples_per_s: float | None = flag(
        LIMITS,
        NUMBER,
        "Minimum samples per second, e.g. 2000.",
        name="min_throughput",
        positive=True,
        commands=("recommend",),
    )
    objective: Objective | None = flag(
        LIMITS,
        TEXT,
        "What to optimize: balanced (default), cheapest (per sample) or fastest.",
        choices=OBJECTIVES,
        commands=("compare", "recommend"),
    )
    confidence: float = flag(
        LIMITS, SHARE, "Probability of meeting deadline and spend, e.g. 95%.", default=CONFIDENCE
    )
    min_marginal_efficiency: float = flag(
        LIMITS,
        SHARE,
        "Minimum samples per USD of added workers, relative to the cheapest, e.g. 50%.",
        default=MIN_MARGINAL_EFFICIENCY,
        commands=("compare", "recommend", "saturation"),
    )
    all_offers: bool = flag(
        OUTPUT, SWITCH, "Show every machine, not only the best offer.", default=False, commands=("compare",)
    )
    max_workers: int | None = flag(
        LIMITS, WHOLE, "Maximum workers to try, e.g. 256 (4,096).", minimum=2, commands=("saturation",)
    )
    workers: tuple[int, ...] | None = flag(
        PARALLELISM, COUNTS, "Number of workers (devices), e.g. 4, 1,2,4 or 1-8.", spellings=("-w",)
    )
    exchanges: tuple[tuple[str, Mapping[str, str]], ...] | None = flag(
        PARALLELISM,
        flag_values.EXCHANGES,
        f"Data parallelism: {STRATEGIES.help_text} or all; options as ddp:bucket_bytes=4194304.",
        name="exchange",
    )
    tensor: tuple[int, ...] | None = flag(PARALLELISM, COUNTS, axis_help("tensor"))
    pipeline: tuple[int, ...] | None = flag(PARALLELISM, COUNTS, axis_help("pipeline"))
    interleave: tuple[int, ...] | None = flag(PARALLELISM, COUNTS, axis_help("interleave"))
    servers: tuple[int, ...] | None = flag(SERVERS, COUNTS, "Number of parameter servers, e.g. 2 or 1-4.")
    server_hardware: tuple[str, ...] | None = flag(
        SERVERS, NAMES, "Machines of the servers: names, patterns, own, cheap or colocated."
    )
    placements: tuple[str, ...] | None = flag(
        SERVERS,
        flag_values.PLACEMENTS,
        "Assignment of tensors to servers: greedy, best_fit, mxnet, p3 or all.",
        name="placement",
    )
    policies: tuple[str, ...] | None = flag(
        SERVERS,
        flag_values.POLICIES,
        "Order of transfers on a link: multiplexed, fifo, tic, tac, p3, bytescheduler, prophet or all.",
        name="policy",
    )
    mode: Mode | None = flag(SERVERS, TEXT, "Updates at the servers: async or sync.", choices=MODES)
    workers_per_replica: tuple[int, ...] | None = flag(
        SERVERS, COUNTS, "CPU workers that share one copy of the model, e.g. 2 or 1,2,4."
    )
    seed: int = flag(OUTPUT, WHOLE, "Seed of the simulations, e.g. 1.", default=0, minimum=0)
    interval_width: float = flag(
        OUTPUT,
        NUMBER,
        "Relative half-width of the simulation's 95% interval, e.g. 0.01 (default).",
        default=0.01,
    )
    max_steps: int = flag(
        OUTPUT,
        WHOLE,
        "Maximum number of simulated steps per worker, e.g. 1000 (default).",
        default=1000,
        positive=True,
        commands=("simulate",),
    )
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
    def names_mesh(self) -> bool:
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
        """The recorded profiles, which can be scaled to other devices and batches; None without a profile."""
        if self.profile is None:
            return None
        from planner.device.recorded.recordings import Recordings

        return Recordings((self.profile, *self.more_profiles))

    @cached_property
    def goal(self) -> Objective:
        """The objective; "fastest" by default if the user owns all machines, else "balanced"."""
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
        if self.profile is not None and self.hardware is None and not (self.any_device or self.gpu):
            return (self.recorded_on.name,)
        from planner.search.machines import machine_names

        names = machine_names(self.market, self.hardware, self.gpu, self.providers, self.sold)
        recordings = self.recordings
        if recordings is None or self.hardware is not None or self.gpu is not None:
            return names
        return tuple(name for name in names if not recordings.mismatch_reason(self.market.find_machine(name)))

    @property
    def any_device(self) -> bool:
        """Whether recordings on a catalog device may be scaled to other machines."""
        from planner.hardware.catalog import is_machine_name

        known = self.recordings
        return known is not None and known.source is not None and not is_machine_name(known.first.hardware)

    @property
    def open_choice(self) -> bool:
        """Whether the search may choose among all machines."""
        return self.hardware is None and self.gpu is None and self.sold is not False

    @cached_property
    def market(self) -> Market:
        """The machine catalog with the request's prices, region and network."""
        own = load_machines_from_files((*(self.hardware or ()), *(self.server_hardware or ())))
        unnamed = self.profile is not None and self.hardware is None and not self.any_device
        recorded = (self.recorded_on,) if unnamed else ()
        terms = (self.network_used, self.bandwidth_bytes_per_s, self.region, self.spot)
        return Market(*terms, own=(*own, *recorded), rdma=self.rdma, own_usd_per_hour=self.own_usd_per_hour)

    @cached_property
    def recorded_on(self) -> Hardware:
        """The machine that the profile was recorded on."""
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
    """The model with the request's training settings; no layers if only a recording knows it."""
    from planner.model import Model
    from planner.model.catalog import load_model, model_names

    profile = request.profile
    if profile is not None and request.model == profile.model and request.model not in model_names():
        return Model(profile.model, layers=(), default_batch=profile.batch)
    return apply_training(load_model(request.model), request)
