"""The user's own folder: what planner keeps from one call to the next (prices, measured factors)."""

from __future__ import annotations

import os
from pathlib import Path

from planner.files.regular_file import expanded


def home() -> Path:
    """PLANNER_HOME if it is set, else `planner` where the system keeps a user's data. It need not exist."""
    if named := os.environ.get("PLANNER_HOME"):
        return expanded(named)
    data = os.environ.get("XDG_DATA_HOME")
    return (expanded(data) if data else Path.home() / ".local" / "share") / "planner"
