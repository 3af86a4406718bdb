"""The mutants written by hand still stand for a line of the code."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from mutant_sites import Sites
from mutants import AREAS, drawn_mutants, failures, written_mutants


@pytest.mark.parametrize("area", AREAS)
def test_every_pattern_stands_in_one_place(area):
    """A change of the line that it names moves the pattern in benchmarks/mutants.toml too."""
    written = written_mutants(area)
    assert written
    for mutant in [*written, *drawn_mutants(area, 5, seed=0)]:
        path = Path(__file__).parents[1] / mutant.path
        text = path.read_text("utf-8")
        assert text[mutant.start : mutant.end] != mutant.new
        compile(text[: mutant.start] + mutant.new + text[mutant.end :], mutant.path, "exec")


def test_a_failure_is_known_by_its_whole_name():
    """Names of tests hold spaces, and what pytest says of them follows after a dash."""
    tests = ["t.py::one", "t.py::one[a b]", "t.py::one[a b - c]", "t.py::two"]
    said = "FAILED t.py::one[a b - c] - assert 1\nERROR t.py::one - E\nFAILED t.py::two\nFAILED u.py::x\n"
    assert failures(said, tests) == ["t.py::one[a b - c]", "t.py::one", "t.py::two"]


def test_style_of_a_chart_is_left_alone_and_what_it_shows_is_not():
    text = 'def f(n):\n    return {"width": 1.5, "x": 2.5, "opacity": 0.5 if n else 1.0, **{"dash": n > 1}}\n'
    sites = Sites(text)
    sites.visit(ast.parse(text))
    assert [new for _, _, new, _ in sites.found] == ["None", "3.0", "0.6", "1.2", "(n <= 1)"]
