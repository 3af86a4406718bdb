"""The published figures: tables of `data/`, read once."""

from __future__ import annotations

import csv
import gzip
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from planner.errors import BadInput
from planner.memoize import memoize
from planner.simulator.step import Profile

T = TypeVar("T")

LARGEST_BYTES = 2**26  # of a user's table
DATA: Traversable = files("planner.validation") / "data"


@memoize
def figures(name: str) -> dict[str, Any]:
    """The table `data/<name>.toml`."""
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))


def table(*path: str) -> list[dict[str, str]]:
    """The rows of a CSV file in `data/`."""
    return list(csv.DictReader(DATA.joinpath(*path).read_text("utf-8").splitlines()))


def packed_table(name: str) -> list[dict[str, str]]:
    """The rows of a compressed CSV file in `data/`."""
    return list(csv.DictReader(gzip.decompress((DATA / name).read_bytes()).decode().splitlines()))


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a user's CSV file, which may be gzipped."""
    from planner.simulator.step.files import read_bytes

    try:
        words = read_bytes(path, LARGEST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no CSV file in UTF-8; write it as one") from None
    try:
        rows = list(csv.DictReader(words.splitlines()))
    except csv.Error as error:
        raise BadInput(f"{path} is no CSV file: {error}") from None
    return [{key: value or "" for key, value in row.items() if key} for row in rows]


@memoize
def profile(*path: str) -> Profile:
    """A profile in `data/`."""
    from planner.simulator.step.files import load

    with as_file(DATA.joinpath(*path)) as file:
        return load(file)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """`make` called at the first need and once only, also where checks run side by side."""
    lock, made = Lock(), memoize(make)

    def get() -> T:
        with lock:
            return made()

    return get


# the columns of tables of runs

WHOLE = (
    *("micro_batch", "grad_accum", "global_batch", "dp", "tp", "pp", "cp", "ep"),
    *("devices_per_node", "nodes", "devices"),
)
NUMBERS = (
    *("inter_gbps_per_node", "memory_gib", "samples_per_s_global", "tokens_per_s_global", "metric_value"),
    *("step_time_s", "params_total", "peak_tflops"),
)
TEXTS = (
    *("id", "source_id", "series", "model", "arch", "seq_or_image", "precision_norm", "optimizer", "note"),
    *("strategy", "strategy_norm", "ckpt_norm", "framework", "flags", "device", "device_mem_gb"),
    *("intra_class", "inter_net", "inter_basis", "metric_unit"),
)
MOST_WHOLE, MOST = 10**7, 1e15  # beyond these a figure is a slip of the pen
SHARDED = {
    **{"fsdp": "zero3/fsdp", "zero-3": "zero3/fsdp", "zero3": "zero3/fsdp"},
    **{"zero-2": "zero2", "zero2": "zero2", "zero-1": "zero1", "zero1": "zero1"},
}


def filled(row: Mapping[str, str], line: int, name: str) -> dict[str, str]:
    """A row with every column, those missing from others where they follow."""
    full = dict.fromkeys((*TEXTS, *WHOLE, *NUMBERS), "") | {key: text.strip() for key, text in row.items()}
    full["id"] = full["id"] or f"line {line}"
    full["source_id"] = full["source_id"] or name
    full["arch"] = full["arch"] or ("llm" if full["seq_or_image"].isdigit() else "cnn")
    full["precision_norm"] = full["precision_norm"] or full.get("precision", "").lower() or "fp32"
    full["ckpt_norm"] = full["ckpt_norm"] or full.get("act_ckpt", "").lower() or "none"
    full["strategy_norm"] = full["strategy_norm"] or _strategy(full)
    return full


def wrong_figure(row: Mapping[str, str]) -> str:
    """Which count or figure of a row is none, "" where all are. What a source describes in words ("1024
    tokens") is left open."""
    for name in (*WHOLE, *NUMBERS):
        text = row[name]
        if not text or (name in ("micro_batch", "global_batch") and " " in text):
            continue
        value = number(text)
        if name in WHOLE and not (value is not None and 1 <= value <= MOST_WHOLE and value == int(value)):
            return f"{name} is {text[:40]!r}, not a whole number from 1 on"
        if value is None or not 1e-9 <= value <= MOST:
            return f"{name} is {text[:40]!r}, not a number above zero"
    return ""


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def count(text: str) -> int | None:
    """A whole number, None where the text is none."""
    value = number(text)
    return int(value) if value is not None and value == value // 1 and 1 <= value <= MOST_WHOLE else None


def _strategy(row: Mapping[str, str]) -> str:
    said = row["strategy"].lower()
    for word, strategy in SHARDED.items():
        if word in said:
            return strategy
    if any(row[degree] not in ("", "1") for degree in ("tp", "pp")):
        return "3d"
    return "single" if row["devices"] == "1" else "ddp"
