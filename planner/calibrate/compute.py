"""`calibrate compute`: the constants of computation of this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.calibrate.accelerator import measured_source, own_machine
from planner.device.rates.times import FITTED_KINDS, FULLY_CONNECTED
from planner.errors import PlannerError
from planner.model.layers import workload

Progress = Callable[[int, int, str], None]
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)
_MOST_COUNTS = 16
_DEFAULT_CACHE_BYTES = 8 * 2**20
_TIMEOUT_S = 110


@dataclass(frozen=True)
class ComputeCalibration:
    """What was measured, by the names of `planner.servers.partition.layers`, and what the machine says of
    itself."""

    cpu: str
    cores: int
    clock_ghz: float
    flop_per_cycle: float
    memory_gib: float
    cache_bytes: int
    muladd_s: float
    muladd_out_of_cache_s: float
    interference: tuple[float, ...]
    interference_out_of_cache: tuple[float, ...]
    act_s: float
    err_s: float
    matrix_s: float  # one multiply-add of a matrix-matrix product, all cores busy, each on its own
    matrix_out_of_cache_s: float
    copy_bytes_per_s: float  # read and written, all cores

    def calibration(self) -> dict[str, Any]:
        return {
            "muladd_s": self.muladd_s,
            "muladd_out_of_cache_s": self.muladd_out_of_cache_s,
            "act_s": self.act_s,
            "err_s": self.err_s,
            "cache_bytes": float(self.cache_bytes),
            "interference": list(self.interference),
            "interference_out_of_cache": list(self.interference_out_of_cache),
            "muladd_matrix_s": self.matrix_s,
            "muladd_matrix_out_of_cache_s": self.matrix_out_of_cache_s,
        }


def calibrate_compute(progress: Progress | None = None) -> ComputeCalibration:
    """Run the canonical computations on this machine, from one thread to one a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cache = _cache_bytes()
    counts = _thread_counts(cores)
    script = Path(__file__).with_name("canonical.py")
    command = [sys.executable, str(script), str(cache), ",".join(map(str, counts))]
    seconds: dict[tuple[str, int], float] = {}
    total = 1
    with subprocess.Popen(
        command, env={**os.environ, **_ONE_THREAD}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if "measurements" in said:
                total = said["measurements"]
                continue
            seconds[said["name"], said["threads"]] = said["seconds"]
            if progress:
                progress(len(seconds), total, f"{said['name']}, {said['threads']} threads")
        error = process.stderr.read() if process.stderr else ""
        if process.wait(_TIMEOUT_S):
            raise PlannerError(f"the canonical computations failed: {error.strip().splitlines()[-1:]}")
    first, one_out = seconds["muladd", 1], seconds["muladd_out_of_cache", 1]
    most = counts[-1]
    return ComputeCalibration(
        cpu=cpu_name(),
        cores=cores,
        clock_ghz=_clock_ghz(),
        flop_per_cycle=_flop_per_cycle(),
        memory_gib=_memory_gib(),
        cache_bytes=cache,
        muladd_s=first,
        muladd_out_of_cache_s=one_out,
        interference=_curve({n: seconds["muladd", n] / first for n in counts}, cores),
        interference_out_of_cache=_curve(
            {n: seconds["muladd_out_of_cache", n] / one_out for n in counts}, cores
        ),
        act_s=seconds["act", 1],
        err_s=seconds["err", 1],
        matrix_s=seconds["matrix", most],
        matrix_out_of_cache_s=seconds["matrix_out_of_cache", most],
        copy_bytes_per_s=2 * most / seconds["copy", most],  # a byte copied is read and written
    )


def hardware_tables(
    found: ComputeCalibration, name: str, usd_per_hour: float | None = None
) -> dict[str, Any]:
    """The measurements as the tables of a hardware file (docs/hardware.md)."""
    source = measured_source("planner calibrate compute")
    conv = found.cores / found.matrix_s
    machine = {
        "cores": found.cores,
        "cpu": found.cpu,
        "memory_gib": found.memory_gib,
        "calibration": found.calibration(),
    }
    device = {
        "kind": "cpu",
        "clock_ghz": found.clock_ghz,
        "fp32_flop_per_cycle": found.flop_per_cycle,
        "memory_gbyte_per_s": found.copy_bytes_per_s / 1e9,
    }
    rates = {
        **dict.fromkeys(FITTED_KINDS, conv),
        FULLY_CONNECTED: found.cores / found.matrix_out_of_cache_s,
        workload.MEMORY: found.copy_bytes_per_s,
    }
    kernels = {f"{name}-cpu": {"rates": rates, "overhead_s": 2e-5, **source}}
    return {**own_machine(name, machine, device, source, usd_per_hour), "kernels": kernels}


def _thread_counts(cores: int) -> list[int]:
    if cores <= _MOST_COUNTS:
        return list(range(1, cores + 1))
    return sorted({1, 2, 4, cores, *(round(cores * k / 8) for k in range(1, 8))})


def _curve(known: dict[int, float], cores: int) -> tuple[float, ...]:
    """A figure for every number of threads, straight between those measured, never below one thread's."""
    import numpy as np

    values = np.interp(np.arange(1, cores + 1), list(known), list(known.values()))
    return tuple(round(float(value), 4) for value in np.maximum.accumulate(np.maximum(values, 1.0)))


def _cache_bytes() -> int:
    """The last level of cache, of all sockets."""
    try:
        folder = Path("/sys/devices/system/cpu/cpu0/cache")
        level = max(folder.glob("index*"), key=lambda path: int((path / "level").read_text()))
        text = (level / "size").read_text().strip()
        size = int(text[:-1]) * {"K": 2**10, "M": 2**20}[text[-1]]
        sockets = {
            path.read_text().strip()
            for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
        }
        return size * max(1, len(sockets))
    except (OSError, ValueError, KeyError):
        return _DEFAULT_CACHE_BYTES


def _cpuinfo(key: str) -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


def cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _clock_ghz() -> float:
    text = _cpuinfo("cpu MHz")
    return round(float(text) / 1000, 3) if text else 2.0


def _flop_per_cycle() -> float:
    """Single precision, by the widest instructions that the CPU names."""
    flags = set(_cpuinfo("flags").split())
    if "avx512f" in flags:
        return 64.0
    if "fma" in flags:
        return 32.0
    return 16.0 if "avx" in flags else 8.0


def _memory_gib() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (ValueError, OSError):
        return 1.0
