"""Logs of training runs as series of numbers: MLflow, Weights & Biases, TensorBoard, transformers, tables.

`read_log` tells the format by the file or folder itself. A series keeps the step of each value and, where the
log has one, the clock; which series tells the speed is decided in `planner.answers.checking`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import BadInput
from planner.files import protobuf
from planner.files.regular_file import open_regular_file
from planner.files.tomlfile import check_name
from planner.units import format_bytes

LARGEST_LOG_BYTES = 2**26
LARGEST_EVENTS_BYTES, LARGEST_EVENT_BYTES = 2**30, 2**24  # TensorBoard files also hold images
MOST_VALUES = 2_000_000
STEP_TIMES = "seconds per step"  # the name of numbers without a heading
FORMATS = (
    "read are MLflow run folders, TensorBoard events, W&B history as CSV or JSON, trainer_state.json and CSV"
)
STEPS = ("global_step", "trainer/global_step", "train/global_step", "_step", "step", "iteration", "iter")
CLOCKS = ("_timestamp", "timestamp", "wall_time", "wall time", "_runtime", "relative time (wall)", "time")


class LoggedValue(NamedTuple):
    """One value of a logged quantity, with its step and time where known."""

    value: float
    step: float | None
    clock_s: float | None


@dataclass(slots=True)
class TrainingLog:
    """All series of a log by name, and the format it is in."""

    path: Path
    format: str
    series: dict[str, list[LoggedValue]] = field(default_factory=dict)
    count: int = 0  # of values in all series

    def add(self, name: str, value: Any, step: Any = None, clock: Any = None) -> None:
        """Adds a value to a series; skips texts and non-finite numbers."""
        number = _parse_number(value)
        if number is None:
            return
        if name not in self.series:
            self.series[check_name(name, str(self.path))] = []
        self.count += 1
        if self.count > MOST_VALUES:
            raise BadInput(f"{self.path}: more than {MOST_VALUES:,} values; log fewer steps or metrics")
        self.series[name].append(LoggedValue(number, _parse_number(step), _parse_seconds(clock)))


def _parse_number(value: Any) -> float | None:
    """Converts a value to a finite number; None if it is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _parse_seconds(clock: Any) -> float | None:
    """Converts a number or an ISO 8601 date to seconds; None if it is neither."""
    if (number := _parse_number(clock)) is not None or not isinstance(clock, str):
        return number
    try:
        return datetime.fromisoformat(clock.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def _read_text(path: Path) -> str:
    """Reads a UTF-8 log of limited size."""
    with open_regular_file(path) as file:
        data = file.read(LARGEST_LOG_BYTES + 1)
    if len(data) > LARGEST_LOG_BYTES:
        raise BadInput(f"{path}: larger than {format_bytes(LARGEST_LOG_BYTES)}; log fewer steps or metrics")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8 (byte {error.start}); {FORMATS}") from error


def read_log(path: Path | str) -> TrainingLog:
    """Reads the log of a training run from a file, or from a folder that holds one run."""
    path = Path(path)
    if not path.is_dir():
        return _read_file(path)
    metrics = [path] if path.name == "metrics" else []
    for pattern in ("metrics", "*/metrics", "*/*/metrics"):
        metrics = metrics or sorted(place for place in path.glob(pattern) if place.is_dir())
    if metrics:
        return _read_mlflow(_single_run(path, metrics))
    if events := sorted(path.rglob("*tfevents*")):
        run = _single_run(path, sorted({file.parent for file in events}))
        return _read_tensorboard(run, [file for file in events if file.parent == run])
    for state in (path / "trainer_state.json", *sorted(path.glob("checkpoint-*/trainer_state.json"))):
        if state.is_file():
            return _read_file(state)
    raise BadInput(f"{path}: no log of a training run in this folder; {FORMATS}")


def _single_run(folder: Path, runs: list[Path]) -> Path:
    """The only run of a folder; raises BadInput for several."""
    if len(runs) > 1:
        raise BadInput(f"{folder}: holds {len(runs)} runs; name one, as {runs[-1]}")
    return runs[0]


def _read_file(path: Path) -> TrainingLog:
    """Reads a log file; its name or first character tells the format."""
    if "tfevents" in path.name:
        return _read_tensorboard(path, [path])
    if path.suffix == ".wandb":
        raise BadInput(f"{path}: W&B's own format; save the history as CSV: run.history().to_csv('run.csv')")
    text = _read_text(path)
    return _read_json(path, text) if text.lstrip()[:1] in ("{", "[") else _read_table(path, text)


def _read_mlflow(folder: Path) -> TrainingLog:
    """Reads one file per metric; its lines are a time in milliseconds, the value and the step."""
    log = TrainingLog(folder, "MLflow")
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        for number, line in enumerate(io.StringIO(_read_text(file)), 1):
            words = line.split()
            clock_ms = _parse_number(words[0]) if len(words) in (2, 3) else None
            if clock_ms is None:
                raise BadInput(f"{file}:{number}: not a time, a value and a step, as MLflow writes them")
            step = words[2] if words[2:] else None
            log.add(file.relative_to(folder).as_posix(), words[1], step, clock_ms / 1e3)
    return log


# tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto
WALL_TIME, STEP, SUMMARY = 1, 2, 5  # Event
VALUE = 1  # Summary
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8  # Summary.Value
FLOAT_VALUES, TENSOR_CONTENT = 5, 4  # TensorProto


def _read_tensorboard(path: Path, files: Iterable[Path]) -> TrainingLog:
    """Reads the scalars of event files."""
    log = TrainingLog(path, "TensorBoard")
    for file in files:
        try:
            for event in _read_records(file):
                top = _field_positions(event, 0, len(event))
                step = top[STEP][-1][0] if STEP in top else 0
                clock_s = _unpack_number("<d", event, top.get(WALL_TIME, ()))
                for value in (
                    at
                    for place in top.get(SUMMARY, ())
                    for at in _field_positions(event, *place).get(VALUE, ())
                ):
                    _add_scalar(log, event, _field_positions(event, *value), step, clock_s)
        except protobuf.WireError as error:
            raise BadInput(f"{file}: not TensorBoard events ({error}); copy the file again") from error
    return log


def _read_records(path: Path) -> Iterator[bytes]:
    """Yields the complete records of a TFRecord file; an unfinished last one is left out."""
    with open_regular_file(path) as file:
        left = LARGEST_EVENTS_BYTES
        while len(head := file.read(12)) == 12:
            size = int.from_bytes(head[:8], "little")
            left -= size
            if left < 0 or size > LARGEST_EVENT_BYTES:
                raise BadInput(f"{path}: not TensorBoard events, or more than are read")
            record = file.read(size)
            if len(record) < size:
                return
            yield record
            file.read(4)


Place = tuple[int, int]


def _field_positions(data: bytes, start: int, end: int) -> dict[int, list[Place]]:
    """Start and end of a message's fields by field number; for a varint its value instead of the start."""
    places: dict[int, list[Place]] = {}
    for number, _, a, b in protobuf.iterate_fields(data, start, end):
        places.setdefault(number, []).append((a, b))
    return places


def _unpack_number(form: str, data: bytes, positions: Iterable[Place]) -> float | None:
    """Number in the last field that has the size of `form`; None if none has."""
    size, number = struct.calcsize(form), None
    for start, end in positions:
        if end - start == size:
            (number,) = struct.unpack_from(form, data, start)
    return number


def _add_scalar(
    log: TrainingLog, event: bytes, value: dict[int, list[Place]], step: int, clock_s: float | None
) -> None:
    """Adds the value of a TensorBoard summary to the log, unless it is an image or a histogram."""
    number = _unpack_number("<f", event, value.get(SIMPLE_VALUE, ()))
    for place in value.get(TENSOR, ()):
        tensor = _field_positions(event, *place)
        number = _unpack_number("<f", event, [*tensor.get(TENSOR_CONTENT, ()), *tensor.get(FLOAT_VALUES, ())])
    if TAG in value:
        log.add(protobuf.decode_text(event, *value[TAG][-1]), number, step, clock_s)


def _read_json(path: Path, text: str) -> TrainingLog:
    """Reads W&B history (rows, columns or a row per line) or the state of transformers' Trainer."""
    if sum(map(text.count, "[{,")) > 2 * MOST_VALUES:
        raise BadInput(f"{path}: more than {2 * MOST_VALUES:,} values; log fewer steps or metrics")
    try:
        try:
            content = json.loads(text)
        except json.JSONDecodeError:
            content = [json.loads(line) for line in io.StringIO(text) if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON ({error}); {FORMATS}") from error
    if isinstance(content, dict) and "log_history" in content:
        return _log_from_rows(path, "trainer_state.json", content["log_history"])
    if isinstance(content, dict):  # a table by columns, each a list or an object by row, as pandas writes it
        columns = {n: dict(enumerate(c)) if isinstance(c, list) else c for n, c in content.items()}
        columns = {name: column for name, column in columns.items() if isinstance(column, dict)}
        keys = dict.fromkeys(key for column in columns.values() for key in column)
        content = [{name: column.get(key) for name, column in columns.items()} for key in keys]
    return _log_from_rows(path, "W&B history", content)


def _log_from_rows(path: Path, format: str, rows: Any) -> TrainingLog:
    """Builds a log from rows of named values."""
    log = TrainingLog(path, format)
    for number, row in enumerate(rows if isinstance(rows, Iterable) else [rows], 1):
        if not isinstance(row, dict) or number > MOST_VALUES:
            raise BadInput(f"{path}: row {number:,} has no named values, or is one too many; {FORMATS}")
        keys = {str(name).lower(): name for name in row}
        step, clock = (next((keys[n] for n in names if n in keys), None) for names in (STEPS, CLOCKS))
        for name, value in row.items():
            if name and name != step:
                log.add(name, value, row.get(step), row.get(clock))
    return log


def _read_table(path: Path, text: str) -> TrainingLog:
    """Reads CSV with headings, or plain numbers of seconds per step."""
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    try:
        if delimiter not in first or _parse_number(first.split(delimiter)[0]) is not None:
            return _read_numbers(path, text)
        return _log_from_rows(path, "CSV", csv.DictReader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise BadInput(f"{path}: not CSV ({error}); {FORMATS}") from error


def _read_numbers(path: Path, text: str) -> TrainingLog:
    """Reads every number of a file; the first line may be a heading."""
    log, name = TrainingLog(path, "numbers"), STEP_TIMES
    for line_number, line in enumerate(io.StringIO(text), 1):
        for word in line.replace(",", " ").replace(";", " ").split():
            if _parse_number(word) is not None:
                log.add(name, word)
            elif line_number == 1:
                name = line.strip()
                break
            else:
                raise BadInput(f"{path}:{line_number}: {word[:40]!r} is not a number of seconds")
    return log
