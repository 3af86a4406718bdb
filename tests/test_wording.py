"""Retired wording (tests/data/retired-words.txt) does not come back in code, help, output or docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RULES = [
    line.split("\t")
    for line in (ROOT / "tests/data/retired-words.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]
HISTORY = "CHANGELOG.md"
FOLDERS = ("planner", "docs", "tests", "benchmarks", "build_backend")


def _files() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in [*ROOT.glob("*.md"), *inside]
        if path.suffix in (".py", ".md", ".hpp", ".cpp") and path.name != HISTORY
    ]


@pytest.mark.parametrize(("pattern", "instead"), RULES, ids=[rule[0] for rule in RULES])
def test_retired_wording_is_not_used(pattern: str, instead: str) -> None:
    rule = re.compile(pattern)
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if rule.search(line)
    ]
    assert places == [], f"write {instead}"
