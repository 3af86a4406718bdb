"""`devices`: steps of one device (or sharded over one machine) by kernel rates, seen and left out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import median

from planner.device.rates.constants import constants, error_of
from planner.device.rates.device import basis_of, family_of
from planner.device.rates.kernels import network_of
from planner.validation.evidence import Compared, Evidence, Statement, Target, ninth
from planner.validation.figures import DATA, table
from planner.validation.rates import kind_of, predicted_step_s
from planner.validation.training import Run, one_machine_runs, runs_of, single_device_runs

LEFT_OUT = "rates_left_out.csv"
RULE_SHARE = 0.4
NVIDIA = ("nvidia", "")
TARGETS: dict[str, Target] = {"CNN": (0.09, 0.33), "BERT": (0.11, 0.28), "LLM": (0.08, 0.20)}
DEVICE_TARGET: Target = (0.12, 0.35)  # of a device without runs
BIASED, MOST_BIAS, LEAST_RUNS = ("A100", "H100"), 0.10, 4


def found() -> Evidence:
    return _evidence((*single_device_runs(), *one_machine_runs()))


def evidence_of(rows: Iterable[Mapping[str, str]]) -> Evidence:
    """Own runs of one device."""
    return _evidence(tuple(runs_of(rows)))


def _evidence(runs: tuple[Run, ...]) -> Evidence:
    refused = Counter(run.unexplained for run in runs if run.unexplained)
    explained = [run for run in runs if not run.unexplained]
    rows = [_compared(run) for run in explained]
    return Evidence(
        suite="devices",
        title="Devices: computation by kernel rates",
        quantity="step time",
        fitted="kernel rates and factors of frameworks (`benchmarks/fit/calibrate_rates.py`)",
        rule="arithmetic over 0.4 of the peak",
        peers="Paleo on ResNet-50 and VGG-16 (196 rows, after a port): 47% median, 130% mean",
        rows=rows,
        targets=TARGETS,
        statements=[*_unknown_devices(explained), *_bias(explained, rows)],
        refused=refused,
    )


def _unknown_devices(runs: Sequence[Run]) -> list[Statement]:
    """Errors of NVIDIA's devices by a fit that had seen no run of their family."""
    known = {row["id"]: float(row["device"]) for row in table(LEFT_OUT) if row["device"]}
    off = [abs(math.expm1(known[run.id])) for run in runs if run.id in known and run.device.vendor in NVIDIA]
    if not off:
        return []
    name = "NVIDIA device left out"
    return [
        Statement(name=f"{name}: median error", value=median(off), target=DEVICE_TARGET[0]),
        Statement(name=f"{name}: nine in ten", value=ninth(off), target=DEVICE_TARGET[1]),
    ]


def _bias(runs: Sequence[Run], rows: Sequence[Compared]) -> list[Statement]:
    """The largest bias of the devices that most rent, in any of their number formats."""
    by: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, row in zip(runs, rows, strict=True):
        by[family_of(run.device, constants()), run.precision.name].append(row.error)
    found = [
        abs(median(errors))
        for (family, _), errors in by.items()
        if family in BIASED and len(errors) >= LEAST_RUNS
    ]
    if not found:
        return []
    name = f"largest bias of {' or '.join(BIASED)} in a number format"
    return [Statement(name=name, value=max(found), target=MOST_BIAS)]


def _compared(run: Run) -> Compared:
    predicted = predicted_step_s(run)
    network = network_of(run.model)
    left, basis = _left_out().get(run.id, (None, basis_of(run.device, run.precision, network, constants())))
    error = error_of(basis, network)
    left_s = None if left is None else run.step_s * math.exp(left)
    low_per_s, high_per_s = error.range_of(1 / (left_s or predicted))
    part = kind_of(run) if run.device.vendor in NVIDIA else "other vendors"
    return Compared(
        id=run.id,
        source=run.source,
        part=part,
        what=f"{run.model.name}, batch {run.batch}, {run.device.name}, {run.precision.name}, {run.framework}",
        unit="s",
        measured=run.step_s,
        predicted=predicted,
        low=1 / high_per_s,
        high=1 / low_per_s,
        left_out=left_s,
        rule=_rule_s(run),
    )


@cache
def _left_out() -> dict[str, tuple[float, str]]:
    """log(predicted / published) of each run by a fit that had not seen its source, and its basis there."""
    if not (DATA / LEFT_OUT).is_file():
        return {}
    return {
        row["id"]: (float(row["source"]), row["source_basis"]) for row in table(LEFT_OUT) if row["source"]
    }


def _rule_s(run: Run) -> float | None:
    peak = run.device.flops.get(run.precision.compute)
    passes = 8 if run.recompute == "full" else 6
    return None if peak is None else passes * run.model.macs * run.batch / (RULE_SHARE * peak)
