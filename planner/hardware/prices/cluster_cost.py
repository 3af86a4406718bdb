"""What a machine costs per hour, and a rate of training per sample."""

from __future__ import annotations

from planner.errors import BadInput
from planner.hardware import Hardware

SECONDS_PER_HOUR = 3600.0


def machine_usd_per_hour(hardware: Hardware, *, spot: bool = False, region: str | None = None) -> float:
    """One machine for one hour, on demand or as spot. A machine of one's own costs the same either way and in
    every region: what its file's `ownership` makes of it."""
    if hardware.ownership is not None and hardware.price.on_demand_usd_per_hour is not None:
        return hardware.price.on_demand_usd_per_hour
    price = hardware.price if region is None else hardware.price_in(region)
    if price is None:
        known = ", ".join(p.region for p in (hardware.price, *hardware.other_prices) if p.region) or "none"
        raise BadInput(f"{hardware.name}: no price in region {region!r}; known: {known}")
    usd = price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour
    if usd is None:
        kind, other = ("spot", "on-demand") if spot else ("on-demand", "spot")
        where = f" in {price.region}" if price.region else ""
        raise BadInput(
            f"{hardware.name}: no {kind} price{where}; ask for the {other} price, "
            f"or add {kind.replace('-', '_')}_usd_per_hour to a hardware file of your own"
        )
    return usd


def usd_per_million_samples(usd_per_hour: float, samples_per_s: float) -> float:
    """Dollars for training on so many samples at a steady rate."""
    if not samples_per_s > 0:
        raise BadInput(f"samples_per_s is {samples_per_s}; it must be above zero")
    return 1e6 * (usd_per_hour / (SECONDS_PER_HOUR * samples_per_s))
