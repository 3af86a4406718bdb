"""What machines cost: per hour on demand or as spot, per sample; how old their prices are; energy and carbon.

On spot machines work is lost when one is taken away, and checkpoints take time
(`planner.hardware.prices.spot`): one hour of useful work takes `time_factor` hours, and all of them are paid.
Where that is no cheaper than on demand, machines are rented on demand. A machine without a spot price is
rented on demand beside the others.

Energy is an estimate that says how: devices at full power, the host, the PUE, and the average grid of where
the region is, nothing offset.

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
from planner.hardware import Hardware, Price
from planner.memoize import memoize

if TYPE_CHECKING:
    from planner.hardware import Market
    from planner.hardware.prices.spot import SpotCourse
    from planner.parallel.data import Rented

SECONDS_PER_HOUR = 3600.0
OLD_DAYS = 90
RENEWAL = "`planner prices import FILE` updates them"
RESTART_S = 300.0  # assumed: a new machine, its image, and the checkpoint
# A machine draws more than its devices: a DGX H100 10.2 kW against 5.6 kW, as recalled.
HOST = 1.8
# Energy at the meter for each unit in the machine. Where a provider gives none: the average of surveys.
PUE = {"aws": 1.15, "gcp": 1.10, "azure": 1.18, "oci": 1.15}
SURVEYED_PUE = 1.6


def usd_per_million_samples(usd_per_hour: float, samples_per_s: float) -> float:
    """Dollars for training on so many samples at a steady rate."""
    if not samples_per_s > 0:
        raise BadInput(f"samples_per_s is {samples_per_s}; it must be above zero")
    return 1e6 * (usd_per_hour / (SECONDS_PER_HOUR * samples_per_s))


def age_days(as_of: str, today: date | None = None) -> int | None:
    """Days since a date of the catalogue (2026-08-22, 2026-08, 2026); None where there is none."""
    parts = as_of.split("-")
    try:
        # of a month or a year the last day that it may be: prices are not called older than they are
        year, month = int(parts[0]), int(parts[1]) if parts[1:] else 12
        day = int(parts[2]) if parts[2:] else 28
        return max(0, ((today or date.today()) - date(year, month, day)).days)
    except ValueError:
        return None


def old_prices(dates: Iterable[str], today: date | None = None) -> str:
    """A sentence about prices of more than 90 days ago, with what to do; empty where there is none."""
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
    """How interruptions are counted. `interruptions`: the share of machines that are taken away in a month
    (None: what is known of each, else a fifth); `checkpoint_every_s` (None: as often as costs least)."""

    interruptions: float | None = None
    checkpoint_every_s: float | None = None
    restart_s: float = RESTART_S


@dataclass(frozen=True, slots=True)
class Paid:
    """US dollars per hour of each role. `course` is that of a run on spot machines, None for one on demand;
    `refused` says, where spot was asked for and does not pay, why."""

    usd_per_hour: tuple[float, ...]
    course: SpotCourse | None = None
    refused: str | None = None

    @property
    def time_factor(self) -> float:
        """Hours for one hour of useful work."""
        return 1.0 if self.course is None else self.course.run.time_factor

    @property
    def usd_per_useful_hour(self) -> float:
        return sum(self.usd_per_hour) * self.time_factor


def paid_for(
    rented: Sequence[Rented], market: Market, terms: SpotTerms | None = None, state_bytes: float = 0.0
) -> Paid:
    """What machines cost, each role by itself; nothing for those without a price. `state_bytes` is what a
    checkpoint holds."""
    if not market.spot:
        usd = ((market.usd_per_hour(market.machine(role.machine)) or 0.0) * role.count for role in rented)
        return Paid(tuple(usd))
    terms = terms or SpotTerms()
    roles = tuple((role.role, role.machine, role.count) for role in rented)
    return market.once(
        ("paid", roles, terms, state_bytes), lambda: _spot_or_not(rented, market, terms, state_bytes)
    )


def _spot_or_not(rented: Sequence[Rented], market: Market, terms: SpotTerms, state_bytes: float) -> Paid:
    from planner.hardware.prices.spot import course_of

    kinds = [market.machine(role.machine) for role in rented]
    prices = [market.price(kind) for kind in kinds]
    counts = [role.count for role in rented]
    on_demand = [_usd(kind, price, spot=False) for kind, price in zip(kinds, prices, strict=True)]
    spot = [_usd(kind, price, spot=True) for kind, price in zip(kinds, prices, strict=True)]
    dear = tuple((usd or 0.0) * count for usd, count in zip(on_demand, counts, strict=True))
    taken = [
        (kind, count, price.region if price else "")
        for kind, count, price, usd in zip(kinds, counts, prices, spot, strict=True)
        if usd is not None
    ]
    if not taken:
        return Paid(dear, refused="none of its machines has a spot price")
    cheap = tuple(
        (other or 0.0 if usd is None else usd) * count
        for usd, other, count in zip(spot, on_demand, counts, strict=True)
    )
    course = course_of(taken, terms, state_bytes)
    useful = course.run.usd_per_useful_hour(sum(cheap))
    if all(usd is not None for usd in on_demand) and useful >= sum(dear):
        words = f"one hour of useful work would cost ${useful:.2f} on spot, ${sum(dear):.2f} on demand"
        return Paid(dear, refused=words)
    return Paid(cheap, course)


def _usd(kind: Hardware, price: Price | None, *, spot: bool) -> float | None:
    """One machine for one hour; one of the user's own is never taken away."""
    if price is None or (spot and kind.ownership is not None):
        return None
    return price.spot_usd_per_hour if spot else price.on_demand_usd_per_hour


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
    method = f"{host}, PUE {pue:g}"
    if grid is None:
        return Energy(kwh, None, f"{method}, the grid of {where or 'its place'} is not known")
    grams = grid.g_co2e_per_kwh
    method += f", {grams:g} g CO2e/kWh in {where} ({grid.source}, {grid.as_of})"
    return Energy(kwh, kwh * grams / 1000, method)


def draw_of(rented: Sequence[Rented], market: Market) -> Energy | None:
    """An hour of a plan's machines; None where nobody gives the power of some."""
    drawn = []
    for role in rented:
        hardware = market.machine(role.machine)
        price = market.price(hardware)
        energy = energy_of(hardware, hours=1.0, machines=role.count, region=price.region if price else None)
        if energy is None:
            return None
        drawn.append((energy, f"{role.count} x {hardware.name}: {energy.method}"))
    known = all(energy.kg_co2e is not None for energy, _ in drawn)
    return Energy(
        sum(energy.kwh for energy, _ in drawn),
        sum(energy.kg_co2e or 0.0 for energy, _ in drawn) if known else None,
        "; ".join(method for _, method in drawn),
    )


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
