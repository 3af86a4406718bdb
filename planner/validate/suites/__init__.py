"""Suites: the evidence by the question that a reader asks, one small module each.

    planner.validate.suites.evidence("sharded").parts

Every module has `found() -> Evidence`. `papers` and `servers` hold what `planner.validate.suite` checks row
by row; the others compare many published runs.
"""

from __future__ import annotations

import importlib

from planner.errors import unknown_name
from planner.validate.evidence import Evidence

SUITES = ("papers", "servers", "allreduce", "sharded", "devices", "memory", "layouts")


def evidence(name: str) -> Evidence:
    """What the suite of this name finds."""
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    found: Evidence = importlib.import_module(f"planner.validate.suites.{name}").found()
    return found
