"""`calibrate compute`: the constants of computation of this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.calibrate.accelerator import Progress, measured_source, own_machine_tables
from planner.device.rates.times import FITTED_KINDS, FULLY_CONNECTED
from planner.errors import PlannerError
from planner.model.layers.base import MEMORY

_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)
_MOST_COUNTS = 16
_DEFAULT_CACHE_BYTES = 8 * 2**20
_TIMEOUT_S = 110
_FLOP_PER_CYCLE = (("avx512f", 64.0), ("fma", 32.0), ("avx", 16.0))  # by instruction set


@dataclass(frozen=True)
class ComputeCalibration:
    """Measured constants, named as in `planner.servers.partition.layers`, and figures of the CPU."""

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

    def calibration_table(self) -> dict[str, Any]:
        """`[calibration]` table of a hardware file, with these constants in seconds."""
        names = ("muladd_s", "muladd_out_of_cache_s", "act_s", "err_s", "cache_bytes")
        curves = ("interference", "interference_out_of_cache")
        return {
            **{name: float(getattr(self, name)) for name in names},
            **{name: list(getattr(self, name)) for name in curves},
            "muladd_matrix_s": self.matrix_s,
            "muladd_matrix_out_of_cache_s": self.matrix_out_of_cache_s,
        }


def calibrate_compute(progress: Progress | None = None) -> ComputeCalibration:
    """Measures the canonical computations on this CPU, with one thread up to one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cache, counts = _cache_bytes(), _thread_counts(cores)
    seconds = _run_canonical_program(cache, counts, progress)
    most = counts[-1]
    mhz, flags = _cpuinfo_value("cpu MHz"), _cpuinfo_value("flags").split()

    def slowdown_curve(name: str) -> tuple[float, ...]:
        """Slowdown of an operation relative to one thread, by number of threads."""
        return _interpolate_slowdowns(
            {count: seconds[name, count] / seconds[name, 1] for count in counts}, cores
        )

    return ComputeCalibration(
        cpu=cpu_name(),
        cores=cores,
        clock_ghz=round(float(mhz) / 1000, 3) if mhz else 2.0,
        flop_per_cycle=next((flop for flag, flop in _FLOP_PER_CYCLE if flag in flags), 8.0),
        memory_gib=_memory_gib(),
        cache_bytes=cache,
        muladd_s=seconds["muladd", 1],
        muladd_out_of_cache_s=seconds["muladd_out_of_cache", 1],
        interference=slowdown_curve("muladd"),
        interference_out_of_cache=slowdown_curve("muladd_out_of_cache"),
        act_s=seconds["act", 1],
        err_s=seconds["err", 1],
        matrix_s=seconds["matrix", most],
        matrix_out_of_cache_s=seconds["matrix_out_of_cache", most],
        copy_bytes_per_s=2 * most / seconds["copy", most],  # a byte copied is read and written
    )


def _run_canonical_program(
    cache: int, counts: list[int], progress: Progress | None
) -> dict[tuple[str, int], float]:
    """Runs canonical.py in a subprocess; returns seconds per operation by (operation, threads)."""
    script = Path(__file__).with_name("canonical.py")
    command = [sys.executable, str(script), str(cache), ",".join(map(str, counts))]
    seconds: dict[tuple[str, int], float] = {}
    total = 1
    with subprocess.Popen(
        command, env={**os.environ, **_ONE_THREAD}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in map(json.loads, process.stdout):
            if "measurements" in line:
                total = line["measurements"]
                continue
            seconds[line["name"], line["threads"]] = line["seconds"]
            if progress:
                progress(len(seconds), total, f"{line['name']}, {line['threads']} threads")
        error = process.stderr.read() if process.stderr else ""
        if process.wait(_TIMEOUT_S):
            raise PlannerError(f"the canonical computations failed: {error.strip().splitlines()[-1:]}")
    return seconds


def hardware_tables(
    measured: ComputeCalibration, name: str, usd_per_hour: float | None = None
) -> dict[str, Any]:
    """Hardware-file tables of a measured CPU machine (docs/hardware.md)."""
    source = measured_source("planner calibrate compute")
    machine = {
        "cores": measured.cores,
        "cpu": measured.cpu,
        "memory_gib": measured.memory_gib,
        "calibration": measured.calibration_table(),
    }
    device = {
        "kind": "cpu",
        "clock_ghz": measured.clock_ghz,
        "fp32_flop_per_cycle": measured.flop_per_cycle,
        "memory_gbyte_per_s": measured.copy_bytes_per_s / 1e9,
    }
    rates = {
        **dict.fromkeys(FITTED_KINDS, measured.cores / measured.matrix_s),
        FULLY_CONNECTED: measured.cores / measured.matrix_out_of_cache_s,
        MEMORY: measured.copy_bytes_per_s,
    }
    kernels = {f"{name}-cpu": {"rates": rates, "overhead_s": 2e-5, **source}}
    return {**own_machine_tables(name, machine, device, source, usd_per_hour), "kernels": kernels}


def _thread_counts(cores: int) -> list[int]:
    """Thread counts to measure: every count up to 16 cores, about a dozen on larger machines."""
    if cores <= _MOST_COUNTS:
        return list(range(1, cores + 1))
    return sorted({1, 2, 4, cores, *(round(cores * k / 8) for k in range(1, 8))})


def _interpolate_slowdowns(measured: dict[int, float], cores: int) -> tuple[float, ...]:
    """Slowdown relative to one thread for 1 to `cores` threads, interpolated between measured counts."""
    import numpy as np

    values = np.interp(np.arange(1, cores + 1), list(measured), list(measured.values()))
    return tuple(round(float(value), 4) for value in np.maximum.accumulate(np.maximum(values, 1.0)))


def _cache_bytes() -> int:
    """Size of the last-level cache on all sockets in bytes; 8 MiB if unknown."""
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


def _cpuinfo_value(key: str) -> str:
    """Value of a key in /proc/cpuinfo; empty string if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[::2] for line in lines)
    return next((value.strip() for name, value in named if name.strip() == key), "")


def cpu_name() -> str:
    """Model name of this machine's CPU."""
    return _cpuinfo_value("model name") or platform.processor() or platform.machine()


def _memory_gib() -> float:
    """Memory of this machine in GiB; 1.0 if unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (ValueError, OSError):
        return 1.0
