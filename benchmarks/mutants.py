"""Mutants: the code changed in one place, to see whether a test notices.

Run: python benchmarks/mutants.py [--count 60] [--seed 0] [--area search cost report cli] [--only TEXT]

Those of `benchmarks/mutants.toml` are written by hand, one for each rule that answers depend on: a pattern
and what takes its place, in whatever file of an area holds the pattern, so that they survive moves. The rest
are drawn: comparisons turned, `and` for `or`, plus for minus, min for max, a condition negated, a
number a fifth larger, a return value gone. Lines that say or type something only are left alone.

A first run of the tests, with coverage by test (pip install coverage), tells which tests pass a line; these
run against the mutant, fastest first, in a copy of the tree. A line that no test passes is a survivor. A test
that fails is run again by itself and has to fail again, so that a busy machine notices nothing. Tests that
never end are told by the processor time they use, which no neighbour lengthens; those that wait past a limit
of the clock are counted apart, as neither noticed nor survived.
Needs an installed planner, editable or not, whose engine is copied, and about half an hour of one core.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutant_sites import Sites

ROOT = Path(__file__).resolve().parents[1]
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # folders or files, tests
    "search": (
        ("search", "answers", "exchange"),
        (
            *(
                "tests/search",
                "tests/exchange",
                "tests/profile/test_placement.py",
                "tests/profile/test_servers.py",
                "tests/cli",
            ),
            *("tests/launch", "tests/test_checking.py", "tests/report", "tests/prices"),
        ),
    ),
    "cost": (
        ("cost", "cluster.py"),
        ("tests/cost", "tests/partition", "tests/search", "tests/test_measured.py", "tests/test_cluster.py"),
    ),
    "report": (
        ("report",),
        ("tests/report", "tests/cli", "tests/prices", "tests/partition", "tests/validate", "tests/search"),
    ),
    "cli": (
        ("cli", "calibrate/compute.py"),
        (
            *("tests/cli", "tests/calibrate", "tests/prices", "tests/launch", "tests/report"),
            *("tests/recorder", "tests/test_checking.py", "tests/test_hostile_files.py", "tests/partition"),
            *("tests/validate", "tests/test_progress.py"),
        ),
    ),
}
LEFT_OUT = (
    "dask_",
    "test_dask",
    "postgresql",
    "test_browser",
    "test_installed",
)  # other machines, long starts
MOST_FAILING = 5  # tests that fail without any mutant, as on a busy machine, and say nothing of one
MOST_TESTS = 300  # of those that pass a line, the fastest
MOST_TIMES = 4  # the processor time of tests that end, of what they took when recorded
STARTING_S = 120  # of processor time, beside what tests take
TIMEOUT_S = 1800  # of the clock, for tests that wait for what never comes
OUTCOMES = ("killed", "SURVIVED", "waiting")
NO_TESTS = 5  # what pytest exits with where all are left out
PLUGIN = "mutants_recording"


@dataclass(frozen=True)
class Mutant:
    """One change: characters `start` to `end` of a file become `new`."""

    area: str
    path: str
    line: int
    start: int
    end: int
    new: str
    what: str

    @property
    def words(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


def files_of(area: str) -> list[Path]:
    places = [ROOT / "planner" / name for name in AREAS[area][0]]
    found = [path for one in places for path in (sorted(one.rglob("*.py")) if one.is_dir() else [one])]
    return [path for path in found if not path.name.startswith(LEFT_OUT)]


def tests_of(area: str) -> list[str]:
    return [test for test in AREAS[area][1] if (ROOT / test).exists()]


def written_mutants(area: str) -> list[Mutant]:
    """The mutants of the file, each where its pattern stands exactly once in the area."""
    table = tomllib.loads((ROOT / "benchmarks" / "mutants.toml").read_text("utf-8"))
    out = []
    for entry in table.get(area, []):
        found = [
            (path, match)
            for path in files_of(area)
            for match in re.finditer(entry["old"], path.read_text("utf-8"))
        ]
        if len(found) != 1:
            places = ", ".join(str(path.relative_to(ROOT)) for path, _ in found) or "nowhere"
            raise SystemExit(
                f"mutants.toml: {entry['rule']}: the pattern stands in {places}; it needs one place"
            )
        path, match = found[0]
        line = path.read_text("utf-8").count("\n", 0, match.start()) + 1
        new = match.expand(entry["new"])
        name = str(path.relative_to(ROOT))
        out.append(Mutant(area, name, line, match.start(), match.end(), new, entry["rule"]))
    return out


def sites_of(path: Path, area: str) -> Iterator[Mutant]:
    text = path.read_text("utf-8")
    sites = Sites(text)
    sites.visit(ast.parse(text))
    name = str(path.relative_to(ROOT))
    for start, end, new, what in sites.found:
        before, after = sites.data[:start].decode(), sites.data[start:end].decode()
        yield Mutant(area, name, before.count("\n") + 1, len(before), len(before) + len(after), new, what)


def drawn_mutants(area: str, count: int, seed: int) -> list[Mutant]:
    """So many places of an area, at most one a line."""
    rng = random.Random(f"{seed} {area}")
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for path in files_of(area):
        for mutant in sites_of(path, area):
            by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    lines = sorted(by_line)
    return [rng.choice(by_line[line]) for line in rng.sample(lines, min(count, len(lines)))]


def failures(output: str, tests: Iterable[str]) -> list[str]:
    """The tests that pytest's summary calls failed; their names may hold spaces, as its messages do."""
    said = re.findall(r"^(?:FAILED|ERROR) (.*)", output, re.MULTILINE)
    known = set(tests)
    named = ([test for test in known if f"{words} - ".startswith(f"{test} - ")] for words in said)
    return [max(found, key=len) for found in named if found]


