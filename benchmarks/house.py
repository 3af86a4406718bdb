"""How large and how tangled the code is: `python benchmarks/house.py [--fast]` prints one table.

Files entered are those of `planner/` in which at least one function runs. Figures that a program cannot judge
(how many memory models there are) are counted by a stated pattern; the pattern is printed beside the figure.
`--fast` leaves out what runs commands.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "planner"
RETIRED = ROOT / "tests" / "data" / "retired-words.txt"
SIMULATE = "simulate --model llama3-8b --exchange sharded --hardware p5.48xlarge --workers 64 --batch 1"
RECOMMEND = "recommend --model resnet50 --budget 20"
COUNT_ENTERED = """
import sys, threading
root, entered = sys.argv.pop(1), set()
def count(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(root):
        entered.add(code.co_filename)
threading.setprofile(count); sys.setprofile(count)
from planner.cli import main
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
print(len(entered), file=sys.stderr)
"""
LAYER_KINDS = (
    "attention|linear|conv|fc|layer_norm|rms_norm|batch_norm|embedding|positions|cross_entropy|"
    "max_pool|avg_pool|experts"
)


def sources(*without: str) -> list[Path]:
    """Python files of the package, less those of the named subpackages."""
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if not any(part in path.relative_to(PACKAGE).parts for part in without)
    ]


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def lines_matching(pattern: str, paths: Iterable[Path]) -> list[str]:
    """`file:line` of every line of code that matches."""
    rule = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if rule.search(line)
    ]


def files_matching(pattern: str, paths: Iterable[Path]) -> list[str]:
    return sorted({place.rpartition(":")[0] for place in lines_matching(pattern, paths)})


def files_entered(command: str) -> int:
    """Files of the package in which a function runs while a command answers."""
    ran = subprocess.run(
        [sys.executable, "-c", COUNT_ENTERED, str(PACKAGE), *command.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return int(ran.stderr.split()[-1])


def retired_lines() -> list[str]:
    """Lines of code and docs with retired wording (tests/data/retired-words.txt), the changelog aside."""
    rules = [
        re.compile(line.partition("\t")[0])
        for line in RETIRED.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.hpp", "*.cpp"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split()
    paths = [ROOT / name for name in names if not name.startswith("CHANGELOG") and (ROOT / name).is_file()]
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(rule.search(line) for rule in rules)
    ]


def functions() -> list[tuple[str, str]]:
    """Every public function and method with the first line of its docstring."""
    return [
        (node.name, (ast.get_docstring(node) or "").partition("\n")[0])
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


def figures(fast: bool) -> Iterable[tuple[str, str, str, str]]:
    """Rows: what is counted, how much there is, the target, and by which pattern."""
    every, core = sources(), sources("servers", "validation")

    def count(
        what: str, pattern: str, target: str, paths: list[Path], by: Callable[..., list[str]]
    ) -> tuple[str, ...]:
        return what, f"{len(by(pattern, paths)):,}", target, pattern

    if not fast:
        yield "files entered by simulate", f"{files_entered(SIMULATE)}", "at most 70", SIMULATE
        yield "files entered by recommend", f"{files_entered(RECOMMEND)}", "at most 110", RECOMMEND
    yield (
        "lines of Python; files",
        f"{lines_of(every):,}; {len(every)}",
        "at most 43,000; 260",
        "planner/**/*.py",
    )
    yield "lines outside servers/ and validation/", f"{lines_of(core):,}", "at most 33,000", ""
    outside = sources("parallel")
    for what, pattern, target, paths, by in (
        (
            "memory models",
            r"^def (memory_footprint|footprint|holding|batch_memory|peak_bytes|worker_memory|memory_fit)\b",
            "1",
            every,
            files_matching,
        ),
        (
            "compute paths",
            r"^def (computation_s|compute_s|layer_times|kernel_seconds|backward_s)\b",
            "1",
            every,
            files_matching,
        ),
        (
            "files computing bounds",
            r"^def (\w+_bounds?|bounds?|bound_\w+|bounds_\w+)\(",
            "at most 3",
            every,
            files_matching,
        ),
        (
            "degree checks outside parallel/",
            r"\.cut\b|\b(tensor|pipeline|interleave|tp|pp)\)? *(==|!=|<=?|>=?) *\d|\.degree\(",
            "0",
            outside,
            lines_matching,
        ),
        ("files that spell out layer kinds", rf'"({LAYER_KINDS})"', "at most 4", every, files_matching),
        ("files that declare flags", r"typer\.(Option|Argument)\(", "1", every, files_matching),
        (
            "memoization mechanisms",
            r"lru_cache|functools import.*\bcache\b|^@cache\b|^def memoize\b",
            "1 module",
            every,
            files_matching,
        ),
    ):
        yield count(what, pattern, target, paths, by)  # type: ignore[misc]
    yield "lines with retired wording", f"{len(retired_lines()):,}", "0", str(RETIRED.relative_to(ROOT))
    longest = max(every, key=lambda path: len(path.read_text().splitlines()))
    yield "longest file", f"{lines_of([longest])} {longest.relative_to(ROOT)}", "at most 400", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="leave out what runs commands")
    parser.add_argument(
        "--functions", type=int, metavar="N", help="print N function names with their docstrings"
    )
    asked = parser.parse_args()
    if asked.functions:
        import random

        for name, doc in random.Random(asked.functions).sample(functions(), asked.functions):
            print(f"{name}: {doc}")
        return
    for what, figure, target, pattern in figures(asked.fast):
        print(f"{what:40} {figure:>16}   {target:22} {pattern[:60]}")


if __name__ == "__main__":
    main()
