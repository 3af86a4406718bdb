"""Energy and carbon of a run: device power, host, PUE, the grid of the region. An estimate that says how.

    kWh = machines x hours x devices x W of a device x HOST / 1000 x PUE
    kg CO2e = kWh x g CO2e a kWh of the region's grid / 1000

Devices count at full power. The grid is the average of where the region is, location based, nothing offset.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import BadInput
from planner.files.folders import shipped_folder
from planner.hardware import Hardware
from planner.memoize import memoize

if TYPE_CHECKING:
    from planner.hardware.market import Market
    from planner.parallel.data import Rented

# A machine draws more than its devices: a DGX H100 10.2 kW against 5.6 kW, as recalled.
HOST = 1.8
# Energy at the meter for each unit in the machine. Where a provider gives none: the average of surveys.
PUE = {"aws": 1.15, "gcp": 1.10, "azure": 1.18, "oci": 1.15}
SURVEYED_PUE = 1.6


@dataclass(frozen=True, slots=True)
class PowerGrid:
    """What a kilowatt-hour costs the climate where a region is."""

    g_co2e_per_kwh: float
    pue: float | None
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class Energy:
    """What machines draw; `kg_co2e` is None where nobody says on which grid one is."""

    kwh: float
    kg_co2e: float | None
    method: str


def energy_of(
    hardware: Hardware,
    *,
    hours: float,
    machines: int = 1,
    region: str | None = None,
) -> Energy | None:
    """What machines draw in some hours; None where nobody gives the power of their devices.

    A machine of one's own draws what its file says; the grid is that of the region.
    """
    if not (math.isfinite(hours) and hours >= 0) or machines < 0:
        raise BadInput(f"energy of {machines} machines for {hours:g} hours: both must be at least 0")
    watts = watts_of(hardware)
    if watts is None:
        return None
    where = region or hardware.price.region
    grid = grid_of(hardware.provider, where)
    if hardware.ownership:
        pue, host = hardware.ownership.cooling_factor, "its file's power"
    else:
        pue = (grid.pue if grid and grid.pue else None) or PUE.get(hardware.provider, SURVEYED_PUE)
        host = f"{hardware.device_count} x {hardware.device.power_w:g} W x {HOST:g} for the host"
    kwh = machines * hours * watts / 1000 * pue
    said = f"{host}, PUE {pue:g}"
    if grid is None:
        return Energy(kwh, None, f"{said}, the grid of {where or 'its place'} is not known")
    grams = grid.g_co2e_per_kwh
    said += f", {grams:g} g CO2e/kWh in {where} ({grid.source}, {grid.as_of})"
    return Energy(kwh, kwh * grams / 1000, said)


def draw_of(rented: Sequence[Rented], market: Market) -> Energy | None:
    """An hour of a plan's machines; None where nobody gives the power of some."""
    kwh, kg, methods = 0.0, 0.0, []
    known = True
    for entry in rented:
        hardware = market.machine(entry.machine)
        price = market.price(hardware)
        energy = energy_of(hardware, hours=1.0, machines=entry.count, region=price.region if price else None)
        if energy is None:
            return None
        kwh += energy.kwh
        kg += energy.kg_co2e or 0.0
        known = known and energy.kg_co2e is not None
        methods.append(f"{entry.count} x {hardware.name}: {energy.method}")
    return Energy(kwh, kg if known else None, "; ".join(methods))


def watts_of(hardware: Hardware) -> float | None:
    """What one machine draws at work; None where nobody says."""
    if hardware.ownership:
        return hardware.ownership.power_watts
    if hardware.device.power_w is None:
        return None
    return hardware.device_count * hardware.device.power_w * HOST


def grid_of(provider: str, region: str) -> PowerGrid | None:
    """The grid of a provider's region; None where it is not known."""
    return _grids().get((provider, region))


@memoize
def _grids() -> dict[tuple[str, str], PowerGrid]:
    path = shipped_folder("hardware") / "prices" / "carbon.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["provider"], row["region"]): PowerGrid(
                float(row["g_co2e_per_kwh"]),
                float(row["pue"]) if row["pue"] else None,
                row["source"],
                row["as_of"],
            )
            for row in csv.DictReader(file)
        }
