"""The machines of a request: by name, device or provider, or all that can be rented.

Retired machines and those of papers are included only if named, or with `--all`. Machines in the user's own
folders always count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from planner.errors import BadInput, Infeasible
from planner.hardware import Device, Hardware, Market
from planner.note import Fact, fact

if TYPE_CHECKING:
    from planner.search.request import Request
    from planner.simulator.step import Profile


DEFAULT_PROVIDERS = ("aws",)


def machine_names(
    market: Market,
    words: Sequence[str] | None = None,
    gpu: str | None = None,
    providers: Sequence[str] | None = None,
    sold: bool | None = None,
) -> tuple[str, ...]:
    """Names of the requested machines, in catalog order. `words` are names and patterns; `gpu`
    (`H100:8,A100`) selects devices of any provider unless `providers` is given; the default is AWS.
    `sold=False` includes machines that nobody rents out."""
    from planner.hardware.prices.offers import filter_by_provider, machines_with_devices

    kinds = market.select_machines(words or ("*",))
    named = words is not None
    mine = set() if named else own_machine_names(kinds)
    asked = providers or (None if named or gpu is not None else DEFAULT_PROVIDERS)
    if asked is DEFAULT_PROVIDERS and sold is False:
        asked = (*DEFAULT_PROVIDERS, *{kind.provider for kind in kinds if kind.standing == "example"})
    if asked is not None:
        wanted = {kind.name for kind in filter_by_provider(kinds, asked)}
        kinds = tuple(kind for kind in kinds if kind.name in wanted or (not providers and kind.name in mine))
    if gpu is not None:
        kinds = machines_with_devices(kinds, gpu)
    if sold is True or (not named and sold is None):
        had = tuple(kind for kind in kinds if kind.is_available)
        if kinds and not had:
            raise Infeasible(f"{not_rented_words(kinds)}; --all looks at them all the same")
        kinds = had
    if not kinds:
        raise BadInput(f"no machine of {', '.join(providers or ())} is named by {', '.join(words or ())}")
    return tuple(kind.name for kind in kinds)


def single_device_machines(request: Request, machine: Hardware) -> tuple[Hardware, ...]:
    """Machines with one of a machine's devices, by the same provider; empty if the request names machines."""
    if request.hardware is not None:
        return ()
    kinds = request.market.select_machines(("*",))
    return tuple(
        kind
        for kind in kinds
        if (kind.device_count, kind.provider, kind.device.name) == (1, machine.provider, machine.device.name)
        and kind.standing == "rentable"
    )


def own_machine_names(kinds: Iterable[Hardware]) -> set[str]:
    """Names of machines that the user owns or has defined in a file."""
    from planner.hardware.catalog import own_hardware_names

    mine = own_hardware_names()
    return {kind.name for kind in kinds if kind.name in mine or kind.standing == "own"}


def not_rented_words(kinds: Sequence[Hardware]) -> str:
    """Sentence such as `p3.2xlarge, p3.8xlarge can no longer be rented`."""
    names = ", ".join(kind.name for kind in kinds[:3]) + (", ..." if len(kinds) > 3 else "")
    return f"{names} can no longer be rented"


def recorded_machine(profile: Profile) -> Hardware:
    """Machine that a profile was recorded on, without a price if it is not in the catalog."""
    from planner.hardware.catalog import is_machine_name, load_hardware

    if is_machine_name(profile.hardware):
        return load_hardware(profile.hardware)
    facts = None if profile.recorded is None else profile.recorded.facts
    if facts is None or facts.device_kind != "cpu":
        return unnamed_machine(profile.hardware)
    return unnamed_machine(profile.hardware, facts.threads, facts.cores)


def unnamed_machine(name: str, threads: int | None = None, cores: int | None = None) -> Hardware:
    """A machine outside the catalog, from a recording's device name, threads and cores."""
    device = Device(name or "recorded", "cpu", flops={}, memory_bytes=inf, cores=threads)
    vcpus = None if cores is None else 2 * cores  # as elsewhere, two for a core
    return Hardware(device.name, device, vcpus=vcpus, still_sold=True)


def uses_own_machines(request: Request) -> bool:
    """Whether the user owns all requested machines and their number is known."""
    if request.is_choice_open or request.profile is not None:
        return False
    counted = request.workers is not None
    return all(
        kind.standing == "own" and (counted or owned_machine_count(request, kind) is not None)
        for kind in request.market.select_machines(request.hardware_words)
    )


def owned_machine_count(request: Request, hardware: Hardware) -> int | None:
    """Number of machines of a kind that the user owns; None if it is unlimited. Unpriced and uncounted
    machines count as one."""
    asked = request.machines if hardware.standing == "own" else None
    known = [count for count in (hardware.machines, asked) if count is not None]
    open_ = not known and request.workers is None and request.market.is_free(hardware)
    return 1 if open_ else min(known, default=None)


def own_machine_facts(kinds: Iterable[Hardware], request: Request, *, searched: bool) -> list[Fact]:
    """Assumptions about the user's own machines: their number, links and missing prices."""
    out: list[Fact] = []
    for kind in kinds:
        owned = owned_machine_count(request, kind)
        if searched and owned is not None and request.machines is None:
            name = "one-owned-machine" if kind.machines is None else "owned-machines"
            out.append(fact(name, machine=kind.name, count=owned))
        if (fabric := kind.fabric) is not None and fabric.assumed:
            source, gb_per_s = fabric.source.removeprefix("assumed: "), fabric.bytes_per_s / 1e9
            out.append(
                fact("assumed-fabric", machine=kind.name, kind=fabric.kind, gb_per_s=gb_per_s, source=source)
            )
    free = tuple(kind.name for kind in kinds if request.market.is_free(kind))
    return [*out, fact("unpriced", machines=free)] if free else out