RECORDING = """
import json, os, subprocess, time
import coverage, pytest

_record = coverage.Coverage(data_file=None, source=[os.environ["MUTANTS_SOURCE"]])
_record.start()
_took, _starters, _now = {}, set(), [""]
_popen = subprocess.Popen.__init__

def _started(self, *args, **more):
    _starters.add(_now[0])
    return _popen(self, *args, **more)

subprocess.Popen.__init__ = _started

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    _record.switch_context(item.nodeid)
    _now[0] = item.nodeid
    begin = time.process_time()
    try:
        return (yield)
    finally:
        _took[item.nodeid] = time.process_time() - begin

def pytest_sessionfinish(session):
    _record.stop()
    data = _record.get_data()
    lines = {}
    for name in data.measured_files():
        by_line = data.contexts_by_lineno(name)
        lines[name] = {str(line): [test for test in tests if test] for line, tests in by_line.items()}
    with open(os.environ["MUTANTS_OUTPUT"], "w") as file:
        json.dump({"lines": lines, "took": _took, "starters": sorted(_starters - {""})}, file)
"""


UNREDIRECTED = """# an editable install would import the checkout, whatever the path says
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
"""


class Runs:
    """A copy of the tree in which mutants live, and which tests pass which line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("planner", "tests", "benchmarks"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis")
            )
        for path in ROOT.iterdir():
            if path.name not in ("planner", "tests", "benchmarks") and path.name[:1] != ".":
                (folder / path.name).symlink_to(path)
        (folder / f"{PLUGIN}.py").write_text(RECORDING)
        (folder / "sitecustomize.py").write_text(UNREDIRECTED)
        engine = importlib.import_module("planner.simulator._engine").__file__
        assert engine is not None
        shutil.copy(engine, folder / "planner" / "simulator" / Path(engine).name)
        self._assert_imported("planner.simulator._engine")
        self._assert_imported("planner.cost.price")

    def _environment(self) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return os.environ | own

    def _assert_imported(self, module: str) -> None:
        """That tests see the copy: mutants that nobody imports would all survive."""
        code = f"import {module} as found; print(found.__file__)"
        said = subprocess.run(
            [sys.executable, "-c", code], env=self._environment(), capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(said).is_relative_to(self.folder):
            raise SystemExit(f"{module} is imported from {said}, not from the copy that mutants live in")

    def pytest(
        self, *args: str, most_s: float | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str] | None:
        """The tests in the copy, in so many seconds of processor time; None if they wait past the limit."""
        limits = (resource.RLIM_INFINITY,) * 2 if most_s is None else (int(most_s), int(most_s) + 10)
        environment = self._environment() | variables
        command = ["nice", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=None if most_s is None else TIMEOUT_S,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limits),
            )
        except subprocess.TimeoutExpired:
            return None

    def record(self, areas: Sequence[str]) -> None:
        """Which tests pass which line, and how long they take."""
        output = self.folder / "lines.json"
        tests = dict.fromkeys(test for area in areas for test in tests_of(area))
        left_out = [f"--ignore-glob=*{name}*" for name in LEFT_OUT]
        done = self.pytest(
            *("-p", PLUGIN, *left_out, *tests),
            MUTANTS_SOURCE=str(self.folder / "planner"),
            MUTANTS_OUTPUT=str(output),
        )
        assert done is not None
        failed = set(failures(done.stdout, json.loads(output.read_text())["took"]))
        if done.returncode and not 0 < len(failed) <= MOST_FAILING:
            raise SystemExit(f"the tests fail without any mutant:\n{done.stdout[-3000:]}")
        for test in sorted(failed):
            print(f"left out, it fails without any mutant: {test}", flush=True)
        found = json.loads(output.read_text())
        self.failing = failed
        self.lines: dict[str, dict[str, list[str]]] = found["lines"]
        self.took: dict[str, float] = found["took"]
        self.starters: list[str] = found["starters"]

    def tests_passing(self, mutant: Mutant) -> list[list[str]]:
        """The tests of the mutant's area to run, one group after the other: those that pass its line, the
        others of their files, which may look at what a fixture of the first made, then those that start
        another process, which may pass it. A line that runs at import is passed by all."""
        by_line = self.lines.get(str(self.folder / mutant.path), {})
        mine = tuple(tests_of(mutant.area))
        if by_line.get(str(mutant.line)) == []:
            left_out = [f"--ignore-glob=*{name}*" for name in LEFT_OUT]
            return [[*left_out, *(f"--deselect={test}" for test in sorted(self.failing)), *mine]]
        passing = self._fastest(by_line.get(str(mutant.line), []), mine)
        files = {test.partition("::")[0] for test in passing}
        beside = {test for test in self.took if test.partition("::")[0] in files} - set(passing)
        starters = self._fastest(set(self.starters) - set(passing) - beside, mine)
        return [tests for tests in (passing, self._fastest(beside, mine), starters) if tests]

    def _fastest(self, tests: Iterable[str], inside: tuple[str, ...]) -> list[str]:
        mine = sorted(test for test in tests if test.startswith(inside) and test not in self.failing)
        return sorted(mine, key=self.took.__getitem__)[:MOST_TESTS]

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """One of `OUTCOMES`, and what showed it."""
        path = self.folder / mutant.path
        text = path.read_text("utf-8")
        changed = text[: mutant.start] + mutant.new + text[mutant.end :]
        try:
            compile(changed, mutant.path, "exec")
        except SyntaxError as error:
            raise SystemExit(f"{mutant.words}: {error}") from error
        count = 0
        try:
            path.write_text(changed, "utf-8")
            for tests in self.tests_passing(mutant):
                found = self._failing(tests)
                if found is not None:
                    return found
                count += len(tests)
        finally:
            path.write_text(text, "utf-8")
        return "SURVIVED", f"{count} tests pass"

    def _failing(self, tests: list[str]) -> tuple[str, str] | None:
        """What the first failure of a group says, if it fails twice; None if there is none."""
        took = sum(self.took.get(test, 0.0) for test in tests) or sum(self.took.values())
        most_s = STARTING_S + MOST_TIMES * took
        chance: set[str] = set()
        while True:
            done = self.pytest(
                "-x", *(f"--deselect={test}" for test in sorted(chance)), *tests, most_s=most_s
            )
            if done is None:
                return "waiting", f"the tests wait for {TIMEOUT_S} s"
            if done.returncode in (0, NO_TESTS):
                return None
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return "killed", f"the tests compute for {most_s:.0f} s"
            failed = next(iter(failures(done.stdout, self.took)), None)
            if failed is None:
                return "killed", "no test can be run"
            again = self.pytest(failed, most_s=most_s)
            if again is None or again.returncode:
                return "killed", failed
            print(f"left out, it fails once only: {failed}", flush=True)
            chance.add(failed)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--count", type=int, default=60, help="mutants in all, those written by hand first")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--area", nargs="+", choices=AREAS, default=list(AREAS))
    asked.add_argument("--only", default="", help="those whose words hold this text")
    asked.add_argument("--written", action="store_true", help="only those of mutants.toml")
    args = asked.parse_args()
    mutants = [mutant for area in args.area for mutant in written_mutants(area)]
    rest = 0 if args.written else max(0, args.count - len(mutants))
    for at, area in enumerate(args.area):
        share = rest // len(args.area) + (at < rest % len(args.area))
        mutants += drawn_mutants(area, share, args.seed)
    mutants = [mutant for mutant in mutants if args.only in mutant.words]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        runs = Runs(Path(name))
        runs.record(args.area)
        print(f"{len(runs.took)} tests recorded in {time.monotonic() - begin:.0f} s", flush=True)
        counts = dict.fromkeys(OUTCOMES, 0)
        for mutant in mutants:
            outcome, by = runs.outcome(mutant)
            counts[outcome] += 1
            print(f"{outcome:8} {mutant.words} ({by})", flush=True)
    share = counts["killed"] / len(mutants) if mutants else 0.0
    print(
        f"{counts['killed']} of {len(mutants)} mutants noticed: {share:.0%}, {counts['waiting']} waited past "
        f"the limit of the clock ({time.monotonic() - begin:.0f} s)"
    )


if __name__ == "__main__":
    main()
