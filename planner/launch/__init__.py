"""Something to run: the file that starts a chosen plan. One target a file; `TARGETS` is the registry.

A target writes text from a `Launch`, all that starting needs to know; nothing here knows of searching or
predicting. Answers and the command line may import this package.
"""

from __future__ import annotations

from planner.launch._base import Launch, Recipe, Target
from planner.launch.targets import TARGETS, export_text, target_for

__all__ = ["TARGETS", "Launch", "Recipe", "Target", "export_text", "target_for"]
