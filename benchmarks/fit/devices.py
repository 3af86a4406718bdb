"""How well computed steps meet published ones, seen by the fit and left out of it.

    python benchmarks/fit/devices.py           reads what benchmarks/fit/calibrate_rates.py --write has found
    python benchmarks/fit/devices.py --rows    also prints every run

Errors are |predicted / published - 1| of throughput in %: median / 90th percentile / worst, and the median
bias. Exits with 1 when a prediction of the package differs from what the fit says of it, when the four old
devices are predicted worse than before, when H100 or A100 are off on the whole in a precision, or when the
ranges hold too few or too many published figures.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fit_runs import FitRun as Run
from fit_runs import large_fit_runs, one_machine_runs, predicted_step_s, single_device_runs

from planner.device.rates import constants, device_family
from planner.validation.devices import framework_factor, published_rows
from planner.validation.predict import network_kind

LEFT_OUT = Path(__file__).parents[2] / "planner" / "validation" / "data" / "rates_left_out.csv"
OLD = ("V100", "P100", "K80-1GPU", "M60-1GPU")
OLD_MEDIAN, OLD_WORST, BIAS = 0.0204, 0.1144, 0.10
HELD = (0.85, 0.97)
LEAST_ROWS = 10
SAME = 1e-2  # stored errors have four digits; exposed time of large models is that of the fit before
LARGE = "LLM, cut or on several machines"


@dataclass(frozen=True)
class Left:
    """A run with log(predicted step / published step): seen, and with its group left out (None: no group)."""

    run: Run
    network: str
    family: str
    seen: float
    left: dict[str, tuple[float, str] | None]


def read() -> list[Left]:
    runs = {run.id: run for run in (*single_device_runs(), *one_machine_runs())}
    large = {run.id: run for run in large_fit_runs() if run.id not in runs}
    out = []
    with LEFT_OUT.open(newline="") as file:
        for row in csv.DictReader(file):
            run = runs.get(row["id"]) or large.get(row["id"])
            if run is None:  # layouts, of which `planner validate --suite layouts` tells
                continue
            left = {
                name: (float(row[name]), row[f"{name}_basis"]) if row[name] else None
                for name in ("source", "device", "kind")
            }
            network = LARGE if run.id in large else network_kind(run.model)
            out.append(Left(run, network, device_family(run.device, constants()), float(row["seen"]), left))
    return out


def summary(errors: Iterable[float]) -> str:
    values = np.array(list(errors))
    if not len(values):
        return "   - "
    off = abs(np.expm1(-values)) * 100
    return (
        f"{len(values):4} runs {np.median(off):5.1f} / {np.quantile(off, 0.9):5.1f} / {off.max():6.1f} %"
        f"  bias {np.expm1(-np.median(values)):+6.1%}"
    )


def table(title: str, rows: list[Left], key: Callable[[Left], str]) -> None:
    print(f"\n{title}\n{'':22}{'seen':>18}{'source left out':>48}{'device left out':>48}")
    groups: dict[str, list[Left]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    for name, mine in sorted(groups.items()):
        cells = [summary(row.seen for row in mine)]
        cells += [
            summary(row.left[what][0] for row in mine if row.left[what]) for what in ("source", "device")
        ]
        print(f"  {name:32}{'   '.join(f'{cell:45}' for cell in cells)}")


def known_frameworks(rows: list[Left]) -> list[Left]:
    """Those whose framework another source has for the same kind of network."""
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        sources[row.run.framework, row.network == "CNN"].add(row.run.source)
    return [row for row in rows if len(sources[row.run.framework, row.network == "CNN"]) > 1]


def old_devices_off() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Errors of what plans of networks over images have in single precision on the four old devices: kernel
    rates of the hardware files, and one factor a release of a framework."""
    rows = [entry for entry in published_rows() if entry.role == "fit" and entry.format != "tf32"]
    ratios = [row.predict(framework_factor(row.framework)) / row.images_per_s for row in rows]
    return np.abs(np.array(ratios) - 1)


