"""The usual fabric of a device: how its machines are joined where a hardware file does not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from planner.hardware import Device, Fabric, Hardware

PCIE_4_YEAR = 2020  # devices of this year and later use PCIe 4.0 or faster
PCIE_3_BYTES_PER_S, PCIE_4_BYTES_PER_S = 15.8e9, 31e9  # x16, each way


def with_usual_fabric(machine: Hardware, catalog: Iterable[Hardware]) -> Hardware:
    """The machine with the fabric that the catalog's machines with its device have, if its own is unknown."""
    if machine.fabric is not None or machine.device_count == 1:
        return machine
    alike = [kind for kind in catalog if kind.device.name == machine.device.name and kind.fabric is not None]
    return replace(machine, fabric=_usual(machine, alike))


def _usual(machine: Hardware, alike: Iterable[Hardware]) -> Fabric:
    """The most frequent fabric at the same device count, else the switch that joins any count, else PCIe."""
    same: Counter[str] = Counter()
    known: dict[str, tuple[Fabric, str]] = {}
    for kind in alike:
        assert kind.fabric is not None
        if kind.device_count == machine.device_count or kind.fabric.topology == "switch":
            key = repr(replace(kind.fabric, machines=1))
            same[key] += 1 + 1000 * (kind.device_count == machine.device_count)
            known.setdefault(key, (kind.fabric, kind.name))
    if not same:
        return _pcie(machine.device)
    # of equally frequent ones the slowest
    fabric, name = known[min(same, key=lambda key: (-same[key], known[key][0].bytes_per_s, key))]
    return replace(
        fabric,
        machines=1,
        basis="estimated",
        source=f"assumed: that of {name}, which has the same devices",
        as_of="",
        assumed=True,
    )


def _pcie(device: Device) -> Fabric:
    recent = device.year is None or device.year >= PCIE_4_YEAR
    rate, generation = (PCIE_4_BYTES_PER_S, "4.0") if recent else (PCIE_3_BYTES_PER_S, "3.0")
    source = f"assumed: PCIe {generation} x16, as no machine of the catalog has this device"
    return Fabric("pcie", "pcie", rate, "estimated", source, assumed=True)
