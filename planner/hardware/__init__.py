"""Machines, their devices and fabrics, the catalog of hardware files, and prices.

This module holds the nouns: a machine with its devices, NIC, memory and price, each figure with its basis;
and the market of a request. `planner.hardware.catalog` reads them from `hardware/*.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from msgspec import Meta, Struct

from planner.errors import BadInput
from planner.memoize import get_or_make

T = TypeVar("T")

Basis = Literal["measured", "published", "estimated"]
Network = Literal["baseline", "burst"]
Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
FORMATS: tuple[Format, ...] = get_args(Format)
Standing = Literal["rentable", "retired", "example", "own"]
Link = Literal["nvswitch", "nvlink", "xgmi", "pcie", "host"]
Topology = Literal["switch", "mesh", "pairs", "pcie"]
MemoryKind = Literal["hbm", "gddr"]
HOURS_PER_YEAR = 8766.0
GIVEN_PRICE = "--price"  # the source of a price given in the request
CHEAPEST = "cheapest"  # in place of a region


class Source(Struct, forbid_unknown_fields=True, frozen=True):
    """The origin, basis and date of a figure."""

    basis: Basis
    source: Annotated[str, Meta(min_length=3)]
    as_of: str = ""

    def __str__(self) -> str:
        """Basis, source and date as text."""
        return f"{self.basis}: {self.source}" + (f" ({self.as_of})" if self.as_of else "")


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, or all cores of a CPU machine taken together.

    `name` is the key in `hardware/devices.toml`. For a CPU machine `cores` are the physical cores, `flops`
    the peaks of all of them and `memory_bytes` the machine's memory.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    flops: Mapping[str, float] = field(hash=False)  # dense peak per second by supported format
    memory_bytes: float  # as the driver reports it, where known
    memory_bytes_per_s: float | None = None
    memory_kind: MemoryKind | None = None
    cores: int | None = None
    source: str = ""
    basis: Basis = "published"
    as_of: str = ""
    note: str = ""
    matmul_flops: Mapping[str, float] = field(default_factory=dict, hash=False)  # measured, large products
    matmul_source: str = ""
    power_w: float | None = None
    year: int | None = None
    vendor: str = ""
    pcie_bytes_per_s: float | None = None  # of its slot, each way

    @property
    def fp32_flops(self) -> float:
        """Peak fp32 rate in FLOP/s."""
        return self.flops["fp32"]

    @property
    def formats(self) -> tuple[str, ...]:
        """Supported number formats, widest first."""
        return tuple(format for format in FORMATS if format in self.flops)


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links between the devices of one machine.

    `bytes_per_s` is the rate of one device over all its links, each way. A `switch` joins all devices at that
    rate, a `mesh` each device to some others; traffic between `pairs` gets `between_bytes_per_s`; `pcie` is
    the host's tree. `curve` names measured collectives (`planner.parallel.collectives`),
    `allreduce_bytes_per_s` is the bus bandwidth of a large all-reduce over all devices, `machines` the number
    of machines in one domain (18 in a rack of GB200).
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
    assumed: bool = False  # from other machines; the file names none


@dataclass(frozen=True, slots=True)
class KernelRates:
    """A device's rates by kind of kernel, from which steps are synthesized.

    `rates` are per kernel kind (conv1x1, conv3x3, conv, fc: multiply-adds per second; memory: bytes per
    second); `overhead_s` is the fixed cost of one op, `median_error` that of the fit. In
    `hardware/kernels.toml` a CPU's rates may be per core (`per_core = true`).
    """

    rates: Mapping[str, float]
    overhead_s: float
    basis: Basis
    source: str
    median_error: float | None = None
    as_of: str = ""


class Ownership(Struct, forbid_unknown_fields=True, frozen=True):
    """Cost of one's own machine: the purchase spread over its lifetime, and energy with cooling."""

    capital_usd: Annotated[float, Meta(gt=0, le=1e7)]
    lifetime_years: Annotated[float, Meta(gt=0, le=30)]
    power_watts: Annotated[float, Meta(gt=0, le=1e5)]
    energy_usd_per_kwh: Annotated[float, Meta(ge=0, le=5)]
    cooling_factor: Annotated[float, Meta(ge=1, le=5)] = 1.0  # energy at the meter per unit in the machine
    reasoning: str = ""

    @property
    def usd_per_hour(self) -> float:
        """Cost in USD per hour: the purchase spread over its lifetime, and energy."""
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

    def usd_per_hour(self, *, spot: bool) -> float | None:
        """Price in USD per hour, spot or on demand; None if there is none."""
        return self.spot_usd_per_hour if spot else self.on_demand_usd_per_hour


