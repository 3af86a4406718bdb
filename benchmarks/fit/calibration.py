"""Fits kernel rates of devices to published single-device training throughputs.

Symbols. theta[d] are the six costs of device d (seconds for a multiply-add of each kernel kind, for a byte,
and for an op); x[r] what the step of row r asks of a device (`step_costs`), so that its
predicted time is phi[f] * x[r] . theta[d], with one factor phi for each framework f (a name and the era of
its cuDNN) and nothing for a model. Rates are expressed as a share of the device's peak; the shares of all
devices scatter around a common mean m, which carries knowledge to devices with few rows:

    minimise  sum_r w[r] (log predicted - log measured)^2 / 0.05^2
            + sum_d |log theta[d] - m|^2 / 0.25^2  +  |m - prior|^2 / 0.7^2  +  sum_f (log phi[f])^2 / 0.2^2

within physical bounds: no kind above the peak, except Winograd's, which saves up to a factor of 4 of the
multiplications. Rows of one (device, framework, model) share a weight, so that nine batches of one model do
not outvote nine models.
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from planner.device.rates.times import FITTED_KINDS as KINDS
from planner.device.rates.times import step_times
from planner.hardware import KernelRates
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
