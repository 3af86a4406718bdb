"""The small gate: what moved, and every exchange in its grid."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gate_small


def test_plans_that_moved_came_or_went_are_listed() -> None:
    before = {"a": 100.0, "b": 100.0, "c": 1.0}
    assert gate_small.moved(before, {"a": 100.9, "b": 102.0, "d": 1.0}) == [
        "b: 100 to 102 samples/s (+2.0%)",
        "c: only before",
        "d: only now",
    ]


def test_grid_has_every_exchange_and_cut() -> None:
    stored = json.loads(gate_small.STORED.read_text())
    names = " ".join(stored["plans"])
    assert all(name in names for name in (*gate_small.EXCHANGES, "tensor 2", "pipeline 2"))
    assert all(value > 0 for value in stored["plans"].values())
    assert stored["because"] in gate_small.CHANGELOG.read_text("utf-8")
