"""The examples of docs/parameter-servers.md run, and its table of orders is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.servers.ordering import STRATEGIES

PAGE = Path(__file__).parents[2] / "docs" / "parameter-servers.md"


def test_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(examples) == 2
    for code in examples:
        exec(code, {})
    assert capsys.readouterr().out.startswith("Communication takes")


def test_every_strategy_is_described() -> None:
    section = PAGE.read_text().partition("## Order of transfers")[2].partition("## Partition")[0]
    rows = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert rows == list(STRATEGIES)
