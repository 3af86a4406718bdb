"""Price lists of others, told apart by their first line, as quotes for machines of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from planner.errors import BadInput, unknown_name
from planner.hardware import Hardware
from planner.hardware.prices import gpuhunt, skypilot
from planner.hardware.prices.quote import Quotes
from planner.hardware.prices.table import header_of

_FORMATS: dict[str, ModuleType] = {"SkyPilot": skypilot, "gpuhunt": gpuhunt}


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a list says of the machines that the catalogue has."""

    path: Path
    format: str
    provider: str
    quotes: Quotes
    rows: int
    left_out: Mapping[str, int]

    @property
    def prices(self) -> int:
        return sum(len(regions) for regions in self.quotes.values())


def read_lists(path: Path, provider: str | None = None) -> tuple[PriceList, ...]:
    """The list in a file, or all lists below a folder: `aws/vms.csv` or `aws.csv`."""
    if not path.is_dir():
        return (read_list(path, provider),)
    files = sorted({*path.glob("*.csv"), *path.glob("*/vms.csv")})
    known = [file for file in files if _format(file)]
    if not known:
        raise BadInput(f"{path}: no price list in it; looked for *.csv and */vms.csv of SkyPilot or gpuhunt")
    providers = _machines()
    lists: dict[str, PriceList] = {}
    for file in known:
        whose = provider or _FORMATS[_format(file)].provider_of(file)
        if whose not in providers:
            continue  # of a provider that the catalogue lacks
        if whose in lists:
            raise BadInput(f"{path}: two lists of {whose}: {lists[whose].path} and {file}; import one")
        lists[whose] = read_list(file, whose)
    if not lists:
        raise BadInput(f"{path}: no list of a provider in the catalogue: {', '.join(sorted(providers))}")
    return tuple(lists.values())


def read_list(path: Path, provider: str | None = None) -> PriceList:
    """The list in a file; the provider is taken from its place unless it is given."""
    kind = _format(path)
    if not kind:
        raise BadInput(
            f"{path}:1: no price list of SkyPilot (a line with InstanceType and Price first) nor of gpuhunt "
            "(instance_name and price)"
        )
    machines = _machines()
    whose = provider or _FORMATS[kind].provider_of(path)
    if whose not in machines:
        hint = "" if provider else "; the list does not say whose prices it has: give --provider"
        raise BadInput(f"{path}: {unknown_name('provider', whose, machines)}{hint}")
    read = _FORMATS[kind].read(path, whose, machines[whose])
    if not read.quotes:
        raise BadInput(
            f"{path}: no price of a machine that the catalogue has of {whose}; is it another provider's?"
        )
    left_out = {reason: count for reason, count in read.left_out.items() if count}
    return PriceList(path, kind, whose, read.quotes, read.rows, left_out)


def _format(path: Path) -> str:
    header = header_of(path)
    return next((name for name, module in _FORMATS.items() if set(module.SIGN) <= set(header)), "")


def _machines() -> dict[str, dict[str, Hardware]]:
    """The machines of the catalogue by provider and by its own names for them."""
    from planner.hardware.catalog import hardware_names, load_hardware

    by_name: dict[str, dict[str, Hardware]] = {}
    for machine in map(load_hardware, hardware_names()):
        if machine.standing in ("rentable", "retired"):
            by_name.setdefault(machine.provider, {})[machine.offered_as or machine.name] = machine
    return by_name
