"""Writes hardware/kernels.toml: kernel rates of every device of the catalog, fitted or estimated.

    python benchmarks/fit/calibrate_devices.py          prints the fit
    python benchmarks/fit/calibrate_devices.py --write  also writes hardware/kernels.toml

Four GPUs are fitted to published training throughputs, the A100 by one number more: how much faster matrix
kernels run in TF32 than in plain single precision. Other GPUs get the V100's share of their own peaks. CPUs
get the shares that MXNet with MKL reaches forward on c4, divided by what TensorFlow with MKL loses against
that in training.

Symbols of the fit. theta[d] are the six costs of device d (seconds for a multiply-add of each kernel kind,
for a byte, and for an op); x[r] what the step of row r asks of a device (`step_costs`), so that its predicted
time is phi[f] * x[r] . theta[d], with one factor phi for each framework f (a name and the era of its cuDNN)
and nothing for a model. Rates are expressed as a share of the device's peak; the shares of all devices
scatter around a common mean m, which carries knowledge to devices with few rows:

    minimise  sum_r w[r] (log predicted - log measured)^2 / 0.05^2
            + sum_d |log theta[d] - m|^2 / 0.25^2  +  |m - prior|^2 / 0.7^2  +  sum_f (log phi[f])^2 / 0.2^2

within physical bounds: no kind above the peak, except Winograd's, which saves up to a factor of 4 of the
multiplications. Rows of one (device, framework, model) share a weight, so that nine batches of one model do
not outvote nine models.
"""

from __future__ import annotations

import csv
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares, minimize_scalar

from planner.device.rates.times import FITTED_KINDS as KINDS
from planner.device.rates.times import step_times
from planner.hardware import KernelRates
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model

MEMORY = KINDS.index("memory")
OVERHEAD = len(KINDS)
COSTS = len(KINDS) + 1


@lru_cache(maxsize=4096)
def step_costs(model: Model, batch: int, training: bool = True) -> npt.NDArray[np.float64]:
    """Seconds of a whole step for one second of each cost, the update included."""
    out = np.empty(COSTS)
    for cost in range(COSTS):
        rates = {kind: 1.0 if at == cost else np.inf for at, kind in enumerate(KINDS)}
        unit = KernelRates(rates, float(cost == OVERHEAD), "estimated", "one cost at a time")
        out[cost] = step_times(model, batch, unit, training=training).step_s
    out.flags.writeable = False
    return out


DATA = Path(__file__).parent
PUBLISHED = Path(__file__).parents[2] / "planner" / "validation" / "data"
HARDWARE = Path(__file__).parents[2] / "hardware"
REFERENCE = "TensorFlow 2.2"  # its factor is 1: TensorFlow since 1.12, with cuDNN 7
ASSUMED_BATCH = 64  # where a source does not tell
FITTED = ("V100-SXM2-16GB", "P100-SXM2-16GB", "K80-1GPU", "M60-1GPU")
# Cards that differ from a catalog device in memory size, clock by a few percent or cooling count as that.
SAME_DEVICE = {
    "V100-SXM3-32GB": "V100-SXM2-16GB",
    "P100-PCIe-16GB": "P100-SXM2-16GB",
    "A100-PCIe-40GB": "A100-SXM4-40GB",
}
NO_TF32 = "A100-SXM4-40GB without TF32"
MOST_OF_PEAK = {"conv1x1": 0.95, "conv3x3": 4.0, "conv": 0.95, "fc": 0.95, "memory": 0.95}
PRIOR_SHARE = {"conv1x1": 0.7, "conv3x3": 1.7, "conv": 0.6, "fc": 0.7, "memory": 0.7}
PRIOR_OVERHEAD_S = 40e-6
ROW_SIGMA, DEVICE_SIGMA, MEAN_SIGMA, FRAMEWORK_SIGMA = 0.05, 0.25, 0.7, 0.2

Array = npt.NDArray[np.float64]


def _peaks() -> dict[str, tuple[float, float]]:
    """Single-precision FLOP/s and memory bytes/s of every GPU in the catalog and in other_devices.toml."""
    peaks = {}
    for path in (HARDWARE / "devices.toml", DATA / "other_devices.toml"):
        for name, device in tomllib.loads(path.read_text())["devices"].items():
            if device["kind"] == "gpu":
                fp32 = device["tflops"]["fp32"] if "tflops" in device else device["fp32_tflops"]
                peaks[name] = (fp32 * 1e12, device["memory_gbyte_per_s"] * 1e9)
    return peaks


PEAKS = _peaks()


