"""Closed forms of the statistics over runs."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.special import stdtrit

from planner.errors import BadInput
from planner.simulator.run import RunResult
from planner.simulator.statistics import (
    TwoStage,
    measured_s,
    measured_steps,
    steps_per_s,
    t_quantile,
)


def result(*ends: list[float], measured_from_s: float = 0.0, end_s: float | None = None) -> RunResult:
    """A run whose workers' steps end at these times, each starting where the one before ended."""
    arrays = tuple(np.array(e, float) for e in ends)
    return RunResult(
        step_starts_s=tuple(np.concatenate([[0.0], e[:-1]]) for e in arrays),
        step_ends_s=arrays,
        staleness=tuple(np.arange(len(e), dtype=np.int32) for e in arrays),
        end_s=max(e[-1] for e in arrays) if end_s is None else end_s,
        measured_from_s=measured_from_s,
        worker_busy_s=np.zeros(len(arrays)),
        ps_busy_s=np.zeros((len(arrays), 1)),
        host_busy_s=np.zeros(len(arrays)),
        link_bytes=np.zeros((2, len(arrays), 1)),
        events=0,
        stopped="steps",
        path="reference",
    )


@pytest.mark.parametrize(
    ("confidence", "degrees", "quantile"), [(0.95, 1, 12.7062), (0.95, 5, 2.5706), (0.99, 10, 3.1693)]
)
def test_t_quantiles_of_the_tables_and_of_scipy(confidence: float, degrees: int, quantile: float) -> None:
    assert t_quantile(confidence, degrees) == pytest.approx(quantile, abs=1e-4)
    for many in range(1, 80):
        assert t_quantile(confidence, many) == pytest.approx(stdtrit(many, 0.5 + confidence / 2), rel=1e-8)


def test_many_degrees_of_freedom_are_normal() -> None:
    assert t_quantile(0.95, 10**6) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-4)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, math.nan])
def test_confidence_must_be_a_share(confidence: float) -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        t_quantile(confidence, 5)


def test_runs_follow_from_the_spread_of_the_first_stage() -> None:
    first = (9.0, 11.0, 10.0, 10.0)  # mean 10, s0**2 = 2 / 3
    stages = TwoStage(confidence=0.95, precision=0.01, first=first)
    reach = t_quantile(0.95, 3) * math.sqrt(2 / 3)
    assert stages.run_half_width == pytest.approx(reach)
    assert stages.required_runs(max_runs=10**9) == math.ceil((reach / 0.1) ** 2)
    assert stages.required_runs(max_runs=50) == 50
    assert stages.required_runs(max_runs=2) == 4  # never fewer than there are


def test_interval_reaches_the_wanted_precision_with_that_many_runs() -> None:
    stages = TwoStage(confidence=0.95, precision=0.02, first=(9.0, 11.0, 10.0, 10.0))
    runs = stages.required_runs(max_runs=10**9)
    interval = stages.interval([10.0] * runs)
    assert interval.precision <= 0.02
    assert stages.interval([10.0] * (runs - 1)).precision > 0.02


def test_equal_runs_need_no_more() -> None:
    stages = TwoStage(confidence=0.95, precision=1e-9, first=(5.0,) * 6)
    assert stages.required_runs(max_runs=100) == 6
    assert stages.interval([5.0] * 6).half_width == 0


def test_two_stages_cover_as_promised_and_sequential_stopping_would_not() -> None:
    """Normal runs with a spread of 3%, 1% wanted: 95% of intervals hold the true mean."""
    random = np.random.default_rng(0)
    trials, covered, sequential = 2000, 0, 0
    quantiles = [math.inf, math.inf, *(t_quantile(0.95, n - 1) for n in range(2, 400))]
    for _ in range(trials):
        runs = random.normal(1.0, 0.03, 400)
        stages = TwoStage(confidence=0.95, precision=0.01, first=tuple(runs[:6]))
        interval = stages.interval(runs[: stages.required_runs(max_runs=400)].tolist())
        covered += abs(interval.mean - 1.0) <= interval.half_width
        n = 3
        while (half := quantiles[n] * runs[:n].std(ddof=1) / math.sqrt(n)) > 0.01 * runs[:n].mean():
            n += 1
        sequential += abs(runs[:n].mean() - 1.0) <= half
    assert 0.935 <= covered / trials <= 0.965
    assert sequential / trials < 0.93


def test_rates_count_what_ended_after_the_warm_up() -> None:
    run = result([1.0, 2.0, 3.0, 4.0], [2.0, 4.0], measured_from_s=2.0)
    assert measured_s(run) == 2.0
    assert steps_per_s(run).tolist() == [1.0, 0.5]


def test_steps_of_the_warm_up_are_dropped() -> None:
    lengths, staleness = measured_steps(result([1.0, 3.0, 6.0], [2.0, 6.0], measured_from_s=2.0))
    assert lengths.tolist() == [2.0, 3.0, 4.0]
    assert staleness.tolist() == [1, 2, 1]
