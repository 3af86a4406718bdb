"""Which checks there are, and running them: by paper (`li`), by check (`saturation`), or all."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

from planner.errors import BadInput, unknown_name
from planner.progress import Progress, silent
from planner.search.executors import executor_of
from planner.validate.figures import figures
from planner.validate.row import Check, Row

SOURCES = ("li", "tictac", "yan", "prophet", "ordering_abstract", "testbed", "devices", "large")


@cache
def checks() -> dict[str, Check]:
    """Every check as `li/saturation`, in the order of the report."""
    found: dict[str, Check] = {}
    for source in SOURCES:
        module = importlib.import_module(f"planner.validate.{source}")
        found |= {f"{source}/{name}": check for name, check in module.CHECKS.items()}
    return found


def names() -> list[str]:
    """What can be asked for: papers, checks, and checks of one paper."""
    return list(dict.fromkeys([*SOURCES, *(key.split("/")[1] for key in checks()), *checks()]))


def chosen(asked: Sequence[str]) -> list[str]:
    """The checks that the names stand for; all without names."""
    known = names()
    for name in asked:
        if name not in known:
            raise unknown_name("validation", name, known, hint="one of " + ", ".join(known))
    return [key for key in checks() if not asked or set(asked) & {key, *key.split("/")}]


def validate(
    asked: Sequence[str] = (),
    *,
    jobs: int | None = None,
    progress: Progress = silent,
) -> list[Row]:
    """The rows of the checks asked for, in a fixed order whatever the number of threads."""
    keys = chosen(asked)
    rows: list[Row] = []
    with executor_of(None, jobs) as pool:
        results = pool.map(lambda key: checks()[key](), keys)
        for done, (key, found) in enumerate(zip(keys, results, strict=True), 1):
            rows += found
            progress(f"checked {key}", done, len(keys))
    known: dict[str, str] = figures("known")
    here = {row.name for row in rows}
    stale = [name for name in known if name.rsplit("/", 1)[0] in keys and name not in here]
    if stale:
        raise BadInput(f"planner/validate/data/known.toml lists rows that do not exist: {', '.join(stale)}")
    return [row.listed(known[row.name]) if row.name in known else row for row in rows]
