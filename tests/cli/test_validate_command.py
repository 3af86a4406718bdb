"""`planner validate` as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def planner(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner", "validate", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_check_by_name_as_json_with_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = planner("split", "--format", "json", "--html", str(page))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["as_claimed"] is True
    assert [row["holds"] for row in data["rows"]] == [True, True]
    assert "407 MiB" in page.read_text()


def test_documents_of_checks_by_name_are_refused(tmp_path: Path) -> None:
    done = planner("split", "--document", str(tmp_path / "document.md"))
    assert done.returncode == 2
    assert "compare whole suites" in done.stderr


def test_unknown_name_is_one_line() -> None:
    done = planner("saturatoin")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nearest: saturation" in done.stderr
