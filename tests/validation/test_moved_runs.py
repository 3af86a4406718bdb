"""Published runs moved from one device to another: what docs/recording.md claims of them; their ranges."""

from __future__ import annotations

import numpy as np

from planner.device.recorded.rescale import rescale_errors
from planner.validation.row import read_data_table


def off(column: str, **wanted: str) -> np.ndarray:
    rows = [
        row
        for row in read_data_table("moved.csv")
        if all(row[name] == value for name, value in wanted.items())
    ]
    return np.abs([float(row[column]) for row in rows if row[column]])


def test_with_the_device_left_out_moving_is_nearer_than_synthesis_and_peaks() -> None:
    moved, synthesis, peaks = (
        float(np.median(off(column, kind="device")))
        for column in ("moved_device", "synthesis_device", "peaks")
    )
    assert moved < synthesis < peaks
    assert len(off("moved_device", kind="device")) > 400


def test_ranges_are_those_of_the_pairs() -> None:
    for basis, column in (("fitted", "moved_source"), ("unseen", "moved_both")):
        for network in ("cnn", "transformer"):
            result = off(column, kind="device", vendors="1", network=network)
            spread = rescale_errors().device[basis][network]
            assert (spread.rows, round(spread.median, 4)) == (len(result), round(float(np.median(result)), 4))
            assert abs(spread.q90 - np.quantile(result, 0.9)) < 1e-4


def test_another_batch_is_predicted_better_by_kind_than_as_the_batch_grows() -> None:
    by_kind, plain = off("moved_source", kind="batch"), off("peaks", kind="batch")
    assert np.median(by_kind) < 0.5 * np.median(plain)
    assert (
        rescale_errors().batch["1"].q90
        < rescale_errors().batch["3"].q90
        < rescale_errors().batch_unrated["3"].q90
    )
