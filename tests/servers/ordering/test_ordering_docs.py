"""The example of docs/ordering.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.servers.ordering import STRATEGIES

PAGE = Path(__file__).parents[3] / "docs" / "ordering.md"


@pytest.mark.skipif(not PAGE.exists(), reason="an installation has no docs")
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(code, {})
    assert capsys.readouterr().out.startswith("Communication takes")


@pytest.mark.skipif(not PAGE.exists(), reason="an installation has no docs")
def test_every_strategy_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.M)
    assert rows == list(STRATEGIES)
