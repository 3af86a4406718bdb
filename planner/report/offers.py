"""Offers of machines by the price of a device-hour, and price lists, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.hardware import devices_of
from planner.hardware.prices.age import old_prices
from planner.hardware.prices.offers import Offer
from planner.report.hardware import STATES, nic_words, short_devices
from planner.report.output import Column, Table

GIB = 2.0**30


def offer_row(offer: Offer) -> dict[str, Any]:
    """One offer as plain values."""
    hardware, price = offer.hardware, offer.price
    return {
        "name": hardware.name,
        "provider": hardware.provider,
        "device": hardware.device.name,
        "device_count": hardware.device_count,
        "device_memory_gib": round(hardware.device.memory_bytes / GIB, 9),
        "region": price.region or None,
        "usd_per_device_hour": _over(price.on_demand_usd_per_hour, hardware.device_count),
        "spot_usd_per_device_hour": _over(price.spot_usd_per_hour, hardware.device_count),
        "on_demand_usd_per_hour": price.on_demand_usd_per_hour,
        "spot_usd_per_hour": price.spot_usd_per_hour,
        "price_as_of": price.as_of or None,
        "price_source": price.source or None,
        "fabric": hardware.fabric.kind if hardware.fabric else None,
        "rdma_kind": hardware.rdma_kind or None,
        "state": STATES[hardware.standing],
    }


def offers_table(offers: Sequence[Offer]) -> Table:
    """Offers, cheapest device-hour first."""
    columns = [
        Column("name", "machine"),
        Column("_devices", "devices"),
        Column("usd_per_device_hour", "USD/GPU-h", _money),
        Column("spot_usd_per_device_hour", "spot", _money),
        Column("on_demand_usd_per_hour", "USD/h", _money),
        Column("region"),
        Column("_nic", "Gbit/s", align="right"),
        Column("price_as_of", "as of"),
    ]
    if any(offer.hardware.standing != "rentable" for offer in offers):
        columns.append(Column("state"))
    rows = [
        offer_row(offer)
        | {
            "_devices": short_devices(devices_of(offer.hardware)),
            "_nic": nic_words(offer.hardware),
        }
        for offer in offers
    ]
    notes = [
        "USD/GPU-h: one device of the machine on demand, spot beside it; USD/h: the whole machine.",
        "Gbit/s: of the machine, after + RDMA beside it. Region `any`: one price in all of a provider's.",
    ]
    if old := old_prices(offer.price for offer in offers if offer.hardware.ownership is None):
        notes.append(old)
    return Table(rows, columns, notes=notes)


def _over(usd: float | None, count: int) -> float | None:
    return None if usd is None else round(usd / count, 6)


def _money(value: float) -> str:
    return f"{value:.3f}"
