"""Published single-device throughputs compared with those predicted for catalog devices.

Kernel rates of four GPUs were fitted to the rows of `fitted`: those show how well six figures per device and
one factor per framework describe all networks and batches. `unseen` and `forward` were not fitted to.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file

import numpy as np

from planner.device.computation.synthesis import kernel_rates
from planner.device.rates import constants, device_family, network_class
from planner.device.rates.times import step_times
from planner.hardware import Hardware
from planner.hardware.catalog import hardware_names, load_hardware
from planner.memoize import memoize
from planner.model.catalog import load_model, model_names
from planner.validation.predict import RunStep, network_kind, predict_step
from planner.validation.reader import published_runs
from planner.validation.row import DATA, CheckName, Row, Section, load_figures, read_data_table
from planner.validation.run import Run
from planner.validation.suites import is_excluded_from_fit, is_without_network
from planner.validation.throughput import throughput_runs

FITTED, UNSEEN = 0.15, 0.25
LEAST_FORWARD = 16  # of a batch; below, the fixed cost of an op decides


@dataclass(frozen=True)
class Published:
    """Published throughput of one network on one device."""

    model: str
    batch: int
    device: str  # or a machine of CPUs
    framework: str
    images_per_s: float
    role: str
    source: str
    format: str

    def predict(self, factor: float = 1.0) -> float:
        """Predicted images per second, for a framework with steps `factor` times as long."""
        rates = kernel_rates(load_machine(self.device))
        step = step_times(network(self.model), self.batch, rates, training=self.role != "forward").step_s
        return self.batch / (step * factor)


network = memoize(load_model)  # rows by the hundred run tens of networks


@memoize
def load_machine(device: str) -> Hardware:
    """Machine of the catalog or of a file in `data/` that stands for a device."""
    name = load_figures("devices")["machines"].get(device, device)
    if not name.endswith(".toml"):
        return load_hardware(name)
    with as_file(DATA / name) as path:
        return load_hardware(str(path))


@memoize
def published_rows() -> tuple[Published, ...]:
    """Published throughputs that predictions can be compared with. They state a known device, network and
    batch, and the number format of the device's rates (fp32, or the framework's default on A100); other image
    sizes are left out."""
    figures, networks = load_figures("devices"), model_names()
    known, formats = figures["machines"], figures["formats"]
    return tuple(
        Published(
            line["model"],
            int(line["batch"]),
            line["device"],
            line["framework"],
            float(line["images_per_s"]),
            line["role"],
            line["source"],
            line["precision"],
        )
        for file in ("throughput.csv", "throughput_forward.csv")
        for line in read_data_table(file)
        if line["device"] in known
        and line["model"] in networks
        and line["batch"]
        and line["precision"] == formats.get(line["device"], "fp32")
        and "256" not in line["note"]
    )


@memoize
def framework_factor(framework: str) -> float:
    """Step time of a framework divided by the reference framework's: the median over its fitted rows."""
    if framework == load_figures("devices")["reference"]["framework"]:
        return 1.0
    mine = [entry for entry in published_rows() if entry.framework == framework and entry.role == "fit"]
    return _median_factor(mine) if mine else 1.0


def _median_factor(runs: Sequence[Published]) -> float:
    """Median of predicted / published throughput."""
    return float(np.exp(np.median([math.log(entry.predict() / entry.images_per_s) for entry in runs])))


def _comparison_rows(
    check: str, wanted: Callable[[Published], bool], tolerance: float, how: str
) -> list[Row]:
    """One row per device, framework and network: the batch size with the largest error."""
    groups: dict[tuple[str, str, str], list[Published]] = defaultdict(list)
    for entry in published_rows():
        if wanted(entry):
            groups[entry.device, entry.framework, entry.model].append(entry)
    section, rows = Section(CheckName("devices", check), how), []
    for (device, framework, model), mine in sorted(groups.items()):
        worst, ours = _worst_prediction(mine, framework_factor(framework))
        batches = sorted({entry.batch for entry in mine})
        words = f"batch {batches[0]}"
        if len(batches) > 1:
            words = f"batch {worst.batch}, the worst of {batches[0]} to {batches[-1]}"
        case, what = (
            f"{device}-{framework.replace(' ', '-')}-{model}",
            f"{device}, {framework}, {model}, {words}",
        )
        about = {"unit": "images/s", "source": worst.source}
        rows.append(section.near(case, what, worst.images_per_s, ours, tolerance, **about))
    return rows


def _worst_prediction(runs: Iterable[Published], factor: float) -> tuple[Published, float]:
    """Published throughput with the largest error, and its prediction."""
    pairs = [(entry, entry.predict(factor)) for entry in runs]
    return max(pairs, key=lambda pair: abs(math.log(pair[1] / pair[0].images_per_s)))


