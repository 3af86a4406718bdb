"""Spot machines: rates from classes, the best interval, and the expected time, held against a simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.hardware.catalog import hardware_names
from planner.hardware.prices.spot import (
    CLASSES,
    _published_classes,
    best_interval_s,
    checkpoint_write_s,
    published_interruption,
    spot_run,
)


def test_every_class_is_of_a_machine_that_there_is() -> None:
    names = set(hardware_names())
    assert {machine for machine, _ in _published_classes()} <= names
    assert set(_published_classes().values()) == set(CLASSES)
    assert len(_published_classes()) > 350


def test_rates_of_classes() -> None:
    p5 = published_interruption("p5.48xlarge", "us-east-1")
    assert p5 is not None
    assert p5.share_of_month == ">20%"
    assert p5.per_hour == pytest.approx(-math.log(0.8) / 730)
    assert "at least one per machine in 136 days" in p5.description
    assert published_interruption("g5.xlarge", "nowhere") is None
    assert published_interruption("a3-highgpu-8g", "us-central1") is None
    rates = {share: published_interruption(*place).per_hour for place, share in _published_classes().items()}
    assert rates["<5%"] == pytest.approx(-math.log(0.95) / 730)
    assert [rates[share] for share in CLASSES] == sorted(rates.values())


def simulated(mean_s: float, interval_s: float, checkpoint: float, restart: float, segments: int) -> float:
    """The same run drawn by lot: segments of work, each repeated until it and its checkpoint come through."""
    rng = random.Random(7)
    clock = 0.0
    for _ in range(segments):
        while (survived := rng.expovariate(1 / mean_s)) < interval_s + checkpoint:
            clock += survived
            while (again := rng.expovariate(1 / mean_s)) < restart:  # a restart may be interrupted too
                clock += again
            clock += restart
        clock += interval_s + checkpoint
    return clock / (segments * interval_s)


@pytest.mark.parametrize(("per_hour", "machines"), [(0.05, 1), (0.02, 16), (0.5, 4)])
def test_expected_time_is_that_of_a_simulation(per_hour: float, machines: int) -> None:
    run = spot_run(per_hour * machines, checkpoint_s=30, restart_s=300)
    mean_s = 3600 / (per_hour * machines)
    drawn = simulated(mean_s, run.interval_s, 30, 300, 20_000)
    assert run.time_factor == pytest.approx(drawn, rel=0.02)


@given(st.floats(1e-4, 1.0), st.integers(1, 64), st.floats(1.0, 600.0))
def test_no_other_interval_is_much_better(per_hour: float, machines: int, write_s: float) -> None:
    best = spot_run(per_hour * machines, checkpoint_s=write_s)
    for share in (0.5, 0.8, 1.25, 2.0):
        other = spot_run(per_hour * machines, checkpoint_s=write_s, interval_s=best.interval_s * share)
        assert best.time_factor <= other.time_factor * 1.02


def test_young_is_the_limit_of_rare_interruptions() -> None:
    assert best_interval_s(1e7, 10.0) == pytest.approx(math.sqrt(2 * 10 * 1e7), rel=2e-3)
    assert best_interval_s(100.0, 300.0) == 100.0  # a checkpoint that takes longer than what it saves


def test_more_machines_lose_more() -> None:
    factors = [spot_run(0.01 * n, checkpoint_s=20).time_factor for n in (1, 4, 16, 64)]
    assert factors == sorted(factors)
    assert 1 < factors[0] < 1.02


def test_interruptions_eat_what_spot_saves() -> None:
    calm, wild = spot_run(0.0003, checkpoint_s=10), spot_run(40.0, checkpoint_s=120)
    assert calm.usd_per_useful_hour(20.7387) < 55.04 < wild.usd_per_useful_hour(20.7387)
    assert calm.usd_per_useful_hour(20.7387) == pytest.approx(20.7387 * calm.time_factor)


def test_never_and_always() -> None:
    never = spot_run(0.0, checkpoint_s=10)
    assert (never.time_factor, never.interval_s) == (1.0, math.inf)
    assert spot_run(8e7, checkpoint_s=10).time_factor == math.inf
    assert checkpoint_write_s(4e9) == 4.0


@pytest.mark.parametrize(
    "wrong",
    [{"checkpoint_s": 0}, {"checkpoint_s": math.nan}, {"restart_s": -1}, {"interval_s": 0}],
)
def test_absurd_figures(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        spot_run(0.1, **({"checkpoint_s": 10} | wrong))  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        spot_run(-0.1, checkpoint_s=10)