@dataclass(frozen=True)
class Row:
    """One published training throughput."""

    model: str
    batch: int
    device: str
    framework: str
    precision: str
    images_per_s: float
    role: str  # fit: used and judged; check: listed only; forward: a forward pass, listed only
    source: str
    note: str
    batch_known: bool

    @property
    def same_device(self) -> str:
        """Whose costs apply. The catalog's A100 computes in TF32, as frameworks do unless told not to."""
        device = SAME_DEVICE.get(self.device, self.device)
        return NO_TF32 if device.startswith("A100") and self.precision == "fp32" else device


@dataclass(frozen=True)
class Fit:
    """Costs of each device and a factor on time for each framework."""

    costs: dict[str, Array]
    factors: dict[str, float]

    def images_per_s(self, row: Row) -> float:
        factor = self.factors.get(row.framework, 1.0)
        asked = step_costs(load_model(row.model), row.batch, training=row.role != "forward")
        return row.batch / float(asked @ self.costs[row.same_device] * factor)


def read_rows(path: Path = PUBLISHED / "throughput.csv") -> list[Row]:
    with path.open(newline="") as file:
        return [
            Row(
                model=row["model"],
                batch=int(row["batch"] or ASSUMED_BATCH),
                device=row["device"],
                framework=row["framework"],
                precision=row["precision"],
                images_per_s=float(row["images_per_s"]),
                role=row["role"],
                source=row["source"],
                note=row["note"],
                batch_known=bool(row["batch"]),
            )
            for row in csv.DictReader(file)
        ]


def peak_costs(flops: float, memory_bytes_per_s: float) -> Array:
    """Costs of a device that reached its peak in everything; the overhead is the prior's."""
    return np.array([2 / flops] * (len(KINDS) - 1) + [1 / memory_bytes_per_s, PRIOR_OVERHEAD_S])


def fit(rows: Sequence[Row]) -> Fit:
    """Least squares over the logarithms of all costs, their mean, and the framework factors."""
    devices, frameworks = list(FITTED), sorted({row.framework for row in rows})
    asked = np.array([step_costs(load_model(row.model), row.batch) for row in rows])
    measured = np.log([row.batch / row.images_per_s for row in rows])
    device = np.array([devices.index(row.same_device) for row in rows])
    framework = np.array([frameworks.index(row.framework) for row in rows])
    group = Counter((row.device, row.framework, row.model) for row in rows)
    weight = (
        np.array([1.5 / np.sqrt(group[row.device, row.framework, row.model]) for row in rows]) / ROW_SIGMA
    )
    peak = np.array([peak_costs(*PEAKS[name]) for name in devices])
    prior = np.array([*(-np.log(PRIOR_SHARE[kind]) for kind in KINDS), 0.0])
    lowest = np.array([*(-np.log(MOST_OF_PEAK[kind]) for kind in KINDS), -np.inf])
    split = COSTS * (1 + len(devices))
    reference = frameworks.index(REFERENCE) if REFERENCE in frameworks else 0

    def unpack(values: Array) -> tuple[Array, Array, Array]:
        mean, shares = values[:COSTS], values[COSTS:split].reshape(len(devices), COSTS)
        return mean, shares, values[split:] - values[split + reference]

    def residuals(values: Array) -> Array:
        mean, shares, factor = unpack(values)
        predicted = np.log(np.einsum("rc,rc->r", asked, (peak * np.exp(shares))[device])) + factor[framework]
        return np.concatenate(
            [
                (predicted - measured) * weight,
                (mean - prior) / MEAN_SIGMA,
                (shares - mean).ravel() / DEVICE_SIGMA,
                values[split:] / FRAMEWORK_SIGMA,
            ]
        )

    start = np.concatenate([np.tile(prior, 1 + len(devices)), np.zeros(len(frameworks))])
    floor = np.concatenate([np.tile(lowest, 1 + len(devices)), np.full(len(frameworks), -np.inf)])
    _, shares, factor = unpack(least_squares(residuals, start, bounds=(floor, np.inf)).x)
    return Fit(
        dict(zip(devices, peak * np.exp(shares), strict=True)),
        dict(zip(frameworks, np.exp(factor).tolist(), strict=True)),
    )


def errors(fitted: Fit, rows: Sequence[Row]) -> Array:
    """Relative errors of predicted throughputs."""
    return np.array([fitted.images_per_s(row) / row.images_per_s - 1 for row in rows])


def leave_one_model_out(rows: Sequence[Row]) -> dict[str, Array]:
    """Errors for each model by a fit that has not seen it."""
    out = {}
    for model in sorted({row.model for row in rows}):
        seen = [row for row in rows if row.model != model]
        known = {row.framework for row in seen}
        unseen = [row for row in rows if row.model == model and row.framework in known]
        if unseen:
            out[model] = errors(fit(seen), unseen)
    return out


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