NO_PRICE = Price(None, None, region="", as_of="", basis="measured", source="")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of machine.

    `sources` gives the origin of figures (on_demand, spot, nic_burst, nic_baseline, flow, machine, rdma,
    status); unpublished figures are None.
    """

    name: str
    device: Device
    family: str = ""
    provider: str = ""
    device_count: int = 1  # accelerators; 1 for a CPU machine, whose cores work as one device
    cpu: str = ""
    vcpus: int | None = None
    memory_bytes: float | None = None
    nic_burst_bytes_per_s: float | None = None
    nic_baseline_bytes_per_s: float | None = None
    flow_bytes_per_s: float | None = None  # limit of one TCP connection anywhere in the region
    price: Price = NO_PRICE
    still_sold: bool = False
    status: str = ""
    kernels: KernelRates | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    nic_label: str = ""
    placement_group_flow_bytes_per_s: float | None = None  # limit inside a cluster placement group
    other_prices: tuple[Price, ...] = ()
    ownership: Ownership | None = None
    calibration: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    path: str = ""
    fabric: Fabric | None = None  # None: one device, or unknown links
    rdma: bool | None = None  # whether NICs bypass the kernel; None: unknown
    rdma_kind: str = ""  # EFA, InfiniBand, RoCE, GPUDirect-TCPX
    rdma_bytes_per_s: float | None = None  # of all RDMA NICs; `nic_*` may be another, slower network
    nics: int | None = None  # number of RDMA NICs
    network_curves: Mapping[str, str] = field(default_factory=dict)  # measured collectives by rdma and tcp
    local_disk_bytes: float | None = None
    offered_as: str = ""  # the provider's own name, where ours differs
    standing: Standing = "rentable"  # retired: no longer sold; example: the cluster of a paper
    machines: int | None = None  # owned machines, the most that a plan can use

    @property
    def is_available(self) -> bool:
        """Whether the machine can be rented or is owned."""
        return self.standing in ("rentable", "own")

    @property
    def prices(self) -> tuple[Price, ...]:
        """Prices in all regions, the main region first."""
        return (self.price, *self.other_prices)

    @property
    def has_price(self) -> bool:
        """Whether any region has a price."""
        paid = ((price.on_demand_usd_per_hour, price.spot_usd_per_hour) for price in self.prices)
        return any(usd is not None for both in paid for usd in both)

    @property
    def devices_memory_bytes(self) -> float:
        """Memory of all devices together, in bytes."""
        return self.device.memory_bytes * self.device_count

    def nic_bytes_per_s(self, network: Network) -> float | None:
        """NIC rate in bytes per second: sustained (baseline) or short-term (burst)."""
        rates = self.nic_baseline_bytes_per_s, self.nic_burst_bytes_per_s
        return (rates[1] or rates[0]) if network == "burst" else (rates[0] or rates[1])

    def price_in(self, region: str | None, *, spot: bool = False) -> Price | None:
        """Price in a named region, the `cheapest` or the main one (None); None if not sold there.

        A user's own machine costs the same in every region.
        """
        if region is None or self.ownership is not None:
            return self.price
        if region != CHEAPEST:
            return next((price for price in self.prices if price.region == region), None)
        return min(self.prices, key=lambda price: price.usd_per_hour(spot=spot) or math.inf)


@dataclass(frozen=True, slots=True)
class Market:
    """The machines of a request by name, and the terms on which they are rented.

    Plans hold names of machines only; everything that depends on the request's network, bandwidth, region and
    spot is looked up here. `bandwidth_bytes_per_s` replaces the rate of every NIC. `own` machines (of the
    user's files, or of a recorded profile) hide those of the same name in the catalog. `rdma`: whether
    collectives between machines bypass the kernel; None: where the machine can. `own_usd_per_hour` replaces
    the price of one's own machines and of those without a price.
    """

    network: Network = "baseline"
    bandwidth_bytes_per_s: float | None = None
    region: str | None = None
    spot: bool = False
    own: tuple[Hardware, ...] = field(default=(), hash=False)
    rdma: bool | None = None
    own_usd_per_hour: float | None = None
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the cached result of `make()`, which runs at most once per key of this market."""
        return get_or_make(self._found, key, make)

    def find_machine(self, name: str) -> Hardware:
        """Finds the machine with this name among the user's own, then in the catalog; raises BadInput."""
        if name in self._found:
            return cast(Hardware, self._found[name])
        from planner.hardware.catalog import load_hardware

        own = (kind for kind in self.own if kind.name == name)
        return self.get_or_make(name, lambda: next(own, None) or load_hardware(name))

    def select_machines(self, patterns: Iterable[str]) -> tuple[Hardware, ...]:
        """Selects machines by names, patterns or files, without duplicates and in their order."""
        patterns = tuple(patterns)
        return self.get_or_make(("matching", patterns), lambda: self._match_machines(patterns))

    def _match_machines(self, patterns: tuple[str, ...]) -> tuple[Hardware, ...]:
        """Selects machines by names, patterns or files; the user's own machines replace the catalog's."""
        from planner.hardware.catalog import match_hardware

        own = {kind.name: kind for kind in self.own}
        parts: list[Hardware] = []
        for word in patterns:
            parts += [own[word]] if word in own else match_hardware(word)
        return tuple({kind.name: own.get(kind.name, kind) for kind in parts}.values())

    def nic_bytes_per_s(self, hardware: Hardware) -> float | None:
        """NIC rate of a machine in bytes per second; None if neither published nor given."""
        return self.bandwidth_bytes_per_s or hardware.nic_bytes_per_s(self.network)

    def price(self, hardware: Hardware) -> Price | None:
        """Price of a machine in the request's region; None if it is not sold there."""
        if self.own_usd_per_hour is not None and (hardware.standing == "own" or not hardware.has_price):
            return Price(self.own_usd_per_hour, None, "", "", "measured", GIVEN_PRICE)
        return hardware.price_in(self.region, spot=self.spot)

    def usd_per_hour(self, hardware: Hardware) -> float | None:
        """Price of one machine in USD per hour, with spot and region as requested; None if it has none."""
        price = self.price(hardware)
        if price is None:
            return None
        return (
            price.on_demand_usd_per_hour
            if hardware.ownership is not None
            else self._effective_usd_per_hour(price)
        )

    def is_free(self, hardware: Hardware) -> bool:
        """Whether a machine is the user's own and has no price, so its plans are ranked by time."""
        return hardware.standing == "own" and not hardware.has_price and self.own_usd_per_hour is None

    @property
    def missing_price_text(self) -> str:
        """Text for a missing price, such as `no on-demand price in region 'us-west-2'`."""
        where = "" if self.region is None else f" in region {self.region!r}"
        return f"no {'' if self.spot else 'on-demand '}price{where}"

    def missing_rdma_reason(self, hardware: Hardware) -> str:
        """Explains why a machine lacks the requested RDMA and what to do; empty string if it has it."""
        if not self.rdma or hardware.rdma:
            return ""
        if hardware.rdma is False:
            return f"{hardware.name} has no RDMA; use --network tcp"
        own = "or set rdma = true in a hardware file of your own"
        return f"{hardware.name} is not known to have RDMA; use --network tcp, {own}"

    def check_prices(self, machines: Iterable[Hardware]) -> None:
        """Raises BadInput if machines have prices, but none in the requested region, on demand or spot."""
        rented = [kind for kind in machines if kind.ownership is None and kind.has_price]
        if not rented or any(self.usd_per_hour(kind) is not None for kind in rented):
            return
        who, it = f"{rented[0].name} has", "it has"
        if len(rented) > 1:
            who, it = f"the {len(rented)} machines asked for, {rented[0].name} among them, have", "they have"
        regions = sorted(
            {p.region for kind in rented for p in kind.prices if self._effective_usd_per_hour(p) is not None}
        )
        remedy = f"{it} prices in {', '.join(regions)}" if regions else "take --spot, which they have"
        raise BadInput(f"{who} {self.missing_price_text}; {remedy}")

    def _effective_usd_per_hour(self, price: Price) -> float | None:
        """Price to pay in USD per hour: on demand, or with --spot the lower of spot and on demand.

        `planner.hardware.prices.cost` adds the cost of interruptions.
        """
        both = (price.on_demand_usd_per_hour, price.spot_usd_per_hour if self.spot else None)
        return min((usd for usd in both if usd is not None), default=None)


def load_machines_from_files(patterns: Iterable[str]) -> tuple[Hardware, ...]:
    """Loads the machines in those patterns that are paths of hardware files.

    Raises BadInput if two share a name.
    """
    from planner.files.regular_file import is_path_like
    from planner.hardware.catalog import load_hardware

    own: dict[str, Hardware] = {}
    for word in ",".join(patterns).split(","):
        if not is_path_like(word):
            continue
        machine = load_hardware(word.strip())
        if own.setdefault(machine.name, machine) != machine:
            raise BadInput(f"{word}: another file has a machine {machine.name!r} too; rename one of them")
    return tuple(own.values())


def devices_label(hardware: Hardware) -> str:
    """Label of a machine's devices: `8x T4`, or `18c Xeon-E5-2666v3` for a CPU with 18 cores."""
    if hardware.device.kind == "cpu":
        return f"{hardware.device.cores}c {hardware.device.name}"
    return f"{hardware.device_count}x {hardware.device.name}"