def coverage(rows: list[Left]) -> list[tuple[str, str, int, float, float]]:
    """For each basis and kind of network: how many left-out figures the stored range holds, and how many a
    range holds that was made without the source itself."""
    out = []
    by: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        network = "cnn" if row.network == "CNN" else "transformer"
        for pair in row.left.values():
            if pair:
                by[pair[1], network].append((row.run.source, abs(pair[0])))
    for (basis, network), mine in sorted(by.items()):
        if len(mine) < LEAST_ROWS:
            continue
        known = constants().errors[basis]
        spread = known.get(network, known["all"])
        held = float(np.mean([error <= spread.q90 for _, error in mine]))
        apart = []
        for source in {source for source, _ in mine}:
            others = [error for other, error in mine if other != source]
            if others:
                limit = float(np.quantile(others, 0.9))
                apart += [error <= limit for other, error in mine if other == source]
        out.append((basis, network, len(mine), held, float(np.mean(apart)) if apart else math.nan))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true")
    asked = parser.parse_args()
    rows, failed = read(), []
    nvidia = [row for row in rows if row.run.device.vendor in ("nvidia", "")]
    worst = max(rows, key=lambda row: abs(math.log(predicted_step_s(row.run) / row.run.step_s) - row.seen))
    if abs(math.log(predicted_step_s(worst.run) / worst.run.step_s) - worst.seen) > SAME:
        failed.append(f"the package predicts {worst.run.id} otherwise than the fit did: calibrate again")
    table("By kind of network (NVIDIA)", nvidia, lambda row: row.network)
    table(
        "The same, where another source has the framework", known_frameworks(nvidia), lambda row: row.network
    )
    table("By kind and precision", nvidia, lambda row: f"{row.network} {row.run.precision.name}")
    table("By source", rows, lambda row: f"{row.run.source[:18]}")
    table("By device", rows, lambda row: row.family)
    table("H100 and A100", [r for r in rows if r.family in ("H100", "A100")], _device_and_precision)
    for name, mine in _groups(
        [r for r in rows if r.family in ("H100", "A100")], _device_and_precision
    ).items():
        bias = math.expm1(-float(np.median([row.seen for row in mine])))
        if abs(bias) > BIAS:
            failed.append(f"{name} is off by {bias:+.1%} on the whole")
    old = [
        row for row in rows if row.family in OLD and row.run.precision.name == "fp32" and "csv" in row.run.id
    ]
    old = [row for row in old if row.run.framework != "torch7"]
    off = old_devices_off()
    print("\nfp32 of V100, P100, K80, M60 in TensorFlow and MXNet")
    print(f"  by their own kernel rates, which plans have:  {np.median(off):.1%}, worst {off.max():.1%}")
    print(f"  by the rates that all devices share: {summary(row.seen for row in old)}")
    if np.median(off) > OLD_MEDIAN or off.max() > OLD_WORST:
        failed.append("the four old devices in single precision are predicted worse than they were")
    print("\nRanges: published figures that the 90% range holds (and one made without the source)")
    for basis, network, number, held, apart in coverage(rows):
        print(f"  {basis:14} {network:12} {number:4} runs  {held:6.1%}  ({apart:.1%})")
        if not HELD[0] <= held <= HELD[1]:
            failed.append(f"the range of {basis}, {network}, holds {held:.0%}")
    print("\nRuns that no setting explains")
    for run in (*single_device_runs(), *one_machine_runs()):
        if run.unexplained:
            print(f"  {run.id:20} {run.model.name:16} {run.device.name:16} {run.unexplained}")
    if asked.rows:
        _print_rows(rows)
    for words in failed:
        print(f"FAILED: {words}")
    return 1 if failed else 0


def _device_and_precision(row: Left) -> str:
    return f"{row.family} {row.run.precision.name}"


def _groups(rows: list[Left], key: Callable[[Left], str]) -> dict[str, list[Left]]:
    out: dict[str, list[Left]] = defaultdict(list)
    for row in rows:
        out[key(row)].append(row)
    return out


def _print_rows(rows: list[Left]) -> None:
    print()
    for row in rows:
        run = row.run
        left = f"{math.expm1(-row.left['source'][0]):+7.1%}" if row.left["source"] else ""
        print(
            f"{run.id:20} {run.source[:20]:20} {run.model.name:16} {run.batch:5} {run.device.name:16} "
            f"{run.precision.name} {run.framework:14} {run.per_s:9.1f}/s {math.expm1(-row.seen):+7.1%} {left}"
        )


if __name__ == "__main__":
    sys.exit(main())
