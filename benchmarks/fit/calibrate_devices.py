"""Writes hardware/kernels.toml: kernel rates of every device of the catalog, fitted or estimated.

    python benchmarks/fit/calibrate_devices.py          prints the fit
    python benchmarks/fit/calibrate_devices.py --write  also writes hardware/kernels.toml

Four GPUs are fitted to published training throughputs (calibration.py), the A100 by one number more: how much
faster matrix kernels run in TF32 than in plain single precision. Other GPUs get the V100's share of their own
peaks. CPUs get the shares that MXNet with MKL reaches forward on c4, divided by what TensorFlow with MKL
loses against that in training.
"""

from __future__ import annotations

import csv
import sys
import tomllib
from dataclasses import dataclass
from datetime import date

import numpy as np
from calibration import (
    FITTED,
    HARDWARE,
    KINDS,
    MEMORY,
    OVERHEAD,
    PEAKS,
    PUBLISHED,
    Array,
    Fit,
    Row,
    errors,
    fit,
    peak_costs,
    read_rows,
    step_costs,
)
from scipy.optimize import least_squares, minimize_scalar

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model

SHARE_OF = "V100-SXM2-16GB"
CPU, CPU_GHZ, CPU_FLOP_PER_CYCLE = "Xeon-E5-2666v3", 2.9, 32
R4_GHZ, R4_CORES = 2.3, 32  # r4.16xlarge: 2 x E5-2686 v4
SSE_OF_MKL = (
    4.3 * 4
) / 20.8  # share of their own peaks: r4.16xlarge, SSE3 build (a quarter of the peak), MKL

HEADER = """\
# How fast devices run each kind of kernel: written by benchmarks/fit/calibrate_devices.py, explained in
# docs/compute.md. One table a device:
#
#   [kernels.DEVICE]
#   rates = { conv1x1 = 1e12, conv3x3 = 2e12, conv = 1e12, fc = 5e11, memory = 4e11 }   MACs/s; bytes/s
#   overhead_s = 50e-6       fixed cost of one op
#   per_core = true          a CPU's rates are those of one core and are multiplied by a machine's cores
#   basis = "estimated"      with source, as_of and the fit's median_error
#
# or, for a device that computes like another: like = "OTHER DEVICE", scale = 0.9.
# Rates above half the peak FLOP/s stand in conv3x3 where the library uses Winograd's algorithm.
"""


@dataclass(frozen=True)
class Entry:
    """One table of kernels.toml."""

    device: str
    costs: Array
    basis: str
    source: str
    median_error: float | None = None
    per_core: bool = False

    def toml(self) -> str:
        rates = ", ".join(f"{kind} = {1 / cost:.3e}" for kind, cost in zip(KINDS, self.costs, strict=False))
        lines = [
            f"[kernels.{self.device}]",
            f"rates = {{ {rates} }}",
            f"overhead_s = {self.costs[OVERHEAD]:.3e}",
        ]
        if self.per_core:
            lines.append("per_core = true")
        lines += [f'basis = "{self.basis}"', f'source = "{self.source}"', f'as_of = "{date.today()}"']
        if self.median_error is not None:
            lines.append(f"median_error = {self.median_error:.3f}")
        return "\n".join(lines) + "\n"


def fitted_gpus(fitted: Fit, rows: list[Row]) -> list[Entry]:
    out = []
    for device in FITTED:
        mine = [row for row in rows if row.same_device == device]
        frameworks = " and ".join(sorted({row.framework for row in mine}))
        source = (
            f"fit to {len(mine)} published training throughputs ({frameworks}); as TensorFlow 1.12 to 2.2"
        )
        out.append(
            Entry(
                device, fitted.costs[device], "published", source, float(np.median(abs(errors(fitted, mine))))
            )
        )
    return out


def tf32_speedup(shares: Array, rows: list[Row]) -> tuple[float, float]:
    """How much faster matrix kernels run with TF32 on A100, and the median error with it."""
    rows = [row for row in rows if row.precision == "tf32" and row.framework == "TensorFlow 1.15"]

    def log_errors(log_speedup: float) -> Array:
        return np.array([_log_error(row, shares, float(np.exp(log_speedup))) for row in rows])

    best = minimize_scalar(lambda s: float((log_errors(s) ** 2).sum()), bounds=(0.0, 3.0), method="bounded").x
    return float(np.exp(best)), float(np.median(abs(np.exp(log_errors(best)) - 1)))


def _log_error(row: Row, shares: Array, speedup: float) -> float:
    costs = _with_speedup(peak_costs(*PEAKS[row.same_device]) * shares, speedup)
    return float(
        np.log(row.batch / (step_costs(load_model(row.model), row.batch) @ costs) / row.images_per_s)
    )


def _with_speedup(costs: Array, speedup: float) -> Array:
    faster = costs.copy()
    faster[:MEMORY] /= speedup
    return faster


