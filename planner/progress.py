"""How long work tells that it goes on: which stage it is in, how much of that is done, and of how much."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, of


def silent(stage: str, done: int, of: int) -> None:
    """For whoever does not ask."""
