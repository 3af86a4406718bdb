"""A plan, and the site that it runs on: the workers' machines, under the terms of a request.

A plan states which model trains on which machines, and how replicas exchange gradients: one point of the
search space.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from planner.device.precision import FP32, Precision, find_precision
from planner.errors import BadInput
from planner.hardware import Basis, Fabric, Hardware, Market, Network
from planner.memoize import get_or_make
from planner.parallel.mesh import WHOLE, Mesh
from planner.units import format_bandwidth

if TYPE_CHECKING:
    from planner.device.activations import Recompute
    from planner.parallel.data import Exchange

CATALOGUE = Market()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rented:
    """Machines that a plan pays for: their role (`workers`, `servers`), kind and number."""

    role: str
    machine: str
    count: int


@dataclass(frozen=True, slots=True)
class Site:
    """`workers` devices on machines of one kind, filled one after another.

    `rdma`: whether transfers between machines bypass the kernel; None: as the request says, or as the
    machine can. `mesh`: how a replica is spread over workers. `market` gives other machines by name.
    `seed` seeds values that are drawn once per plan, such as an order of transfers.

    Unequal workers and machines: `speeds` are the relative speeds of the workers' computation (1: as
    computed), `nic_shares` the free share of each machine's NIC; empty means all alike. `round_trip_s` is
    the round trip of a small message between machines (None: usual for the network and library),
    `burst_bytes` the burst a bandwidth-limited link (tc) lets through after a pause.
    """

    hardware: Hardware
    workers: int
    market: Market = CATALOGUE
    mesh: Mesh = WHOLE
    rdma: bool | None = None
    speeds: tuple[float, ...] = ()
    nic_shares: tuple[float, ...] = ()
    round_trip_s: float | None = None
    burst_bytes: float = 0.0
    seed: int = 0
    _found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of `key` on this site, computed by `make` on the first call."""
        return get_or_make(self._found, key, make)

    @property
    def devices(self) -> int:
        """Workers per machine."""
        return self.hardware.device_count

    @property
    def machines(self) -> int:
        """Number of machines that hold workers; the last machine may hold fewer workers."""
        return -(-self.workers // self.devices)

    @property
    def replicas(self) -> int:
        """Number of copies of the model."""
        return self.workers // self.mesh.size

    @property
    def nic_bytes_per_s(self) -> float:
        """Bandwidth of a machine's NIC in each direction; raises BadInput if unknown."""
        given = self.market.bandwidth_bytes_per_s
        return given or network_figure(self.hardware, self.market.network).bytes_per_s

    @property
    def between_bytes_per_s(self) -> float:
        """Bytes per second of collectives between machines, each way: of the RDMA network if used,
        else of the NIC."""
        fast = self.hardware.rdma_bytes_per_s
        if self.uses_rdma and fast and not self.market.bandwidth_bytes_per_s:
            return fast
        return self.nic_bytes_per_s

    @property
    def flow_bytes_per_s(self) -> float:
        """Maximum bytes per second of one connection between machines; infinite if unknown."""
        return flow_limit_bytes_per_s(self.hardware)

    @property
    def fabric(self) -> Fabric | None:
        """Links between the devices of a machine; None for one device or unknown links (through the host)."""
        return self.hardware.fabric

    @property
    def uses_rdma(self) -> bool:
        """Whether transfers between machines use RDMA: as requested, or by default if machines support it."""
        asked = self.market.rdma if self.rdma is None else self.rdma
        return bool(self.hardware.rdma) if asked is None else asked

    @property
    def missing_rdma_reason(self) -> str:
        """Explains why requested RDMA is not available, with a remedy; empty string if it is."""
        market = self.market if self.rdma is None else replace(self.market, rdma=self.rdma)
        return market.missing_rdma_reason(self.hardware)

    @property
    def is_parsed_by_host(self) -> bool:
        """Whether host processors parse messages; otherwise the device itself parses them."""
        return self.hardware.device.kind == "gpu"

    def machine_index(self, worker: int) -> int:
        """Index of the machine that holds a worker."""
        return worker // self.devices


@dataclass(frozen=True, slots=True)
class Plan:
    """A model on machines: `workers` counts devices, `workers_per_machine` of them on each `machine`. `batch`
    is the micro-batch of a worker; it processes `accumulate` micro-batches before gradients are exchanged.
    `recompute` selects the activations that the backward pass recomputes instead of reading saved ones."""

    model: str
    batch: int
    machine: str
    workers: int
    exchange: Exchange
    precision: Precision = FP32
    mesh: Mesh = WHOLE
    workers_per_machine: int = 1
    accumulate: int = 1
    recompute: Recompute = "none"

    @property
    def replicas(self) -> int:
        """Number of copies of the model."""
        return self.workers // self.mesh.size

    @property
    def samples_per_step(self) -> int:
        """Samples that one replica processes per optimizer step. Ranks that share layers share samples."""
        return self.batch * self.accumulate * self.mesh.concurrent_micro_batches

    @property
    def machines(self) -> int:
        """Number of machines that hold workers."""
        return -(-self.workers // self.workers_per_machine)

    @property
    def key(self) -> str:
        """Unique name of the plan; it breaks ties and seeds the simulation."""
        return (
            f"{self.model}/{self.batch}/{self.machine}/{self.workers:05d}/{self.exchange.key}{self.mesh.key}"
            f"{'' if self.precision == FP32 else '/' + self.precision.name}"
            f"{f'/acc{self.accumulate}' if self.accumulate > 1 else ''}"
            f"{'' if self.recompute == 'none' else '/ckpt-' + self.recompute}"
        )

    def simulation_seed(self, seed: int) -> int:
        """Seed of this plan's simulations; it does not depend on which plans are scored before."""
        digest = hashlib.blake2b(f"{seed}/{self.key}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1

    def site(self, market: Market, seed: int = 0) -> Site:
        """Site of the plan: the workers' machines on a market."""
        return Site(market.find_machine(self.machine), self.workers, market, self.mesh, seed=seed)

    def rented(self, market: Market) -> tuple[Rented, ...]:
        """All machines that the plan pays for, the workers' machines first."""
        return (Rented("workers", self.machine, self.machines), *self.exchange.rented(self.site(market)))

    @property
    def compute_text(self) -> str:
        """Text such as `bf16, full recompute, 8 micro-batches of 4`; empty for plain fp32."""
        said = [] if self.precision == FP32 else [self.precision.name]
        if self.recompute != "none":
            said.append(f"{self.recompute} recompute")
        if self.accumulate > 1:
            said.append(f"{self.accumulate} micro-batches of {self.batch}")
        return ", ".join(said)

    @property
    def settings_text(self) -> str:
        """Text of precision, recompute and micro-batches, then of the replica's mesh."""
        if not self.mesh.is_sharded:
            return self.compute_text
        return ", ".join(filter(None, (self.compute_text, self.mesh.label + self.mesh.detail_text)))

    def as_dict(self) -> dict[str, Any]:
        """Plan as plain values, for stores; `plan_from_dict` reads it."""
        out = {each.name: getattr(self, each.name) for each in fields(self)}
        return out | {
            "exchange": self.exchange.record(),
            "precision": self.precision.name,
            "mesh": self.mesh.nondefault_settings,
        }

    @property
    def cluster_text(self) -> str:
        """Machines as text, followed by ` alone` for a single device."""
        return self.machines_text + self.exchange.labels().aside

    @property
    def rental_text(self) -> str:
        """Machines to rent as text: `2 x p4d.24xlarge + 1 server on c5n.large`."""
        return f"{self.machines} x {self.machine}{self.exchange.labels().added}"

    @property
    def machines_text(self) -> str:
        """Machines as text: `6 x p3.2xlarge + 2 servers on c5n.large`. Other forms: `1 x p3.8xlarge (4
        workers) + 1 server on the same machines`, `4 x c4.8xlarge (2 replicas of 2) + 1 server on
        c4.8xlarge`."""
        workers = f"{self.machines} x {self.machine}"
        if self.workers_per_machine > 1:
            workers += f" ({self.workers} worker{'s' if self.workers > 1 else ''})"
        if self.mesh.size > 1:
            many = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
            workers += f" ({many} of {self.mesh.size})"
        return workers + self.exchange.labels().added


def plan_from_dict(values: Mapping[str, Any]) -> Plan:
    """Restores a plan from the output of `as_dict`."""
    from planner.parallel.data import EXCHANGES

    chosen = dict(values["exchange"])
    exchange: Any = EXCHANGES[chosen.pop("kind")]
    parts = {"exchange": exchange(**chosen), "mesh": Mesh.of(**values["mesh"])}
    return Plan(**dict(values) | parts | {"precision": find_precision(values["precision"])})


@dataclass(frozen=True, slots=True)
class NetworkFigure:
    """NIC bandwidth used by an answer, its basis, and its source as text."""

    bytes_per_s: float
    basis: Basis
    words: str


def network_figure(hardware: Hardware, network: Network = "baseline") -> NetworkFigure:
    """NIC bandwidth of a machine, baseline or burst as asked; raises BadInput if none is published."""
    if network not in ("baseline", "burst"):
        raise BadInput(f"network is {network!r}; allowed: baseline, burst")
    rate = hardware.nic_bytes_per_s(network)
    if rate is None:
        label = f" (the provider says {hardware.nic_label!r})" if hardware.nic_label else ""
        raise BadInput(
            f"{hardware.name}: no network figure is published{label}; give a bandwidth you measured, "
            "or describe the machine in a file of your own"
        )
    burst, baseline = hardware.nic_burst_bytes_per_s, hardware.nic_baseline_bytes_per_s
    figure = "nic_burst" if baseline is None or (network == "burst" and burst) else "nic_baseline"
    basis = hardware.sources[figure].basis if figure in hardware.sources else "estimated"
    words = f"{hardware.name}: {format_bandwidth(rate)}"
    if burst and baseline and burst > baseline:
        if network == "burst":
            words += f" burst (lasts minutes; baseline {format_bandwidth(baseline)})"
        else:
            words += f" baseline (burst {format_bandwidth(burst)} lasts minutes)"
    return NetworkFigure(rate, basis, f"{words}, {basis}")


def host_cores(hardware: Hardware) -> int | None:
    """Number of cores of a machine's processors; None if unknown. A vCPU is a thread, two per core."""
    if hardware.device.kind == "cpu":
        return hardware.device.cores
    return None if hardware.vcpus is None else max(1, hardware.vcpus // 2)


def flow_limit_bytes_per_s(hardware: Hardware) -> float:
    """Maximum bytes per second of one connection of a machine; infinite if unknown."""
    return hardware.placement_group_flow_bytes_per_s or hardware.flow_bytes_per_s or math.inf
