"""Machines, their devices and fabrics, the catalogue of hardware files, and prices.

Here are the nouns: one kind of machine, with its devices, NIC, memory and price, each figure with its basis.
`planner.hardware.catalog` reads them from `hardware/*.toml`. May be imported by all but `model` and `files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Basis = Literal["measured", "published", "estimated"]
Network = Literal["baseline", "burst"]
Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
FORMATS: tuple[Format, ...] = get_args(Format)
Standing = Literal["rentable", "retired", "example", "own"]
Link = Literal["nvswitch", "nvlink", "xgmi", "pcie", "host"]
Topology = Literal["switch", "mesh", "pairs", "pcie"]
MemoryKind = Literal["hbm", "gddr"]
HOURS_PER_YEAR = 8766.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure comes from, how it came about, and of which day it is."""

    basis: Basis
    source: str
    as_of: str = ""

    def __str__(self) -> str:
        return f"{self.basis}: {self.source}" + (f" ({self.as_of})" if self.as_of else "")


@dataclass(frozen=True, slots=True)
class Device:
    """What computes: one accelerator, or all the cores of a CPU machine taken together.

    `name` is the key of `hardware/devices.toml`. For a CPU machine `cores` are the physical cores,
    `flops` is that of all of them and `memory_bytes` is the machine's memory.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    flops: Mapping[str, float] = field(hash=False)  # dense peak a second by format; one it lacks is absent
    memory_bytes: float  # as the driver reports it, where known
    memory_bytes_per_s: float | None = None
    memory_kind: MemoryKind | None = None  # stacked beside the chip, or the memory of graphics boards
    cores: int | None = None
    source: str = ""
    basis: Basis = "published"
    as_of: str = ""
    note: str = ""
    matmul_flops: Mapping[str, float] = field(
        default_factory=dict, hash=False
    )  # large products reach, measured
    matmul_source: str = ""
    power_w: float | None = None
    year: int | None = None
    vendor: str = ""
    pcie_bytes_per_s: float | None = None  # of its slot, each way

    @property
    def fp32_flops(self) -> float:
        return self.flops["fp32"]

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats that it computes in, widest first."""
        return tuple(format for format in FORMATS if format in self.flops)


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links between the devices of one machine.

    `bytes_per_s` is what one device sends, each way, over all its links. A `switch` joins all to all at that
    rate, a `mesh` each device to some others; where only `pairs` are joined, what goes between pairs gets
    `between_bytes_per_s`; `pcie` is the host's tree. `curve` names measured collectives
    (`planner.hardware.collective_curves`), `allreduce_bytes_per_s` the bus bandwidth of a large all-reduce
    over all devices where that is all that is known. `machines` is how many machines one domain spans (18 in
    a rack of GB200).
    """

    kind: Link
    topology: Topology
    bytes_per_s: float
    basis: Basis
    source: str
    as_of: str = ""
    curve: str | None = None
    between_bytes_per_s: float | None = None
    allreduce_bytes_per_s: float | None = None
    machines: int = 1
    assumed: bool = False  # taken from other machines, as the file says nothing


@dataclass(frozen=True, slots=True)
class KernelRates:
    """How fast a device runs each kind of kernel: the compute model that synthesis uses.

    `rates` maps a kernel kind (conv1x1, conv3x3, conv, fc: multiply-adds a second; memory: bytes a second)
    to its rate; `overhead_s` is the fixed cost of one op. `median_error` is that of the fit. They are kept in
    `hardware/kernels.toml`, where a CPU's rates may be those of one core (`per_core = true`): the catalogue
    multiplies them by the machine's cores.
    """

    rates: Mapping[str, float]
    overhead_s: float
    basis: Basis
    source: str
    median_error: float | None = None
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a machine of one's own costs: the purchase spread over its life, and the energy with cooling."""

    capital_usd: float
    lifetime_years: float
    power_watts: float
    energy_usd_per_kwh: float
    cooling_factor: float = 1.0  # energy drawn at the meter for each unit that reaches the machine
    reasoning: str = ""

    @property
    def usd_per_hour(self) -> float:
        capital = self.capital_usd / (self.lifetime_years * HOURS_PER_YEAR)
        return capital + self.power_watts / 1000 * self.cooling_factor * self.energy_usd_per_kwh


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per hour for one machine."""

    on_demand_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    region: str
    as_of: str
    basis: Basis
    source: str
    spot_as_of: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of machine. `sources` maps a figure (on_demand, spot, nic_burst, nic_baseline, flow, machine,
    rdma, status) to where it comes from; a figure that nobody has published is None."""

    name: str
    family: str
    provider: str
    device: Device
    device_count: int  # accelerators; 1 for a CPU machine, whose cores work as one device
    cpu: str
    vcpus: int | None
    memory_bytes: float | None
    nic_burst_bytes_per_s: float | None
    nic_baseline_bytes_per_s: float | None
    flow_bytes_per_s: float | None  # what one TCP connection gets at most, anywhere in the region
    price: Price
    still_sold: bool
    status: str = ""
    kernels: KernelRates | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    nic_label: str = ""
    placement_group_flow_bytes_per_s: float | None = None  # the same inside a cluster placement group
    other_prices: tuple[Price, ...] = ()
    ownership: Ownership | None = None
    calibration: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    path: str = ""
    fabric: Fabric | None = None  # None: one device, or nobody has said how they are joined
    rdma: bool | None = None  # whether NICs reach device memory past the kernel; None: not known
    rdma_kind: str = ""  # EFA, InfiniBand, RoCE, GPUDirect-TCPX
    rdma_bytes_per_s: float | None = None  # of all NICs that can; `nic_*` may be another, slower network
    nics: int | None = None  # how many those are
    network_curves: Mapping[str, str] = field(
        default_factory=dict
    )  # measured collectives over rdma, over tcp
    local_disk_bytes: float | None = None
    offered_as: str = ""  # the provider's own name, where ours differs
    standing: Standing = "rentable"  # retired: nobody sells it any more; example: a cluster of a paper
    machines: int | None = None  # how many of them are owned; a plan cannot use more

    @property
    def can_be_had(self) -> bool:
        """Whether one can rent it, or has it already."""
        return self.standing in ("rentable", "own")

    @property
    def has_price(self) -> bool:
        """Whether anybody says what it costs, anywhere."""
        prices = (self.price, *self.other_prices)
        return any(
            usd is not None
            for price in prices
            for usd in (price.on_demand_usd_per_hour, price.spot_usd_per_hour)
        )

    @property
    def devices_memory_bytes(self) -> float:
        return self.device.memory_bytes * self.device_count

    def nic_bytes_per_s(self, network: Network) -> float | None:
        """The NIC's rate: what long training gets (baseline) or what lasts for minutes (burst)."""
        if network == "burst":
            return self.nic_burst_bytes_per_s or self.nic_baseline_bytes_per_s
        return self.nic_baseline_bytes_per_s or self.nic_burst_bytes_per_s

    def price_in(self, region: str) -> Price | None:
        """The price in a region; None where the file has none."""
        return next((price for price in (self.price, *self.other_prices) if price.region == region), None)


def bare_machine(name: str, device: Device, **known: Any) -> Hardware:
    """A machine of which nothing is known but its device, and what is given."""
    unknown = (
        "vcpus",
        "memory_bytes",
        "nic_burst_bytes_per_s",
        "nic_baseline_bytes_per_s",
        "flow_bytes_per_s",
    )
    about: dict[str, Any] = {
        **dict.fromkeys(("family", "provider", "cpu"), ""),
        **dict.fromkeys(unknown),
        "device_count": 1,
        "price": Price(None, None, region="", as_of="", basis="measured", source=""),
        "still_sold": False,
    }
    return Hardware(name=name, device=device, **(about | known))


def devices_of(hardware: Hardware) -> str:
    """What computes in a machine, in a word: `8x T4`, `18c Xeon-E5-2666v3` (cores)."""
    if hardware.device.kind == "cpu":
        return f"{hardware.device.cores}c {hardware.device.name}"
    return f"{hardware.device_count}x {hardware.device.name}"
