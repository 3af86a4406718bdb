"""Corrections of predictions by measured runs, stored in the user's folder.

A run on one device measures the device; one on a machine or several measures their links too. So a factor
applies to plans of the same reach, and that of a single device to all reaches without one. Several runs
are averaged geometrically. Nothing leaves the machine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import msgspec

from planner.errors import BadInput
from planner.files.regular_file import home_folder, write_file
from planner.files.tomlfile import check_names, from_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Reach = Literal["device", "machine", "machines"]
REACHES: tuple[Reach, ...] = get_args(Reach)
FILE = "measured.json"
WIDEST = 20.0  # a run that is so many times off was another run


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured run, and its prediction without corrections."""

    device: str
    reach: Reach
    model: str
    precision: str
    predicted_samples_per_s: float
    measured_samples_per_s: float
    as_of: str
    note: str = ""

    @property
    def factor(self) -> float:
        """Measured speed divided by the predicted speed."""
        return self.measured_samples_per_s / self.predicted_samples_per_s


class Factor(msgspec.Struct, frozen=True):
    """Correction factor for predictions, and the measured runs behind it."""

    value: float
    runs: int
    as_of: str  # of the newest run

    @property
    def words(self) -> str:
        """Text on the factor, the number of runs and the latest date."""
        many = "" if self.runs == 1 else f", {self.runs} runs"
        return f"measured here, {self.as_of}{many}: x {self.value:.3g}"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    runs: list[Measured]


def reach_of(workers: int, machines: int) -> Reach:
    """Range of machines that a plan's workers span: `device`, `machine` or `machines`."""
    if workers == 1:
        return "device"
    return "machine" if machines == 1 else "machines"


def runs_file() -> Path:
    """Path of the user's file of measured runs."""
    return home_folder() / FILE


def load_runs() -> tuple[Measured, ...]:
    """Measured runs in the user's file, in order; empty if there is no file."""
    from planner.files.regular_file import read_text

    path = runs_file()
    if not path.exists():
        return ()
    try:
        file = from_json(read_text(path).encode(), _File)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: {error}; delete it, or correct it by hand") from error
    if file.version != 1:
        raise BadInput(f"{path}: version {file.version}, this planner reads 1; use the planner that wrote it")
    for number, run in enumerate(file.runs, 1):
        check_names((run.device, run.model, run.precision, run.as_of), f"{path}: run {number}")
        rates = (run.predicted_samples_per_s, run.measured_samples_per_s)
        if not (all(math.isfinite(rate) and rate > 0 for rate in rates) and 0 < run.factor < math.inf):
            raise BadInput(
                f"{path}: run {number}: rates are above zero; forget it with `planner check --forget`"
            )
    return tuple(file.runs)


@contextmanager
def _lock_file() -> Iterator[None]:
    """Holds the file lock while runs are read, changed and written."""
    path = runs_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.parent / f".{FILE}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise BadInput(f"{path.parent}: {error.strerror}; set PLANNER_HOME to a folder of yours") from error


def save_runs(runs: Sequence[Measured]) -> None:
    """Overwrites the user's file with these runs."""
    path = runs_file()
    text = msgspec.json.format(msgspec.json.encode(_File(version=1, runs=list(runs))), indent=1)
    write_file(path, text + b"\n")


def add_run(run: Measured) -> None:
    """Appends a run to the user's file; raises an error if it is implausibly far from its prediction."""
    for name in ("predicted_samples_per_s", "measured_samples_per_s"):
        value = getattr(run, name)
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{name.replace('_', ' ')} is {value}; a rate is above zero")
    if not 1 / WIDEST <= run.factor <= WIDEST:
        raise BadInput(
            f"{run.measured_samples_per_s:g} samples/s is {run.factor:.3g} times what was predicted; "
            "is it of the same plan, and in samples a second over all workers?"
        )
    with _lock_file():
        save_runs((*load_runs(), run))


def remove_runs(device: str | None = None, position: int | None = None) -> int:
    """Deletes a run by position (from 1), a device's runs, or all; returns how many."""
    with _lock_file():
        runs = load_runs()
        if position is not None and not 1 <= position <= len(runs):
            raise BadInput(f"there is no kept run {position}; `planner check --list` lists all {len(runs)}")
        gone = {
            at
            for at, run in enumerate(runs, 1)
            if (position is None or at == position) and (device is None or run.device == device)
        }
        if gone:
            save_runs([run for at, run in enumerate(runs, 1) if at not in gone])
    return len(gone)


def factor_for(runs: Sequence[Measured], device: str, reach: Reach) -> Factor | None:
    """Mean correction over a device's runs with this reach, else its single-device runs; None without any."""
    mine = [run for run in runs if run.device == device]
    here = [run for run in mine if run.reach == reach] or [run for run in mine if run.reach == "device"]
    if not here:
        return None
    mean = math.exp(sum(math.log(run.factor) for run in here) / len(here))
    return Factor(mean, len(here), max(run.as_of for run in here))
