"""Rows: what each kind of claim accepts, and what is said of a row that fails."""

from __future__ import annotations

import pytest

from planner.validation import row
from planner.validation.row import About, Row, RowName

ABOUT: About = {
    "name": RowName("paper", "check", "one"),
    "what": "one",
    "how": "so",
    "source": "there",
}


def test_near_is_relative() -> None:
    assert row.near(100, 114.9, 0.15, **ABOUT).holds
    assert not row.near(100, 84.9, 0.15, **ABOUT).holds
    assert row.near(100, 110, 0.15, **ABOUT).error == pytest.approx(0.10)


def test_close_is_absolute() -> None:
    assert row.close(4, 5, 1, **ABOUT).holds
    assert not row.close(4, 6, 1, **ABOUT).holds
    assert row.close(4, 4, 0, **ABOUT).claim == "equal"


@pytest.mark.parametrize(("make", "good", "bad"), [(row.at_least, 3, 2.9), (row.at_most, 3, 3.1)])
def test_one_sided(make: object, good: float, bad: float) -> None:
    assert make(5, good, 3, **ABOUT).holds  # type: ignore[operator]
    assert not make(5, bad, 3, **ABOUT).holds  # type: ignore[operator]


def test_nan_never_holds() -> None:
    assert not row.near(1, float("nan"), 10, **ABOUT).holds
    assert not row.at_least(1, float("inf"), 0, **ABOUT).holds


def made(holds: bool) -> Row:
    return row.equal("a", "a" if holds else "b", **ABOUT)


def test_listed_row_may_fail_and_says_why() -> None:
    listed = made(False).mark_known("the paper says less")
    assert listed.as_claimed
    assert (listed.status, listed.reason) == ("does not hold", "the paper says less")
    assert not made(False).as_claimed
    assert made(False).status == "FAILS"


def test_listed_row_that_holds_is_reported() -> None:
    listed = made(True).mark_known("the paper says less")
    assert listed.status == "holds, listed as failing"
    assert listed.reason == ""
