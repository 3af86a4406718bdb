"""Suites: the evidence by the question that a reader asks, one small module each.

    planner.validation.suites.evidence("sharded").parts

Every module has `found() -> Evidence`. `papers` and `servers` hold what `planner.validation.suite` checks row
by row; the others compare many published runs.
"""

from __future__ import annotations

import importlib

from planner.errors import unknown_name
from planner.validation.evidence import Evidence

SUITES = ("papers", "servers", "allreduce", "sharded", "devices", "memory", "layouts")
OF_SERVERS = ("papers", "servers")  # in planner.servers.validation


def evidence(name: str) -> Evidence:
    """What the suite of this name finds."""
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    module = (
        f"planner.servers.validation.{name}_suite"
        if name in OF_SERVERS
        else f"planner.validation.suites.{name}"
    )
    found: Evidence = importlib.import_module(module).found()
    return found
