"""Machines of published runs of large models: the catalogue's with such devices, the network of the run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from planner.hardware import Hardware
from planner.hardware.catalog import match_hardware
from planner.validation.large_runs import LargeRun

# Bytes a second of a machine's NICs together where a run does not state them: those of the maker's own.
USUAL = {"V100": 100e9, "A100": 200e9}
USUAL_SINCE = 400e9
MOST_NICS, LEAST_NIC_BYTES_PER_S = 8, 12.5e9  # one a device, of 100 Gbit/s at least


def machine_of(run: LargeRun) -> Hardware | None:
    """The machine of a run; None where the catalogue has none with its device."""
    return machine(run.device, run.devices_per_machine, run.network_bytes_per_s)


def machine(device: str, devices: int, network_bytes_per_s: float | None = None) -> Hardware | None:
    """A machine with so many devices, and a network with RDMA of the rate given or usual."""
    base = _largest().get(device)
    if base is None:
        return None
    rate = network_bytes_per_s or USUAL.get(device.split("-", maxsplit=1)[0], USUAL_SINCE)
    return replace(
        base,
        device_count=devices,
        nic_baseline_bytes_per_s=rate,
        nic_burst_bytes_per_s=rate,
        rdma=True,
        rdma_kind="InfiniBand",  # or RoCE; hardly one of them ran on EFA
        rdma_bytes_per_s=rate,
        nics=max(1, min(MOST_NICS, int(rate / LEAST_NIC_BYTES_PER_S))),
        network_curves={},
    )


@cache
def _largest() -> dict[str, Hardware]:
    """For each GPU the machine with most of them; of equals AWS's, whose fabrics are measured."""
    found: dict[str, Hardware] = {}
    for one in match_hardware(("*",)):
        best = found.get(one.device.name)
        if one.device.kind != "gpu":
            continue
        if best is None or (one.device_count, one.provider == "aws") > (
            best.device_count,
            best.provider == "aws",
        ):
            found[one.device.name] = one
    return found
