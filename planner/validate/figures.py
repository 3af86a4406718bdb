"""The published figures: tables of `data/`, read once."""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import Any

from planner.profile import Profile

DATA: Traversable = files("planner.validate") / "data"


@cache
def figures(name: str) -> dict[str, Any]:
    """The table `data/<name>.toml`."""
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))


def table(*path: str) -> list[dict[str, str]]:
    """The rows of a CSV file in `data/`."""
    with DATA.joinpath(*path).open("r", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def profile(*path: str) -> Profile:
    """A profile in `data/`."""
    from planner.profile.files import load

    with as_file(DATA.joinpath(*path)) as file:
        return load(file)
