"""The published figures: tables of `data/`, read once."""

from __future__ import annotations

import csv
import gzip
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from planner.errors import BadInput
from planner.simulator.step import Profile

T = TypeVar("T")

LARGEST_BYTES = 2**26  # of a user's table
DATA: Traversable = files("planner.validation") / "data"


@cache
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
    from planner.simulator.step.reading import read_bytes

    try:
        words = read_bytes(path, LARGEST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no CSV file in UTF-8; write it as one") from None
    try:
        rows = list(csv.DictReader(words.splitlines()))
    except csv.Error as error:
        raise BadInput(f"{path} is no CSV file: {error}") from None
    return [{key: value or "" for key, value in row.items() if key} for row in rows]


@cache
def profile(*path: str) -> Profile:
    """A profile in `data/`."""
    from planner.simulator.step.files import load

    with as_file(DATA.joinpath(*path)) as file:
        return load(file)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """`make` called at the first need and once only, also where checks run side by side."""
    lock, made = Lock(), cache(make)

    def get() -> T:
        with lock:
            return made()

    return get
