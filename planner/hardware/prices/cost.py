"""Cost of machines per hour (on demand or spot) and per sample; age of prices; energy and carbon.

Interruptions of spot machines lose work, and checkpoints take time (`planner.hardware.prices.spot`): one hour
of useful work takes `time_factor` paid hours. Where that is no cheaper than on demand, machines are rented on
demand, as are machines without a spot price.

Energy is an estimate from devices at full power, the host, the PUE and the region's average grid, without
offsets.

    kWh = machines x hours x devices x W of a device x HOST / 1000 x PUE
    kg CO2e = kWh x g CO2e per kWh of the region's grid / 1000
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from planner.errors import BadInput
from planner.files.regular_file import shipped_folder
from planner.hardware import Hardware
from planner.memoize import memoize

if TYPE_CHECKING:
    from planner.hardware import Market
    from planner.hardware.prices.spot import SpotEstimate
    from planner.parallel.data import Rented

SECONDS_PER_HOUR = 3600.0
OLD_DAYS = 90
RENEWAL = "`planner prices import FILE` updates them"
RESTART_S = 300.0  # assumed: a new machine, its image, and the checkpoint
# A machine draws more than its devices: a DGX H100 10.2 kW against 5.6 kW, as recalled.
HOST = 1.8
# Energy at the meter per unit in the machine; where a provider publishes none, the average of surveys.
PUE = {"aws": 1.15, "gcp": 1.10, "azure": 1.18, "oci": 1.15}
SURVEYED_PUE = 1.6


def usd_per_million_samples(usd_per_hour: float, samples_per_s: float) -> float:
    """USD per million samples at a constant rate."""
    if not samples_per_s > 0:
        raise BadInput(f"samples_per_s is {samples_per_s}; it must be above zero")
    return 1e6 * (usd_per_hour / (SECONDS_PER_HOUR * samples_per_s))


def age_days(as_of: str, today: date | None = None) -> int | None:
    """Days since a date of the catalog (2026-08-22, 2026-08, 2026); None if undated."""
    parts = as_of.split("-")
    try:
        # the last possible day of a month or year: prices are never called older than they are
        year, month = int(parts[0]), int(parts[1]) if parts[1:] else 12
        day = int(parts[2]) if parts[2:] else 28
        return max(0, ((today or date.today()) - date(year, month, day)).days)
    except ValueError:
        return None


def price_age_note(dates: Iterable[str], today: date | None = None) -> str:
    """Sentence about prices older than 90 days, with the remedy; empty string if there are none."""
    dated = [as_of for as_of in dates if as_of]
    old = [as_of for as_of in dated if (age_days(as_of, today) or 0) > OLD_DAYS]
    if not old:
        return ""
    verb = "is" if len(old) == 1 else "are"
    which = "all" if len(old) == len(dated) else f"{len(old)} of {len(dated)}"
    subject = "the price is" if len(dated) == 1 else f"{which} prices {verb}"
    dates = f"({min(old)})" if len(set(old)) == 1 else f"(the oldest: {min(old)})"
    return f"{subject[:1].upper()}{subject[1:]} older than {OLD_DAYS} days {dates}; {RENEWAL}."


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """Assumptions about spot interruptions and checkpoints.

    `interruptions`: the share of machines interrupted per month (None: the published one, else a fifth);
    `checkpoint_every_s` (None: the cheapest interval).
    """

    interruptions: float | None = None
    checkpoint_every_s: float | None = None
    restart_s: float = RESTART_S


@dataclass(frozen=True, slots=True)
class RentalCost:
    """Rental cost in USD per hour of each role, on demand or spot.

    `spot`: of a run on spot machines, None on demand; `refused`: why requested spot machines do not pay.
    """

    usd_per_hour: tuple[float, ...]
    spot: SpotEstimate | None = None
    refused: str | None = None

    @property
    def time_factor(self) -> float:
        """Rented hours per hour of useful work; above 1 if spot machines are interrupted."""
        return 1.0 if self.spot is None else self.spot.run.time_factor

    @property
    def usd_per_useful_hour(self) -> float:
        """USD per hour of useful work, all roles together."""
        return sum(self.usd_per_hour) * self.time_factor


def rental_cost(
    rented: Sequence[Rented], market: Market, terms: SpotTerms | None = None, state_bytes: float = 0.0
) -> RentalCost:
    """Hourly cost of rented machines in USD by role; runs on spot write checkpoints of `state_bytes`."""
    if not market.spot:
        kinds = [market.find_machine(role.machine) for role in rented]
        prices = (market.usd_per_hour(kind) or 0.0 for kind in kinds)
        return RentalCost(tuple(usd * role.count for usd, role in zip(prices, rented, strict=True)))
    terms = terms or SpotTerms()
    roles = tuple((role.role, role.machine, role.count) for role in rented)
    return market.get_or_make(
        ("paid", roles, terms, state_bytes), lambda: _cheaper_cost(rented, market, terms, state_bytes)
    )


def _cheaper_cost(
    rented: Sequence[Rented], market: Market, terms: SpotTerms, state_bytes: float
) -> RentalCost:
    """Cost on spot machines, or on demand if interruptions make spot no cheaper."""
    from planner.hardware.prices.spot import estimate_spot_run

    on_demand, cheapest, taken = [], [], []
    for role in rented:
        kind = market.find_machine(role.machine)
        price = market.price(kind)
        usd = None if price is None else price.usd_per_hour(spot=False)
        spot_usd = None if price is None or kind.ownership else price.usd_per_hour(spot=True)
        on_demand.append(None if usd is None else usd * role.count)
        cheapest.append(((usd or 0.0) if spot_usd is None else spot_usd) * role.count)
        if spot_usd is not None:
            taken.append((kind, role.count, price.region if price else ""))
    full = tuple(usd or 0.0 for usd in on_demand)
    if not taken:
        return RentalCost(full, refused="none of its machines has a spot price")
    spot = estimate_spot_run(taken, terms, state_bytes)
    useful = spot.run.usd_per_useful_hour(sum(cheapest))
    if None not in on_demand and useful >= sum(full):
        words = f"one hour of useful work would cost ${useful:.2f} on spot, ${sum(full):.2f} on demand"
        return RentalCost(full, refused=words)
    return RentalCost(tuple(cheapest), spot)


@dataclass(frozen=True, slots=True)
class PowerGrid:
    """The carbon intensity of a region's electricity grid."""

    g_co2e_per_kwh: float
    pue: float | None
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of machines; `kg_co2e` is None where the grid is unknown."""

    kwh: float
    kg_co2e: float | None
    method: str


def machine_energy(
    hardware: Hardware, *, hours: float, machines: int = 1, region: str | None = None
) -> Energy | None:
    """Energy and emissions of machines over some hours; None if their power is unknown.

    A user's own machines draw the power that their file states; the grid is that of the region.
    """
    if not (math.isfinite(hours) and hours >= 0) or machines < 0:
        raise BadInput(f"energy of {machines} machines for {hours:g} hours: both must be at least 0")
    watts = machine_watts(hardware)
    if watts is None:
        return None
    where = region or hardware.price.region
    grid = find_grid(hardware.provider, where)
    if hardware.ownership:
        pue, host = hardware.ownership.cooling_factor, "its file's power"
    else:
        pue = (grid.pue if grid and grid.pue else None) or PUE.get(hardware.provider, SURVEYED_PUE)
        host = f"{hardware.device_count} x {hardware.device.power_w:g} W x {HOST:g} for the host"
    kwh = machines * hours * watts / 1000 * pue
    method = f"{host}, PUE {pue:g}"
    if grid is None:
        return Energy(kwh, None, f"{method}, the grid of {where or 'its place'} is not known")
    grams = grid.g_co2e_per_kwh
    method += f", {grams:g} g CO2e/kWh in {where} ({grid.source}, {grid.as_of})"
    return Energy(kwh, kwh * grams / 1000, method)


def energy_per_hour(rented: Sequence[Rented], market: Market) -> Energy | None:
    """Energy and emissions of a plan's machines per hour; None if the power of any is unknown."""
    drawn = []
    for role in rented:
        hardware = market.find_machine(role.machine)
        price = market.price(hardware)
        region = price.region if price else None
        energy = machine_energy(hardware, hours=1.0, machines=role.count, region=region)
        if energy is None:
            return None
        drawn.append((energy, f"{role.count} x {hardware.name}: {energy.method}"))
    known = all(energy.kg_co2e is not None for energy, _ in drawn)
    return Energy(
        sum(energy.kwh for energy, _ in drawn),
        sum(energy.kg_co2e or 0.0 for energy, _ in drawn) if known else None,
        "; ".join(method for _, method in drawn),
    )


def machine_watts(hardware: Hardware) -> float | None:
    """Power of one machine at full load in watts; None if unknown."""
    if hardware.ownership:
        return hardware.ownership.power_watts
    if hardware.device.power_w is None:
        return None
    return hardware.device_count * hardware.device.power_w * HOST


def find_grid(provider: str, region: str) -> PowerGrid | None:
    """Electricity grid of a provider's region; None if unknown."""
    return _grids().get((provider, region))


@memoize
def _grids() -> dict[tuple[str, str], PowerGrid]:
    """Electricity grids by (provider, region)."""
    path = shipped_folder("hardware") / "prices" / "carbon.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    grids = {}
    for row in rows:
        grams, pue = float(row["g_co2e_per_kwh"]), float(row["pue"]) if row["pue"] else None
        grids[row["provider"], row["region"]] = PowerGrid(grams, pue, row["source"], row["as_of"])
    return grids
