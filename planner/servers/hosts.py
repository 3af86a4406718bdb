"""Where parameter servers may stand: on the workers' own kind of machine, on a cheap CPU machine of the same
provider, on machines that are named, or on the workers' machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.device.memory import USABLE, framework_bytes
from planner.device.optimizers import optimizer_named
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.hardware.market import Market
from planner.model import BYTES_PER_ELEMENT
from planner.units import format_bytes


def hosts_of(worker: Hardware, market: Market, words: Sequence[str]) -> tuple[str | None, ...]:
    """The machines that servers may stand on, by name and in order, each once; None is beside the workers.
    Machines without a price or a network figure are left out."""
    words = tuple(words)
    return market.once(("hosts", worker.name, words), lambda: _hosts(worker, market, words))


def host(name: str, worker: Hardware, market: Market) -> Hardware:
    """The machine of a host's name."""
    return worker if name == worker.name else market.machine(name)


def cheap_servers(worker: Hardware, market: Market) -> tuple[Hardware, ...]:
    """CPU machines of the worker's provider, cheaper than it, that no other beats in both price and NIC."""
    return market.once(("cheap", worker.name), lambda: tuple(_cheap(worker, market)))


def _hosts(worker: Hardware, market: Market, words: Sequence[str]) -> tuple[str | None, ...]:
    by_name: dict[str | None, None] = {}
    for word in words:
        if word == "colocated":
            by_name[None] = None
            continue
        kinds: Iterable[Hardware]
        if word == "own":
            kinds = [worker]
        else:
            kinds = cheap_servers(worker, market) if word == "cheap" else market.matching([word])
        for kind in kinds:
            priced = market.usd_per_hour(kind) is not None or kind is worker
            if priced and market.nic_bytes_per_s(kind) is not None:
                by_name[kind.name] = None
    return tuple(by_name)


def _cheap(worker: Hardware, market: Market) -> Iterator[Hardware]:
    worker_price = market.usd_per_hour(worker)
    if worker.ownership is not None or worker_price is None:
        return
    parts: list[tuple[float, float, str]] = []
    for kind in market.matching(("*",)):
        price, rate = market.usd_per_hour(kind), market.nic_bytes_per_s(kind)
        if (
            kind.device.kind == "cpu"
            and kind.provider == worker.provider
            and kind.still_sold
            and price is not None
            and rate is not None
            and price < worker_price
        ):
            parts.append((price, -rate, kind.name))
    best = 0.0
    for _, negative_rate, name in sorted(parts):
        if -negative_rate > best:
            yield market.machine(name)
            best = -negative_rate


def server_memory_bytes(parameter_bytes: float, workers: int, optimizer: str = "momentum") -> float:
    """Memory of a server: its share of the parameters, the optimizer state, and at worst a gradient from
    every worker on its way in. What is sent is read from the parameters themselves."""
    if workers < 1:
        raise BadInput(f"workers is {workers}; a server serves at least one")
    copies = 1 + optimizer_named(optimizer).state_bytes / BYTES_PER_ELEMENT + workers
    return parameter_bytes * copies + framework_bytes("cpu")


def server_memory_error(hardware: Hardware, parameter_bytes: float, workers: int) -> str:
    """Why a server's share of the parameters does not fit in the memory of a machine of its own; empty if it
    does, or if nobody knows that memory."""
    if hardware.memory_bytes is None:
        return ""
    need, usable = server_memory_bytes(parameter_bytes, workers), hardware.memory_bytes * USABLE["cpu"]
    if need <= usable:
        return ""
    return (
        f"a server with {format_bytes(parameter_bytes)} of parameters for {workers} workers needs "
        f"{format_bytes(need)}, and {hardware.name} has {format_bytes(usable)} to use; take a larger machine "
        "or more servers"
    )
