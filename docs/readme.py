"""README's examples and its table of accuracy, made anew: `python docs/readme.py`.

An example is a comment `<!-- output: planner ... -->` and the text after it, which are the lines up to
`Assumes`. The accuracy is five rows of docs/validation.md (`planner validate --document docs/validation.md`).
`tests/test_docs_readme.py` fails where README says something else.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(r"(<!-- output: planner (.*?) -->\n```text\n)(.*?)(```)", re.DOTALL)
TABLE = re.compile(r"(<!-- accuracy: [^\n]*-->\n)(.*?)(<!-- accuracy ends -->)", re.DOTALL)
WIDTH = 110


def answer(command: str) -> str:
    """What a command prints in a terminal of README's width, up to what it assumes."""
    done = subprocess.run(
        [sys.executable, "-m", "planner", *shlex.split(command), "--quiet"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"},
    )
    shown = done.stdout.split("\nAssumes ")[0]
    return "\n".join(line.rstrip() for line in shown.splitlines()).rstrip() + "\n...\n"


ROWS = (  # suite and part in docs/validation.md, and what README calls them
    ("allreduce", "PyTorch over bandwidth-limited links (tc)", "DDP and FSDP, from a one-rank recording"),
    ("servers", "all", "parameter servers, from a one-worker recording"),
    ("sharded", "FSDP and ZeRO", "FSDP and ZeRO, large models"),
    ("sharded", "tensor and pipeline", "tensor and pipeline parallelism"),
    ("throughput", "all", "data parallelism, from model and machine alone (no recording)"),
)


def accuracy() -> str:
    """Five rows of the validation pages, with left-out errors where something was fitted."""
    suite, rows = "", {}
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("validation.md", "validation-papers.md")]
    for line in "\n".join(pages).splitlines():
        suite = line[3:] if line.startswith("## ") else suite
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line[:1] == "|" and len(cells) == 11:  # errors by part
            rows[suite, cells[0]] = cells
    lines = ["| what | runs | median / 90th percentile error | target |", "|---|---:|---:|---:|"]
    for suite, part, words in ROWS:
        _, runs, _, seen, _, _, _, left_out, _, target, reached = rows[suite, part]
        target += " (missed)" if reached == "NO" else ""
        lines.append(f"| {words} | {runs} | {seen if left_out == '-' else left_out} | {target} |")
    return "\n".join(lines) + "\n"


def renewed(readme: str) -> str:
    made = EXAMPLE.sub(lambda found: found[1] + answer(found[2]) + found[4], readme)
    return TABLE.sub(lambda found: found[1] + accuracy() + found[3], made)


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(renewed(path.read_text("utf-8")), "utf-8")
