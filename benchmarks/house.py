"""How large and how tangled the code is: `python benchmarks/house.py [--fast]` prints one table.

Files entered are those of `planner/` in which at least one function or class body runs. Figures that a
program cannot judge (how many memory models there are) are counted by a stated pattern; the pattern is
printed beside the figure, and `--list` prints what it found. `--fast` leaves out what runs commands.
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
INTERFACES = ("Parallelism", "Axis", "Exchange")  # of planner/parallel/_base.py and data/__init__.py
# A comparison of an axis' degree: by the axis itself, or by the flag that it has.
DEGREE_CHECK = (
    r"\b(mesh|axis|plan|self)\.(degree|cut)\b|mesh\.axis\(|mesh\.size *[=!<>]+ *1\b|isinstance\(.*Parallel\)|"
    r"(?<![\w.])(tensor|pipeline|interleave)(\"\])? *(==|!=|<=?|>=?) *[1-9]"
)
# An upper bound on what plans reach; bounds of single orders of transfers (servers/) are another thing.
BOUNDS_PLANS = r"^def (?!_)\w*bounds?\w*\(.*\b(jobs?|cases): "


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


def files_with_layer_kinds(paths: Iterable[Path]) -> list[str]:
    """Files that compare a layer's `kind` with a name, or have a literal that is mostly a list of kinds."""
    sys.path.insert(0, str(ROOT))
    from planner.model.layers import KINDS

    def texts(node: ast.AST) -> set[str]:
        return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}

    def spelled(node: ast.AST) -> set[str]:
        return texts(node) & set(KINDS)

    def lists_kinds(nodes: Iterable[ast.AST]) -> bool:
        named = set().union(*map(texts, nodes))
        return len(named & set(KINDS)) > max(1, len(named) // 2)  # not tables of PyTorch's ops

    found = []
    for path in paths:
        tree = ast.parse(path.read_text())
        names = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and spelled(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                of_kind = any(isinstance(n, ast.Attribute) and n.attr == "kind" for n in ast.walk(node))
                named = any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))
                hit = of_kind and bool(spelled(node) or named)
            elif isinstance(node, ast.Dict):
                hit = lists_kinds(key for key in node.keys if key)
            else:
                hit = isinstance(node, ast.Tuple | ast.Set | ast.List) and lists_kinds([node])
            if hit and isinstance(node, ast.expr):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                break
    return found


def interface_members() -> list[str]:
    """Members of the interfaces of axes and data-parallel strategies that are abstract, or that more than one
    class overrides."""
    abstract: set[str] = set()
    declared: set[str] = set()
    overridden: dict[str, int] = {}
    classes = [
        node
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    heirs = set(INTERFACES)
    for _ in range(9):  # classes between, too
        heirs |= {node.name for node in classes if any(ast.unparse(base) in heirs for base in node.bases)}
    for node in classes:
        if node.name not in heirs:
            continue
        methods = [n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
        if node.name in INTERFACES:
            declared |= {method.name for method in methods}
            abstract |= {
                m.name for m in methods if "abstractmethod" in "".join(map(ast.unparse, m.decorator_list))
            }
        else:
            for method in methods:
                overridden[method.name] = overridden.get(method.name, 0) + 1
    return sorted(abstract | {name for name in declared if overridden.get(name, 0) > 1})


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
    axes = {
        PACKAGE / "servers" / "parameter_servers.py"
    }  # outside parallel/, as it is an axis of one strategy
    kinds = [path for path in every if PACKAGE / "model" / "layers" not in path.parents]

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
            BOUNDS_PLANS,
            "at most 3",
            every,
            files_matching,
        ),
        (
            "degree checks outside parallel/",
            DEGREE_CHECK,
            "0",
            [path for path in outside if path not in axes],
            lines_matching,
        ),
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
    spelled = files_with_layer_kinds(kinds)
    yield (
        "files that spell out layer kinds",
        f"{len(spelled)}",
        "at most 4",
        "comparisons of .kind, lists of kinds; not in model/layers/",
    )
    members = interface_members()
    yield "members of the parallel interfaces", f"{len(members)}", "at most 8", ", ".join(members)
    yield "lines with retired wording", f"{len(retired_lines()):,}", "0", str(RETIRED.relative_to(ROOT))
    longest = max(every, key=lambda path: len(path.read_text().splitlines()))
    yield "longest file", f"{lines_of([longest])} {longest.relative_to(ROOT)}", "at most 400", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="leave out what runs commands")
    parser.add_argument("--list", action="store_true", help="print what the patterns found, too")
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
        print(f"{what:40} {figure:>16}   {target:22} {pattern[:90]}")
    if asked.list:
        outside = [path for path in sources("parallel") if path.name != "parameter_servers.py"]
        for what, found in (
            ("bounds", files_matching(BOUNDS_PLANS, sources())),
            ("degree checks", lines_matching(DEGREE_CHECK, outside)),
            ("layer kinds", files_with_layer_kinds(path for path in sources("layers"))),
        ):
            print(f"{what}: {', '.join(found)}")


if __name__ == "__main__":
    main()