def fitted_rows() -> list[Row]:
    """Rows comparing throughputs that kernel rates were fitted to."""
    how = "step time of the catalog's kernel rates, fitted to these rows, times one factor a framework"
    return _comparison_rows("fitted", lambda item: item.role == "fit", FITTED, how)


def unseen_rows() -> list[Row]:
    """Rows comparing training throughputs that kernel rates were not fitted to."""
    how = "step time of the catalog's kernel rates; a factor only for frameworks of the fit"
    return _comparison_rows(
        "unseen", lambda item: item.role == "check" and item.format != "tf32", UNSEEN, how
    )


def tf32_rows() -> list[Row]:
    """Rows comparing throughputs of the A100 in TF32, whose matrix kernels share one fitted factor."""
    how = "the V100's share of the A100's peaks, one factor for TF32 fitted to these rows"
    return _comparison_rows("tf32", lambda item: item.format == "tf32", UNSEEN, how)


def forward_rows() -> list[Row]:
    """Rows comparing throughputs of forward passes, which kernel rates were not fitted to."""
    how = f"forward pass by the catalog's kernel rates, batches from {LEAST_FORWARD} on"
    return _comparison_rows(
        "forward", lambda item: item.role == "forward" and item.batch >= LEAST_FORWARD, UNSEEN, how
    )


def cpu_rows() -> list[Row]:
    """Rows comparing catalog CPUs, whose kernel rates are estimates: the worst network per machine and
    framework. Each framework has one factor, the median over its rows: MXNet's forward passes with MKL are
    faster than the TensorFlow training that the rates describe."""
    groups: dict[str, list[Published]] = defaultdict(list)
    machines, networks = hardware_names(), model_names()
    for line in read_data_table("throughput_cpu.csv"):
        if line["machine"] in machines and line["model"] in networks:
            groups[line["framework"]].append(
                Published(
                    line["model"],
                    int(line["batch"]),
                    line["machine"],
                    line["framework"],
                    float(line["images_per_s"]),
                    "check" if line["training"] == "yes" else "forward",
                    line["source"],
                    "fp32",
                )
            )
    how = "step time of the catalog's estimated kernel rates, one factor a framework"
    check, rows = Section(CheckName("devices", "cpus"), how), []
    for framework, all_rows in sorted(groups.items()):
        mine = [entry for entry in all_rows if entry.batch >= LEAST_FORWARD]
        factor = _median_factor(mine)
        for name in sorted({entry.device for entry in mine}):
            own = [entry for entry in mine if entry.device == name]
            worst, ours = _worst_prediction(own, factor)
            case = f"{name}-{framework.replace(' ', '-')}"
            what = (
                f"{name}, {framework}, {worst.model}, batch {worst.batch}, "
                f"the worst of {len({entry.model for entry in own})} networks"
            )
            about = {"unit": "images/s", "source": worst.source}
            rows.append(check.near(case, what, worst.images_per_s, ours, UNSEEN, **about))
    return rows


def median_run_rows() -> list[Row]:
    """Rows comparing the run with the median error of each device family, kind of network and precision.
    `benchmarks/fit/devices.py` prints these errors with a source or a device left out."""
    groups: dict[tuple[str, str, str], list[tuple[float, Run, RunStep]]] = defaultdict(list)
    for run in (*published_runs()[0], *throughput_runs()):
        step = predict_step(run) if is_without_network(run) else ""
        if isinstance(step, RunStep) and run.model and run.device and run.precision and run.step_s:
            if is_excluded_from_fit(run) or network_class(run.model) == "other":
                continue
            key = (device_family(run.device, constants()), network_kind(run.model), run.precision.name)
            groups[key].append((abs(math.log(step.seconds / run.step_s)), run, step))
    how = "rates by kernel, format, device and framework (docs/compute.md), fitted to these runs"
    check, rows = Section(CheckName("devices", "runs"), how), []
    for (family, kind, precision), entry in sorted(groups.items()):
        _, run, step = sorted(entry, key=lambda match: match[0])[len(entry) // 2]
        assert run.model is not None
        what = (
            f"{family}, {precision}, {run.model.name}, batch {run.batch}, "
            f"the median of {len(entry)} {'runs' if len(entry) > 1 else 'run'} of {kind}"
        )
        case, ours = f"{family}-{kind}-{precision}", run.samples_per_step / step.seconds
        rows.append(
            check.near(case, what, run.samples_per_s, ours, UNSEEN, unit="samples/s", source=run.source)
        )
    return rows


CHECKS = {
    "fitted": fitted_rows,
    "tf32": tf32_rows,
    "unseen": unseen_rows,
    "forward": forward_rows,
    "cpus": cpu_rows,
    "runs": median_run_rows,
}
