"""Machines, their devices and fabrics, the catalogue of hardware files, and prices.

Here are the nouns: one kind of machine, with its devices, NIC, memory and price, each figure with its basis;
and the market of a request.
`planner.hardware.catalog` reads them from `hardware/*.toml`. May be imported by all but `model` and `files`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from planner.errors import BadInput
from planner.memoize import kept

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
GIVEN_PRICE = "--price"  # the source of a price that the request gives


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


@dataclass(frozen=True, slots=True)
class Market:
    """The market of a request: which machines there are, by name, and on which terms it counts with them.

    A plan holds names of machines only; what depends on the request's network, bandwidth, region and spot is
    asked here, so that prices and rates have one source. `bandwidth_bytes_per_s` replaces the figure of every
    NIC. `own` are machines that the catalogue does not hold or that hide those of the same name: those of the
    user's files, and the one that a profile was recorded on. `rdma`: whether collectives between machines
    bypass the kernel; None: where the machine can. `own_usd_per_hour` replaces the price of machines that are
    the user's own, and of those without one."""

    network: Network = "baseline"
    bandwidth_bytes_per_s: float | None = None
    region: str | None = None
    spot: bool = False
    own: tuple[Hardware, ...] = field(default=(), hash=False)
    rdma: bool | None = None
    own_usd_per_hour: float | None = None
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` finds in this market, looked up once."""
        return kept(self._found, key, make)

    def machine(self, name: str) -> Hardware:
        """The machine of a name, or a refusal that lists similar ones."""
        if name in self._found:
            known: Hardware = self._found[name]
            return known
        from planner.hardware.catalog import load_hardware

        own = (kind for kind in self.own if kind.name == name)
        return self.once(name, lambda: next(own, None) or load_hardware(name))

    def matching(self, words: Iterable[str]) -> tuple[Hardware, ...]:
        """The machines that names, patterns and files mean, each once and in order."""
        words = tuple(words)
        return self.once(("matching", words), lambda: self._matching(words))

    def _matching(self, words: tuple[str, ...]) -> tuple[Hardware, ...]:
        from planner.hardware.catalog import match_hardware

        own = {kind.name: kind for kind in self.own}
        parts: list[Hardware] = []
        for word in words:
            parts += [own[word]] if word in own else match_hardware(word)
        return tuple({kind.name: own.get(kind.name, kind) for kind in parts}.values())

    def nic_bytes_per_s(self, hardware: Hardware) -> float | None:
        """The rate of a machine's NIC; None where nobody has published it and the request gives none."""
        return self.bandwidth_bytes_per_s or hardware.nic_bytes_per_s(self.network)

    def price(self, hardware: Hardware) -> Price | None:
        """The price list that counts for a machine; None where its region has none."""
        if self.own_usd_per_hour is not None and (hardware.standing == "own" or not hardware.has_price):
            return Price(self.own_usd_per_hour, None, "", "", "measured", GIVEN_PRICE)
        if hardware.ownership is not None or self.region is None:
            return hardware.price
        if self.region == "cheapest":
            from planner.hardware.prices.offers import price_at

            return price_at(hardware, self.region, spot=self.spot)
        return hardware.price_in(self.region)

    def usd_per_hour(self, hardware: Hardware) -> float | None:
        """US dollars per hour for one machine as the request rents it; None where it has no such price. A
        machine of one's own costs the same in every region, spot or not."""
        price = self.price(hardware)
        if price is None:
            return None
        return price.on_demand_usd_per_hour if hardware.ownership is not None else self._paid(price)

    def is_free(self, hardware: Hardware) -> bool:
        """Whether a machine is the user's own and has no price: its plans are ranked by time."""
        return hardware.standing == "own" and not hardware.has_price and self.own_usd_per_hour is None

    @property
    def no_price(self) -> str:
        """`no on-demand price in region 'us-west-2'`: what is missing. Where spot has no price, machines are
        rented on demand."""
        where = "" if self.region is None else f" in region {self.region!r}"
        return f"no {'' if self.spot else 'on-demand '}price{where}"

    def no_rdma(self, hardware: Hardware) -> str:
        """Why a machine has not the network that is asked for, with the remedy; empty if it has."""
        if not self.rdma or hardware.rdma:
            return ""
        if hardware.rdma is False:
            return f"{hardware.name} has no RDMA; use --network tcp"
        return (
            f"{hardware.name} is not known to have RDMA; use --network tcp, or say rdma = true in a hardware "
            "file of your own"
        )

    def check_prices(self, kinds: Iterable[Hardware]) -> None:
        """Refuse a request that pays for none of the machines it would rent. Machines without any price in
        their file are not meant to be paid for."""
        rented = [kind for kind in kinds if kind.ownership is None and kind.has_price]
        if not rented or any(self.usd_per_hour(kind) is not None for kind in rented):
            return
        who, it = f"{rented[0].name} has", "it has"
        if len(rented) > 1:
            who, it = f"the {len(rented)} machines asked for, {rented[0].name} among them, have", "they have"
        regions = sorted({p.region for kind in rented for p in _prices(kind) if self._paid(p) is not None})
        remedy = f"{it} prices in {', '.join(regions)}" if regions else "take --spot, which they have"
        raise BadInput(f"{who} {self.no_price}; {remedy}")

    def _paid(self, price: Price) -> float | None:
        """With spot, the lowest of both: what a plan pays depends on what interruptions cost it
        (`planner.hardware.prices.cost`)."""
        both = (price.on_demand_usd_per_hour, price.spot_usd_per_hour if self.spot else None)
        return min((usd for usd in both if usd is not None), default=None)


def own_machines(words: Iterable[str]) -> tuple[Hardware, ...]:
    """The machines that words name by their files; two different ones of one name are refused."""
    from planner.files.regular_file import looks_like_path
    from planner.hardware.catalog import load_hardware

    own: dict[str, Hardware] = {}
    for word in ",".join(words).split(","):
        if not looks_like_path(word):
            continue
        machine = load_hardware(word.strip())
        if own.setdefault(machine.name, machine) != machine:
            raise BadInput(f"{word}: another file has a machine {machine.name!r} too; rename one of them")
    return tuple(own.values())


def _prices(hardware: Hardware) -> tuple[Price, ...]:
    return (hardware.price, *hardware.other_prices)


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
