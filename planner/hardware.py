"""Hardware: one kind of machine, with its devices, NIC, memory and price, each figure with its basis.

These are the nouns only; `planner.catalog` reads them from `hardware/*.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Basis = Literal["measured", "published", "estimated"]
Network = Literal["baseline", "burst"]


@dataclass(frozen=True, slots=True)
class Device:
    """What computes: one accelerator, or all the cores of a CPU machine taken together."""

    name: str
    kind: Literal["gpu", "cpu"]
    fp32_flops: float  # peak, a second
    memory_bytes: float
    memory_bytes_per_s: float | None = None
    cores: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class KernelRates:
    """How fast a device runs each kind of kernel: the compute model that synthesis uses.

    `rates` maps a kernel kind (conv1x1, conv3x3, conv, fc: multiply-adds a second; memory: bytes a second)
    to its rate; `overhead_s` is the fixed cost of one op. `median_error` is that of the fit.
    """

    rates: dict[str, float]
    overhead_s: float
    basis: Basis
    source: str
    median_error: float | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour for one machine."""

    on_demand_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    region: str
    as_of: str
    basis: Basis
    source: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of machine."""

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
    flow_bytes_per_s: float | None
    price: Price
    still_sold: bool
    status: str = ""
    kernels: KernelRates | None = None
    sources: dict[str, str] = field(default_factory=dict)

    def nic_bytes_per_s(self, network: Network) -> float | None:
        """The NIC's rate: what long training gets (baseline) or what lasts for minutes (burst)."""
        if network == "burst":
            return self.nic_burst_bytes_per_s or self.nic_baseline_bytes_per_s
        return self.nic_baseline_bytes_per_s or self.nic_burst_bytes_per_s
