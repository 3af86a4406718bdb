"""The constants of the per-layer cost model (Yan et al., KDD 2015, section 4) for one kind of machine.

They stand in the `[calibration]` table of a hardware file, where `planner calibrate compute` and
`planner calibrate network` write them; docs/partition.md explains each. A machine without them gets estimates
from its kernel rates or its peak, and says so in `basis`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.errors import BadInput
from planner.hardware import Hardware, Network
from planner.model.layers import workload

_LATENCY_S = 50e-6  # one small TCP message between two machines, kernel network stack; estimated
_SHARE_OF_PEAK = 0.3  # what trained kernels reach of a device's peak where nothing better is known; estimated
_BYTES_PER_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class PaperConstants:
    """Symbols of the paper, by thread where the paper writes them as functions of H (index H - 1)."""

    muladd_s: float  # C_muladd, one thread, working set in cache
    muladd_out_of_cache_s: float  # C_muladd, one thread, working set in memory
    act_s: float  # C_act
    err_s: float  # C_err
    cache_bytes: float  # last-level cache of the machine
    interference: tuple[float, ...]  # C_interf(H), working set in cache
    interference_out_of_cache: tuple[float, ...]  # C_interf(H), working set in memory
    latency_s: tuple[float, ...]  # C_ncost(H)
    nic_bytes_per_s: float  # C_nbw
    parse_s_per_byte: float = 0.0  # of what is received from a server
    parse_s: float = 0.0  # of each tensor received
    server_nic_bytes_per_s: float | None = None  # where workers share a machine's NIC, and servers do not
    basis: str = ""

    @property
    def threads(self) -> int:
        """Constraint C2: at most one thread a core."""
        return len(self.interference)

    def muladd(self, working_set_bytes: float, threads: int) -> float:
        """Seconds of one multiply-add with so many threads at work: the part of the working set that fits in
        cache at the rate in cache, the rest at the rate out of it."""
        inside = min(1.0, self.cache_bytes / working_set_bytes) if working_set_bytes > 0 else 1.0
        cached = self.muladd_s * self.interference[threads - 1]
        streamed = self.muladd_out_of_cache_s * self.interference_out_of_cache[threads - 1]
        return inside * cached + (1.0 - inside) * max(cached, streamed)


def constants_for(
    hardware: Hardware, network: Network = "baseline", *, bandwidth_bytes_per_s: float | None = None
) -> PaperConstants:
    """The constants of a machine: calibrated ones where its file has them, estimates elsewhere.
    `bandwidth_bytes_per_s` replaces its NIC."""
    nic = bandwidth_bytes_per_s or hardware.nic_bytes_per_s(network)
    if nic is None:
        raise BadInput(
            f"the network of {hardware.name} is not known; measure it with `planner calibrate network HOST`"
        )
    given = dict(hardware.calibration)
    threads = _threads(hardware)
    estimated = [key for key in ("muladd_s", "latency_s") if key not in given]
    muladd = _number(hardware, "muladd_s", _estimated_muladd_s(hardware, threads))
    memory = hardware.device.memory_bytes_per_s
    stream = threads * _BYTES_PER_WEIGHT / memory if memory and hardware.device.kind == "cpu" else muladd
    return PaperConstants(
        muladd_s=muladd,
        muladd_out_of_cache_s=_number(hardware, "muladd_out_of_cache_s", max(muladd, stream)),
        act_s=_number(hardware, "act_s", 10 * muladd),
        err_s=_number(hardware, "err_s", 2 * muladd),
        cache_bytes=_number(hardware, "cache_bytes", math.inf),
        interference=_by_thread(hardware, "interference", threads),
        interference_out_of_cache=_by_thread(hardware, "interference_out_of_cache", threads),
        latency_s=_by_thread(hardware, "latency_s", threads, _LATENCY_S),
        nic_bytes_per_s=nic,
        parse_s_per_byte=_number(hardware, "parse_s_per_byte", 0.0),
        parse_s=_number(hardware, "parse_s", 0.0),
        basis=f"estimated: {', '.join(estimated)}" if estimated else f"from the file of {hardware.name}",
    )


def _threads(hardware: Hardware) -> int:
    curve = hardware.calibration.get("interference")
    if isinstance(curve, tuple):
        return len(curve)
    return (hardware.device.cores or 1) if hardware.device.kind == "cpu" else 1


def _estimated_muladd_s(hardware: Hardware, threads: int) -> float:
    rates = hardware.kernels.rates if hardware.kernels else {}
    rate = rates.get(workload.CONV) or _SHARE_OF_PEAK * hardware.device.fp32_flops / 2
    return threads / rate


def _number(hardware: Hardware, key: str, default: float) -> float:
    value = hardware.calibration.get(key, default)
    if isinstance(value, tuple) or not value >= 0 or (key == "muladd_s" and value == 0):
        raise BadInput(f"calibration of {hardware.name}: {key} must be one number, zero or above")
    return float(value)


def _by_thread(hardware: Hardware, key: str, threads: int, default: float = 1.0) -> tuple[float, ...]:
    """A figure for each number of threads; one number stands for all."""
    value = hardware.calibration.get(key, default)
    values = value if isinstance(value, tuple) else (float(value),) * threads
    if len(values) != threads or any(not (math.isfinite(v) and v >= 0) for v in values):
        raise BadInput(
            f"calibration of {hardware.name}: {key} needs one number or one for each of {threads} threads"
        )
    return values
