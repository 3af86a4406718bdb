"""Validation: compares every shipped published figure and measurement with our predictions.

    rows = planner.validation.validate(["li", "testbed"])

One small module per source. Published figures and where they come from are in `data/`; a module computes our
figures with the public parts of the package and states the claim. Imports everything below it; only reports
and the command line import it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from planner.errors import BadInput, unknown_name
from planner.memoize import memoize
from planner.note import Progress, ignore_progress
from planner.search.simulations import executor_of
from planner.validation.row import Check, CheckName, Row, RowName, load_figures

__all__ = ["Row", "checks", "known_failure_reasons", "names", "validate"]

OF_SERVERS = (
    "li",
    "tictac",
    "yan",
    "prophet",
    "ordering_abstract",
    "testbed",
)
SOURCES = (*OF_SERVERS, "devices", "large")


@memoize
def checks() -> dict[CheckName, Check]:
    """All checks by name, in the order of the report."""
    by_name: dict[CheckName, Check] = {}
    for source in SOURCES:
        package = "planner.servers.validation" if source in OF_SERVERS else "planner.validation"
        module = importlib.import_module(f"{package}.{source}")
        by_name |= {CheckName(source, name): check for name, check in module.CHECKS.items()}
    return by_name


def check_names() -> list[str]:
    """All names that `planner validate` accepts: papers, checks, and `paper/check`."""
    return list(dict.fromkeys([*SOURCES, *(key.check for key in checks()), *map(str, checks())]))


def select_checks(asked: Sequence[str]) -> list[CheckName]:
    """Names of the checks that match a paper, a check or `paper/check`; all if none is asked for."""
    known = check_names()
    for name in asked:
        if name not in known:
            raise unknown_name("validation", name, known, hint="one of " + ", ".join(known))
    return [key for key in checks() if not asked or set(asked) & {str(key), *key}]


def validate(
    asked: Sequence[str] = (),
    *,
    jobs: int | None = None,
    progress: Progress = ignore_progress,
) -> list[Row]:
    """Runs the requested checks and returns their rows, in an order that does not depend on threads."""
    keys = select_checks(asked)
    rows: list[Row] = []
    with executor_of(None, jobs) as pool:
        results = pool.map(lambda key: checks()[key](), keys)
        for done, (key, entry) in enumerate(zip(keys, results, strict=True), 1):
            rows += entry
            progress(f"checked {key}", done, len(keys))
    known = known_failure_reasons()
    stale = [str(name) for name in known.keys() - {row.name for row in rows} if name.check_name in keys]
    if stale:
        raise BadInput(
            f"planner/validation/data/known.toml lists rows that do not exist: {', '.join(sorted(stale))}"
        )
    return [row.mark_known(known[row.name]) if row.name in known else row for row in rows]


def known_failure_reasons() -> dict[RowName, str]:
    """Reasons why rows fail, by row name, as listed in `data/known.toml`."""
    return {RowName(*name.split("/")): reason for name, reason in load_figures("known").items()}
