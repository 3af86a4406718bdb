"""What an answer assumes of machines of the user's own: how many, their fabric, that they have no price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.hardware import Fabric, Hardware
from planner.note import Fact, Topic
from planner.search.machines import owned_machines
from planner.search.request import Request


@dataclass(frozen=True, slots=True)
class Unpriced(Fact):
    """Machines of the user's own that have no price: plans are ranked by time."""

    topic = Topic.PRICE
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnedMachines(Fact):
    """How many machines of the user's own were counted with; `given`: whether anybody says so."""

    topic = Topic.MACHINES
    machine: str
    count: int
    given: bool


@dataclass(frozen=True, slots=True)
class AssumedFabric(Fact):
    """The links between a machine's devices, of which its file says nothing."""

    topic = Topic.MACHINES
    machine: str
    fabric: Fabric


def own_machine_facts(kinds: Iterable[Hardware], request: Request, *, searched: bool) -> list[Fact]:
    """What was assumed of machines of the user's own."""
    out: list[Fact] = []
    for kind in kinds:
        owned = owned_machines(request, kind)
        if searched and owned is not None and request.machines is None:
            out.append(OwnedMachines(kind.name, owned, kind.machines is not None))
        if kind.fabric is not None and kind.fabric.assumed:
            out.append(AssumedFabric(kind.name, kind.fabric))
    free = tuple(kind.name for kind in kinds if request.market.is_free(kind))
    return [*out, Unpriced(free)] if free else out
