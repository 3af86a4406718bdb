"""A request: what the user asks for, with every default in one place and contradictions refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from planner.errors import BadInput
from planner.hardware import Network
from planner.model import Model
from planner.policy import Mode
from planner.search.limits import check_size

if TYPE_CHECKING:
    from planner.profile import Profile

Objective = Literal["fastest", "cheapest", "value"]

DEFAULT_HARDWARE = ("p3.*", "c4.*", "private-*")
SERVER_WORDS = ("own", "cheap", "colocated")
DEFAULT_SERVERS = (1, 2, 3, 4)
DEFAULT_PLACEMENTS = ("greedy", "best_fit", "mxnet")
DEFAULT_PER_REPLICA = (1, 2, 4)  # above 1 on CPU machines only
MAX_WORKERS = 128  # per plan, where neither budget nor machines limit them


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question. Empty tuples and None mean: choose for me.

    `server_hardware` holds names and patterns, and the words `own` (the workers' hardware), `cheap` (CPU
    machines that no other beats in price and NIC) and `colocated` (on the worker nodes).
    `batches` is empty for the model's default, or (0,) for "auto": powers of two up to what fits.
    """

    model: str
    hardware: tuple[str, ...] = DEFAULT_HARDWARE
    server_hardware: tuple[str, ...] = SERVER_WORDS
    workers: tuple[int, ...] = ()
    servers: tuple[int, ...] = DEFAULT_SERVERS
    workers_per_replica: tuple[int, ...] = DEFAULT_PER_REPLICA
    batches: tuple[int, ...] = ()
    placements: tuple[str, ...] = DEFAULT_PLACEMENTS
    policies: tuple[str, ...] = ("multiplexed",)
    mode: Mode = "async"
    objective: Objective | None = None
    budget_usd_per_hour: float | None = None
    spend_usd: float | None = None
    deadline_s: float | None = None
    samples: float | None = None
    machines: int | None = None
    min_samples_per_s: float | None = None
    region: str | None = None
    spot: bool = False
    network: Network | None = None
    bandwidth_bytes_per_s: float | None = None  # of every NIC, instead of the catalogue's
    profile: Profile | None = None
    seed: int = 0
    precision: float = 0.01
    max_steps: int = 1000  # of a worker, in all runs of a simulation in full

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
        ):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{_flag(name)} is {value:g}; it must be a number above zero")
        if not 0 < self.precision < 0.5:
            raise BadInput(f"--precision is {self.precision:g}; it must lie between 0 and 0.5")
        for name, lowest in (
            ("workers", 1),
            ("servers", 1),
            ("workers_per_replica", 1),
            ("batches", 0),
        ):
            if any(value < lowest for value in getattr(self, name)):
                raise BadInput(f"{_flag(name)} must hold whole numbers from {lowest} on")
        check_size(max(self.workers, default=1), max(self.servers, default=1))
        if self.objective is not None and self.objective not in get_args(Objective):
            raise BadInput(
                f"--objective is {self.objective!r}; it is one of {', '.join(get_args(Objective))}"
            )
        if self.mode not in get_args(Mode):
            raise BadInput(f"--mode is {self.mode!r}; it is one of {', '.join(get_args(Mode))}")
        for name in ("spend_usd", "deadline_s"):
            if getattr(self, name) is not None and self.samples is None:
                raise BadInput(f"{_flag(name)} needs to know how much is trained; add --epochs or --samples")
        if self.profile is not None and self.batches and self.batches != (self.profile.batch,):
            raise BadInput(
                f"--batch {','.join(map(str, self.batches))} contradicts --profile, which was recorded at "
                f"batch {self.profile.batch}; record one for each batch"
            )

    @property
    def goal(self) -> Objective:
        """What decides: the fastest where money is capped, else the cheapest."""
        if self.objective is not None:
            return self.objective
        return "fastest" if self.budget_usd_per_hour is not None else "cheapest"

    @property
    def network_used(self) -> Network:
        """Long training gets the baseline; a burst lasts minutes."""
        return self.network or "baseline"

    def but(self, **changes: Any) -> Request:
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """What was asked, for the JSON answer; a profile appears as its source."""
        out = {field.name: getattr(self, field.name) for field in fields(self)}
        out["profile"] = None if self.profile is None else (self.profile.source or self.profile.model)
        out["objective"], out["network"] = self.goal, self.network_used
        return out


def model_of(request: Request) -> Model:
    """The model of a request. A profile of the user's own may be of a network that the catalogue does not
    hold; then all that is known of it is its name."""
    from planner.catalog import load_model, model_names

    profile = request.profile
    if profile is not None and request.model == profile.model and request.model not in model_names():
        return Model(profile.model, layers=(), default_batch=profile.batch)
    return load_model(request.model)


_FLAGS = {
    "budget_usd_per_hour": "--budget",
    "spend_usd": "--spend",
    "deadline_s": "--deadline",
    "min_samples_per_s": "--min-throughput",
    "bandwidth_bytes_per_s": "--bandwidth",
    "batches": "--batch",
}


def _flag(name: str) -> str:
    return _FLAGS.get(name, "--" + name.replace("_", "-"))
