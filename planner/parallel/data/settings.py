"""What collective exchanges have in common: their settings as requests write them, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from planner.device.precision import Precision
from planner.errors import BadInput, unknown_name
from planner.parallel.collectives import Library
from planner.parallel.collectives.nccl import Nccl
from planner.parallel.data import Exchange
from planner.parallel.plan import Site

LIBRARIES = ("auto", "nccl", "gloo")
GRADIENTS = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of an element, as they are sent
ALGORITHMS = ("auto", "ring", "tree", "hierarchical")
WITHIN = ("all", "machine")  # what is spread over workers is spread over all of them, or in each machine

E = TypeVar("E", bound=Exchange)


def positive(name: str, value: float) -> None:
    if not value > 0:
        raise BadInput(f"{name} is {value}; it must be above zero")


def not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise BadInput(f"{name} is {value}; it must not be below zero")


def share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise BadInput(f"{name} is {value}; it must lie between 0 and 1")


def known(what: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise unknown_name(what, name, names, hint=f"one of {', '.join(names)}")


def library(name: str, algorithm: str, site: Site) -> Library:
    """The library by name; NCCL needs GPUs, so that `auto` means Gloo for CPU machines."""
    if name == "auto":
        name = "nccl" if site.hardware.device.kind == "gpu" else "gloo"
    if name == "nccl":
        return Nccl(algorithm)  # type: ignore[arg-type]
    from planner.parallel.collectives.gloo import Gloo

    return Gloo()


def gradient_bytes(name: str, precision: Precision) -> int:
    """Of an element of the gradients that are sent; `auto` is what the precision says."""
    return GRADIENTS.get(name, precision.gradient_bytes)


def infeasibility(name: str, site: Site | None, *, within: str = "all") -> BadInput | None:
    """Why collectives cannot run on a site, with the remedy; None if they can. `within`: where what is spread
    over workers is."""
    if site is None:
        return None
    words = _no_groups(within, site) or _no_links(name, site)
    return BadInput(words) if words else None


def _no_groups(within: str, site: Site) -> str:
    if within != "machine" or has_machines(site):
        return ""
    return "groups within machines need several whole machines with several devices; use within=all"


def _no_links(name: str, site: Site) -> str:
    hardware = site.hardware
    if name == "nccl" and hardware.device.kind == "cpu":
        return f"{hardware.name} has no GPU, and NCCL needs one; use library gloo"
    if min(site.devices, site.workers) > 1 and site.fabric is None:
        return (
            f"how the {site.devices} devices of {hardware.name} are joined is not known; add a [fabric] to "
            "its hardware file (docs/hardware.md)"
        )
    if site.machines > 1 and (words := site.no_rdma):
        return words
    return no_network(site) if site.machines > 1 else ""


def no_network(site: Site) -> str:
    """Why machines of a site cannot talk to others, with the remedy; empty if they can."""
    if site.market.nic_bytes_per_s(site.hardware) is None:
        return f"the NIC of {site.hardware.name} is not published; give --bandwidth"
    return ""


def has_machines(site: Site) -> bool:
    """Whether something can be spread in each of several machines instead of over all workers: whole ones."""
    return site.machines > 1 and site.devices > 1 and site.workers % site.devices == 0


def spread_over(within: str, site: Site) -> int:
    """Over how many workers something is spread."""
    return min(site.devices, site.workers) if within == "machine" else site.workers


def chosen(exchange: E, choices: Mapping[str, str]) -> E:
    """The exchange with the settings that a request writes, as `bucket_bytes=1000000`."""
    if not choices:
        return exchange
    types = {field.name: type(getattr(exchange, field.name)) for field in fields(exchange)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in choices.items():
        if name not in types:
            raise unknown_name(f"setting of {exchange.kind}", name, types)
        values[name] = _value(f"{exchange.kind}:{name}", text, types[name])
    return replace(exchange, **values)  # type: ignore[type-var]


def _value(name: str, text: str, kind: type) -> Any:
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
