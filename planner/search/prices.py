"""What a request pays for a machine, and the refusal where its region or market has no price for it."""

from __future__ import annotations

from collections.abc import Iterable

from planner.errors import BadInput
from planner.hardware import Hardware, Price
from planner.search.request import Request


def machine_price(hardware: Hardware, request: Request) -> float | None:
    """US dollars an hour for one machine as the request rents it; None where it has no such price. A machine
    of one's own costs the same in every region, spot or not."""
    if hardware.ownership is not None:
        return hardware.price.on_demand_usd_per_hour
    price = hardware.price if request.region is None else hardware.price_in(request.region)
    return None if price is None else _paid(price, request)


def no_price(request: Request) -> str:
    """`no on-demand price in region 'us-west-2'`: what is missing."""
    where = "" if request.region is None else f" in region {request.region!r}"
    return f"no {_market(request)} price{where}"


def check_prices(kinds: Iterable[Hardware], request: Request) -> None:
    """Refuse a request that pays for none of the machines it would rent. Machines without any price in their
    file are not meant to be paid for."""
    rented = [kind for kind in kinds if kind.ownership is None and any(map(_known, _prices(kind)))]
    if not rented or any(machine_price(kind, request) is not None for kind in rented):
        return
    who, it = f"{rented[0].name} has", "it has"
    if len(rented) > 1:
        who, it = f"the {len(rented)} machines asked for, {rented[0].name} among them, have", "they have"
    regions = sorted({p.region for kind in rented for p in _prices(kind) if _paid(p, request) is not None})
    remedy = f"{it} prices in {', '.join(regions)}" if regions else "drop --spot"
    raise BadInput(f"{who} {no_price(request)}; {remedy}")


def _prices(hardware: Hardware) -> tuple[Price, ...]:
    return (hardware.price, *hardware.other_prices)


def _known(price: Price) -> bool:
    return price.on_demand_usd_per_hour is not None or price.spot_usd_per_hour is not None


def _paid(price: Price, request: Request) -> float | None:
    return price.spot_usd_per_hour if request.spot else price.on_demand_usd_per_hour


def _market(request: Request) -> str:
    return "spot" if request.spot else "on-demand"
