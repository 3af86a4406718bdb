"""The published figures: tables of `data/`, read once."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from threading import Lock
from typing import Any, TypeVar

from planner.profile import Profile

T = TypeVar("T")

DATA: Traversable = files("planner.validate") / "data"


@cache
def figures(name: str) -> dict[str, Any]:
    """The table `data/<name>.toml`."""
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))


def table(*path: str) -> list[dict[str, str]]:
    """The rows of a CSV file in `data/`."""
    return list(csv.DictReader(DATA.joinpath(*path).read_text("utf-8").splitlines()))


@cache
def profile(*path: str) -> Profile:
    """A profile in `data/`."""
    from planner.profile.files import load

    with as_file(DATA.joinpath(*path)) as file:
        return load(file)


def once(make: Callable[[], T]) -> Callable[[], T]:
    """`make` called at the first need and once only, also where checks run side by side."""
    lock, made = Lock(), cache(make)

    def get() -> T:
        with lock:
            return made()

    return get
