"""Ranges: what they combine, and that they hold what they promise."""

from __future__ import annotations

import csv
import math
from collections import defaultdict

import numpy as np
import pytest

from planner.device.rates import Error, constants, model_error, rate_range
from planner.validation.row import DATA

TENTH = Error("fitted", 0.05, math.log(1.1), 100, "")


def test_without_noise_the_range_is_the_models() -> None:
    assert rate_range(100.0, 0.0, TENTH) == pytest.approx((100 / 1.1, 110.0))
    assert TENTH.range_around(100.0) == pytest.approx((100 / 1.1, 110.0))


def test_both_parts_add_as_squares() -> None:
    low, high = rate_range(100.0, 10.0, TENTH)
    both = math.exp(math.hypot(math.log(1.1), math.log(1.1)))
    assert (low, high) == pytest.approx((100 / both, 100 * both))


def test_error_of_no_figures_has_no_range() -> None:
    assert rate_range(0.0, 0.0, TENTH) == (0.0, 0.0)


def test_surer_bases_have_narrower_ranges() -> None:
    for network in ("cnn", "transformer"):
        widths = [model_error(basis, network).q90 for basis in ("recorded", "fitted", "other vendor")]
        assert widths == sorted(widths)


def test_every_error_says_how_many_runs_it_rests_on() -> None:
    error = model_error("fitted", "cnn")
    assert error.rows > 50
    assert "each source left out" in error.source
    assert 0 < error.median < error.q90 < 1


def test_ranges_hold_nine_of_ten_figures_that_no_fit_had_seen() -> None:
    networks = _networks()
    errors = defaultdict(list)
    with (DATA / "rates_left_out.csv").open() as file:
        for row in csv.DictReader(file):
            for what in ("source", "device", "kind"):
                if row[what] and row["id"] in networks:
                    network = networks[row["id"]]
                    errors[row[f"{what}_basis"], network].append(abs(float(row[what])))
    checked = 0
    for (basis, network), mine in errors.items():
        if len(mine) >= 10:
            held = np.mean(np.array(mine) <= model_error(basis, network).q90)
            assert 0.85 <= held <= 0.97, (basis, network)
            checked += 1
    assert checked >= 5


def _networks() -> dict[str, str]:
    from planner.device.rates import network_class
    from planner.validation.reader import published_runs
    from planner.validation.suites import is_excluded_from_fit, is_without_network
    from planner.validation.throughput import throughput_runs

    runs = (*published_runs()[0], *throughput_runs())
    fitted = (
        run
        for run in runs
        if (is_without_network(run) or run.arch == "llm") and not is_excluded_from_fit(run)
    )
    return {run.id: network_class(run.model) for run in fitted if run.model is not None}


def test_stored_figures_name_their_day_and_rows() -> None:
    figures = constants()
    assert figures.rows > 400
    assert figures.as_of >= "2026-11-17"
    assert set(figures.errors) >= {"recorded", "fitted", "new kind", "matmul", "peaks", "other vendor"}
