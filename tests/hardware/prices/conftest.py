"""Every test of prices has an empty folder of the user's, and the same day."""

from datetime import date
from pathlib import Path

import pytest

from planner.hardware.prices import book, cost


class Today(date):
    @classmethod
    def today(cls) -> date:
        return date(2026, 11, 17)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PLANNER_PATH", raising=False)
    monkeypatch.setattr(cost, "date", Today)
    monkeypatch.setattr(book, "date", Today)
    return tmp_path / "home"
