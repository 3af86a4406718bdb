"""Relations that answers must keep, over all exchanges: a part of what benchmarks/robustness/metamorphic.py
runs."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/robustness"))

import metamorphic
from metamorphic import (
    CHANGES,
    Counts,
    check_plan,
    check_saturation,
    check_space,
    numbered,
    small_space,
    worse,
)

from planner.parallel.data import EXCHANGES
from planner.simulator.statistics import Prediction


def broken(counts):
    return {name: count.broken for name, count in counts.by_relation.items() if count.broken}


def test_relations_of_plans():
    counts = Counts()
    for number in range(24):
        check_plan(numbered(7, number), counts, [list(CHANGES)[number // 4 % 2]])
    assert broken(counts) == {}
    assert set(counts.by_exchange) == set(EXCHANGES)
    assert sum(counts.of(name).tried for name in CHANGES) == 24


def test_relations_of_small_spaces():
    counts, done, chance = Counts(), 0, random.Random("small spaces")
    while done < 2:
        done += check_space(small_space(chance), counts)
    check_saturation(numbered(7, 2), counts)
    assert broken(counts) == {}
    assert counts.of("the answer of simulating every plan").tried == 2


def test_broken_relation_is_noticed(monkeypatch):
    """Devices that get slower where they should get faster, a bound far too low, times quadrupled."""
    slower = metamorphic.faster
    monkeypatch.setattr(metamorphic, "faster", lambda machine: slower(machine, 0.5))
    monkeypatch.setattr(metamorphic.Cases, "bound", lambda self, plan: 0.1)
    tripled = metamorphic.slower_by_two
    monkeypatch.setattr(metamorphic, "slower_by_two", lambda case: tripled(tripled(case)))
    counts = Counts()
    check_plan(numbered(7, 1), counts, ["devices a quarter faster"])
    assert set(broken(counts)) == {
        "devices a quarter faster",
        "the bound is not below",
        "all times doubled give half",
    }


def test_worse_means_beyond_both_intervals():
    def at(rate, half):
        given = dict.fromkeys(Prediction.__slots__, 0)
        rates = {"samples_per_s": rate, "samples_per_s_low": rate - half, "samples_per_s_high": rate + half}
        return Prediction(**given | rates)

    assert worse(at(100, 2), at(97, 2)) == 0
    assert worse(at(100, 2), at(95, 2)) == pytest.approx(0.05)
    assert worse(at(95, 2), at(100, 2)) == 0
