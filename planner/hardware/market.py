"""The market of a request: which machines there are, by name, and on which terms it counts with them.

A plan holds names of machines only; what depends on the request's network, bandwidth, region and spot is
asked here, so that prices and rates have one source. Machines of the user's own files hide those of the same
name in the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from planner.errors import BadInput
from planner.hardware import Hardware, Network, Price
from planner.memoize import kept

T = TypeVar("T")
GIVEN_PRICE = "--price"  # the source of a price that the request gives


@dataclass(frozen=True, slots=True)
class Market:
    """`bandwidth_bytes_per_s` replaces the figure of every NIC; `own` are machines that the catalogue does
    not hold: those of the user's files, and the one that a profile was recorded on. `rdma`: whether
    collectives between machines bypass the kernel; None: where the machine can. `own_usd_per_hour` replaces
    the price of machines that are the user's own, and of those without one."""

    network: Network = "baseline"
    bandwidth_bytes_per_s: float | None = None
    region: str | None = None
    spot: bool = False
    own: tuple[Hardware, ...] = field(default=(), hash=False)
    rdma: bool | None = None
    own_usd_per_hour: float | None = None
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` finds in this market, looked up once."""
        return kept(self._found, key, make)

    def machine(self, name: str) -> Hardware:
        """The machine of a name, or a refusal that lists similar ones."""
        if name in self._found:
            known: Hardware = self._found[name]
            return known
        from planner.hardware.catalog import load_hardware

        own = (kind for kind in self.own if kind.name == name)
        return self.once(name, lambda: next(own, None) or load_hardware(name))

    def matching(self, words: Iterable[str]) -> tuple[Hardware, ...]:
        """The machines that names, patterns and files mean, each once and in order."""
        words = tuple(words)
        return self.once(("matching", words), lambda: self._matching(words))

    def _matching(self, words: tuple[str, ...]) -> tuple[Hardware, ...]:
        from planner.hardware.catalog import match_hardware

        own = {kind.name: kind for kind in self.own}
        parts: list[Hardware] = []
        for word in words:
            parts += [own[word]] if word in own else match_hardware(word)
        return tuple({kind.name: own.get(kind.name, kind) for kind in parts}.values())

    def nic_bytes_per_s(self, hardware: Hardware) -> float | None:
        """The rate of a machine's NIC; None where nobody has published it and the request gives none."""
        return self.bandwidth_bytes_per_s or hardware.nic_bytes_per_s(self.network)

    def price(self, hardware: Hardware) -> Price | None:
        """The price list that counts for a machine; None where its region has none."""
        if self.own_usd_per_hour is not None and (hardware.standing == "own" or not hardware.has_price):
            return Price(self.own_usd_per_hour, None, "", "", "measured", GIVEN_PRICE)
        if hardware.ownership is not None or self.region is None:
            return hardware.price
        if self.region == "cheapest":
            from planner.hardware.prices.offers import price_at

            return price_at(hardware, self.region, spot=self.spot)
        return hardware.price_in(self.region)

    def usd_per_hour(self, hardware: Hardware) -> float | None:
        """US dollars per hour for one machine as the request rents it; None where it has no such price. A
        machine of one's own costs the same in every region, spot or not."""
        price = self.price(hardware)
        if price is None:
            return None
        return price.on_demand_usd_per_hour if hardware.ownership is not None else self._paid(price)

    def is_free(self, hardware: Hardware) -> bool:
        """Whether a machine is the user's own and has no price: its plans are ranked by time."""
        return hardware.standing == "own" and not hardware.has_price and self.own_usd_per_hour is None

    @property
    def no_price(self) -> str:
        """`no on-demand price in region 'us-west-2'`: what is missing. Where spot has no price, machines are
        rented on demand."""
        where = "" if self.region is None else f" in region {self.region!r}"
        return f"no {'' if self.spot else 'on-demand '}price{where}"

    def no_rdma(self, hardware: Hardware) -> str:
        """Why a machine has not the network that is asked for, with the remedy; empty if it has."""
        if not self.rdma or hardware.rdma:
            return ""
        if hardware.rdma is False:
            return f"{hardware.name} has no RDMA; use --network tcp"
        return (
            f"{hardware.name} is not known to have RDMA; use --network tcp, or say rdma = true in a hardware "
            "file of your own"
        )

    def check_prices(self, kinds: Iterable[Hardware]) -> None:
        """Refuse a request that pays for none of the machines it would rent. Machines without any price in
        their file are not meant to be paid for."""
        rented = [kind for kind in kinds if kind.ownership is None and kind.has_price]
        if not rented or any(self.usd_per_hour(kind) is not None for kind in rented):
            return
        who, it = f"{rented[0].name} has", "it has"
        if len(rented) > 1:
            who, it = f"the {len(rented)} machines asked for, {rented[0].name} among them, have", "they have"
        regions = sorted({p.region for kind in rented for p in _prices(kind) if self._paid(p) is not None})
        remedy = f"{it} prices in {', '.join(regions)}" if regions else "take --spot, which they have"
        raise BadInput(f"{who} {self.no_price}; {remedy}")

    def _paid(self, price: Price) -> float | None:
        """With spot, the lowest of both: what a plan pays depends on what interruptions cost it
        (`planner.hardware.prices.cost`)."""
        both = (price.on_demand_usd_per_hour, price.spot_usd_per_hour if self.spot else None)
        return min((usd for usd in both if usd is not None), default=None)


def own_machines(words: Iterable[str]) -> tuple[Hardware, ...]:
    """The machines that words name by their files; two different ones of one name are refused."""
    from planner.files.folders import looks_like_path
    from planner.hardware.catalog import load_hardware

    own: dict[str, Hardware] = {}
    for word in ",".join(words).split(","):
        if not looks_like_path(word):
            continue
        machine = load_hardware(word.strip())
        if own.setdefault(machine.name, machine) != machine:
            raise BadInput(f"{word}: another file has a machine {machine.name!r} too; rename one of them")
    return tuple(own.values())


def _prices(hardware: Hardware) -> tuple[Price, ...]:
    return (hardware.price, *hardware.other_prices)
