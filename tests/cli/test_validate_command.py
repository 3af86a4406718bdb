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


def test_part_as_json_with_page_and_document(tmp_path: Path) -> None:
    page, document = tmp_path / "page.html", tmp_path / "document.md"
    done = planner("split", "--format", "json", "--html", str(page), "--document", str(document))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["as_claimed"] is True
    assert [row["holds"] for row in data["rows"]] == [True, True]
    assert "407 MiB" in page.read_text()
    assert "**li/split**" in document.read_text()
    again = planner("split", "--check", str(document))
    assert again.returncode == 0
    document.write_text(document.read_text().replace("406.6", "306.6"))
    moved = planner("split", "--check", str(document))
    assert moved.returncode == 1
    assert "was 306.6 MiB, is 406.6 MiB" in moved.stderr


def test_unknown_name_is_one_line() -> None:
    done = planner("saturatoin")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nearest: saturation" in done.stderr