def other_gpus(fitted: Fit, rows: list[Row]) -> list[Entry]:
    shares = fitted.costs[SHARE_OF] / peak_costs(*PEAKS[SHARE_OF])
    speedup, error = tf32_speedup(shares, rows)
    print(f"TF32 on A100 speeds matrix kernels up by {speedup:.2f}; median error {error:.1%}")
    out = []
    for device, entry in tomllib.loads((HARDWARE / "devices.toml").read_text())["devices"].items():
        if entry["kind"] != "gpu" or device in FITTED:
            continue
        costs = peak_costs(*PEAKS[device]) * shares
        if device.startswith("A100"):
            source = (
                f"the V100's share of its peaks, matrix kernels x {speedup:.2f}: TF32, fit to 6 throughputs"
            )
            out.append(Entry(device, _with_speedup(costs, speedup), "estimated", source, error))
        else:
            source = f"no data: the share of its peaks that {SHARE_OF} reaches"
            out.append(Entry(device, costs, "estimated", source))
    return out


def cpu_shares() -> tuple[Array, float]:
    """Costs of one c4 core running MXNet with MKL forward, and the median error of that fit."""
    with (PUBLISHED / "throughput_cpu.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["training"] == "no"]
    asked = np.array(
        [step_costs(load_model(row["model"]), int(row["batch"]), training=False) for row in rows]
    )
    measured = np.log([int(row["batch"]) / float(row["images_per_s"]) for row in rows])
    cores = np.array([load_hardware(row["machine"]).device.cores or 1 for row in rows])
    peak = peak_costs(CPU_GHZ * 1e9 * CPU_FLOP_PER_CYCLE, 4e9)
    prior = -np.log([0.6, 1.0, 0.5, 0.5, 1.0, 1.0])
    lowest = np.append(-np.log([0.95, 4.0, 0.95, 0.95, 2.5]), -np.inf)

    def log_error(logs: Array) -> Array:
        costs = peak * np.exp(logs)
        step_s = asked[:, :OVERHEAD] @ costs[:OVERHEAD] / cores + asked[:, OVERHEAD] * costs[OVERHEAD]
        return np.asarray(np.log(step_s) - measured)

    best = least_squares(
        lambda logs: np.concatenate([log_error(logs) / 0.1, (logs - prior) / 0.7]),
        prior,
        bounds=(lowest, np.inf),
    ).x
    return peak * np.exp(best), float(np.median(abs(np.exp(-log_error(best)) - 1)))


def training_loss(core: Array) -> float:
    """How much slower TensorFlow with MKL trains than those rates say: 20.8 images/s with Inception-v3, batch
    32, on r4.16xlarge."""
    costs = core.copy()
    costs[:OVERHEAD] /= R4_CORES * R4_GHZ / CPU_GHZ
    return 32 / float(step_costs(load_model("inception3"), 32) @ costs) / 20.8


def cpus() -> list[Entry]:
    core, error = cpu_shares()
    loss = training_loss(core)
    print(
        f"c4 forward with MKL: median error {error:.1%}; TensorFlow with MKL trains {loss:.2f} times slower"
    )
    core = core * loss
    source = f"89 forward rates of MXNet with MKL on c4; TensorFlow with MKL trains {loss:.2f} times slower"
    out = [Entry(CPU, core, "estimated", source, error, per_core=True)]
    for device, entry in tomllib.loads((HARDWARE / "devices.toml").read_text())["devices"].items():
        if entry["kind"] != "cpu" or device == CPU:
            continue
        speed = entry["clock_ghz"] * entry["fp32_flop_per_cycle"] / (CPU_GHZ * CPU_FLOP_PER_CYCLE)
        costs = core.copy()
        source = f"no data: the share of its peak that {CPU} reaches"
        if device.startswith("Opteron"):
            speed *= SSE_OF_MKL
            costs[MEMORY] = 4 / 10e9 * loss  # 4 cores share about 10 GB/s
            source += ", less what an SSE3 build of TensorFlow loses; memory: 10 GB/s over 4 cores"
        costs[:MEMORY] /= speed
        out.append(Entry(device, costs, "estimated", source, per_core=True))
    return out


def main() -> None:
    rows = read_rows()
    used = [row for row in rows if row.role == "fit"]
    fitted = fit(used)
    for device in FITTED:
        share = peak_costs(*PEAKS[device]) / fitted.costs[device]
        shares = ", ".join(f"{kind} {value:.2f}" for kind, value in zip(KINDS, share, strict=False))
        print(f"{device:16} share of peak: {shares}; overhead {fitted.costs[device][OVERHEAD] * 1e6:.0f} us")
    print("time factors:", ", ".join(f"{name} {factor:.3f}" for name, factor in fitted.factors.items()))
    wrong = abs(errors(fitted, used))
    print(f"{len(used)} rows: median error {np.median(wrong):.1%}, worst {wrong.max():.1%}")
    entries = fitted_gpus(fitted, used) + other_gpus(fitted, rows) + cpus()
    if "--write" in sys.argv[1:]:
        path = HARDWARE / "kernels.toml"
        path.write_text(HEADER + "\n" + "\n".join(entry.toml() for entry in entries))
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
