"""What a hardware file may say: one struct for each kind of table, with the bounds of every figure.

docs/hardware.md explains the keys; `hardware_files` turns entries into `planner.hardware` types.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from planner.hardware import Basis, Format, Link, MemoryKind, Standing, Topology

FIGURES = ("on_demand", "spot", "nic_burst", "nic_baseline", "flow", "machine", "rdma", "status")

# What lies outside these is a slip of the pen: a price of 20,000 USD/h, a NIC of 10 Mbit written as Gbit.
Usd = Annotated[float, Meta(gt=0, le=1e4)]
Gbit = Annotated[float, Meta(ge=1e-3, le=2e4)]
Gib = Annotated[float, Meta(gt=0, le=1e5)]
Tflops = Annotated[float, Meta(gt=0, le=1e5)]
Count = Annotated[int, Meta(ge=1, le=4096)]
Gbyte = Annotated[float, Meta(gt=0, le=1e5)]
Rate = Annotated[float, Meta(gt=0, le=1e18)]


class SourceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    basis: Basis
    source: Annotated[str, Meta(min_length=3)]
    as_of: str = ""


class OwnershipEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    capital_usd: Annotated[float, Meta(gt=0, le=1e7)]
    lifetime_years: Annotated[float, Meta(gt=0, le=30)]
    power_watts: Annotated[float, Meta(gt=0, le=1e5)]
    energy_usd_per_kwh: Annotated[float, Meta(ge=0, le=5)]
    cooling_factor: Annotated[float, Meta(ge=1, le=5)] = 1.0
    machines: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    reasoning: str = ""


class RegionEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    on_demand_usd_per_hour: Usd | None = None
    spot_usd_per_hour: Usd | None = None
    as_of: str = ""
    basis: Basis = "published"
    source: str = ""


# In short: the price on demand, or that and the spot price, of the machine's own date and source.
RegionPrices = Annotated[tuple[Usd, ...], Meta(min_length=1, max_length=2)]


class FabricEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    kind: Link
    topology: Topology
    gbyte_per_s: Gbyte | None = None  # of one device, each way
    between_gbyte_per_s: Gbyte | None = None  # between pairs
    allreduce_gbyte_per_s: Gbyte | None = None  # bus bandwidth over all devices
    curve: str | None = None
    machines: Count = 1
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""


class MachineEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    device: str
    device_count: Count = 1
    machines: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # that are owned
    cores: Count | None = None
    cpu: str = ""
    vcpus: Count | None = None
    memory_gib: Gib | None = None
    nic_burst_gbit_per_s: Gbit | None = None
    nic_baseline_gbit_per_s: Gbit | None = None
    nic_label: str = ""
    flow_gbit_per_s: Gbit | None = None
    placement_group_flow_gbit_per_s: Gbit | None = None
    on_demand_usd_per_hour: Usd | None = None
    spot_usd_per_hour: Usd | None = None
    region: str = ""
    still_sold: bool = True
    standing: Standing | None = None
    status: str = ""
    offered_as: str = ""
    aliases: tuple[str, ...] = ()
    ownership: OwnershipEntry | None = None
    other_regions: dict[str, RegionEntry | RegionPrices] = {}
    calibration: dict[str, float | tuple[float, ...]] = {}
    fabric: FabricEntry | str | None = None
    rdma: bool | None = None
    rdma_kind: str = ""
    rdma_gbit_per_s: Gbit | None = None
    nics: Count | None = None
    network_curves: dict[Literal["rdma", "tcp"], str] = {}
    local_disk_gbyte: Annotated[float, Meta(gt=0, le=1e7)] | None = None
    sources: dict[str, SourceEntry] = {}


class DeviceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A GPU's peaks stand in `tflops` by format, or, in short, in `fp32_tflops` and `tensor_tflops` (fp16); a
    CPU's follows from cores, clock and FLOP a cycle. Memory is `memory_bytes`, or `memory_gib` in short."""

    kind: Literal["gpu", "cpu"]
    vendor: str = ""
    year: Annotated[int, Meta(ge=1990, le=2100)] | None = None
    tflops: dict[Format, Tflops] = {}
    fp32_tflops: Tflops | None = None
    tensor_tflops: Tflops | None = None
    matmul_tflops: dict[Format, Tflops] = {}  # measured on large products
    matmul_source: str = ""
    memory_bytes: Annotated[int, Meta(gt=0, le=10**14)] | None = None
    memory_gib: Gib | None = None
    memory_gbyte_per_s: Gbyte | None = None
    memory_kind: MemoryKind | None = None
    pcie_gbyte_per_s: Gbyte | None = None  # of its slot, each way
    power_w: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    clock_ghz: Annotated[float, Meta(gt=0, le=10)] | None = None
    fp32_flop_per_cycle: Annotated[float, Meta(gt=0, le=4096)] | None = None  # of one core
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""
    note: str = ""


class KernelsEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Either `rates` and `overhead_s`, or `like` another device with all rates times `scale`."""

    rates: dict[str, Rate] = {}
    overhead_s: Annotated[float, Meta(ge=0, le=10)] = 0.0
    per_core: bool = False
    like: str = ""
    scale: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    basis: Basis = "estimated"
    source: str = ""
    as_of: str = ""
    median_error: Annotated[float, Meta(ge=0, le=10)] | None = None
