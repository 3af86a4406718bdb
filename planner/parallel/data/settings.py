"""The base class of strategies over collectives: checks of settings, the library and its links."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, Self, TypeVar

from planner.device.computation import Computation
from planner.device.precision import Precision
from planner.errors import BadInput, PlannerError, unknown_name
from planner.memoize import memoize
from planner.model import Model
from planner.note import Note
from planner.parallel.collectives import Library
from planner.parallel.collectives.libraries import Gloo, Nccl, link_notes, peers_of
from planner.parallel.data import Asked, Exchange
from planner.parallel.data.joint import JITTER_S, JointSteps
from planner.parallel.plan import Site

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
    """A strategy over collectives: its settings and their checks, its library, and where it can run.
    Subclasses have the fields `library`, `gradients` and `jitter`, and others of `CHOICES`."""

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
    def first_candidate(cls, asked: Asked, site: Site) -> Self | None:
        """The strategy with the requested settings; None if it cannot run, or unrequested on one device."""
        if site.workers < 2 and not asked.choices and not asked.single:
            return None
        exchange = strategy_with_settings(cls, tuple(asked.choices.items()))
        return exchange if exchange.infeasibility(site) is None else None

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        return infeasibility(self.library, site, within=self.within)

    def library_at(self, site: Site) -> Library:
        """The library of collectives that a site uses."""
        return library(self.library, self.algorithm, site)

    def workers_sharing(self, site: Site) -> int:
        """Number of workers over which the parts of a tensor, or whole tensors, are spread."""
        return min(site.devices, site.workers) if self.within == "machine" else site.workers

    def gradient_bytes(self, precision: Precision) -> int:
        """Bytes per element of the stored and sent gradients."""
        return GRADIENTS.get(self.gradients, precision.gradient_bytes)

    def joint_steps(self, computation: Computation, site: Site, jitter_s: float = JITTER_S) -> JointSteps:
        """An empty step on a site, to which computation and collectives are added."""
        library = self.library_at(site)
        jitter_s = jitter_s if self.jitter else 0.0
        return JointSteps(computation, site, library, peers_of(site, library), self.jitter, jitter_s)

    def link_notes(self, site: Site | None) -> tuple[Note, ...]:
        """Notes on what the strategy assumes about the links of a site."""
        return () if site is None else link_notes(site, self.library_at(site))


def library(name: str, algorithm: str, site: Site) -> Library:
    """The collective library of this name; `auto` is Gloo on CPU machines, as NCCL needs GPUs."""
    if name == "auto":
        name = "nccl" if site.hardware.device.kind == "gpu" else "gloo"
    return Nccl(algorithm) if name == "nccl" else Gloo()  # type: ignore[arg-type]


def infeasibility(name: str, site: Site | None, *, within: str = "all") -> BadInput | None:
    """The error that explains why collectives cannot run on a site, with the remedy; None if they can."""
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
        words = site.missing_rdma_reason or missing_bandwidth(site)
    return BadInput(words) if words else None


def missing_bandwidth(site: Site) -> str:
    """Explains that a site's NIC bandwidth is not published, with the remedy; empty string if it is."""
    if site.market.nic_bytes_per_s(site.hardware) is None:
        return f"the NIC of {site.hardware.name} is not published; give --bandwidth"
    return ""


def can_shard_within_machines(site: Site) -> bool:
    """Whether a site has several full machines with several devices each."""
    return site.machines > 1 and site.devices > 1 and site.workers % site.devices == 0


@memoize
def strategy_with_settings(kind: type[E], choices: tuple[tuple[str, str], ...]) -> E:
    """A strategy with the settings of a request, given as text such as `bucket_bytes=1000000`."""
    default = kind()
    types = {field.name: type(getattr(default, field.name)) for field in fields(default)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in choices:
        if name not in types:
            raise unknown_name(f"setting of {kind.kind}", name, types)
        values[name] = _parse_setting(f"{kind.kind}:{name}", text, types[name])
    return replace(default, **values)  # type: ignore[type-var]


def _parse_setting(name: str, text: str, kind: type) -> Any:
    """The value of a setting, converted from text to the type of its default."""
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
