"""The mutants written by hand still stand for a line of the code."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

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
