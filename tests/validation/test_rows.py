"""Rows: what each kind of claim accepts, and what is said of a row that fails."""

from __future__ import annotations

import pytest

from planner.validation.row import CheckName, Row, Section

CHECK = Section(CheckName("paper", "check"), "so", "there")
ABOUT = ("one", "one")  # case and what is compared


def test_near_is_relative() -> None:
    assert CHECK.near(*ABOUT, 100, 114.9, 0.15).holds
    assert not CHECK.near(*ABOUT, 100, 84.9, 0.15).holds
    assert CHECK.near(*ABOUT, 100, 110, 0.15).error == pytest.approx(0.10)


def test_close_is_absolute() -> None:
    assert CHECK.close(*ABOUT, 4, 5, 1).holds
    assert not CHECK.close(*ABOUT, 4, 6, 1).holds
    assert CHECK.close(*ABOUT, 4, 4, 0).claim == "equal"


@pytest.mark.parametrize(("make", "good", "bad"), [(CHECK.at_least, 3, 2.9), (CHECK.at_most, 3, 3.1)])
def test_one_sided(make: object, good: float, bad: float) -> None:
    assert make(*ABOUT, 5, good, 3).holds  # type: ignore[operator]
    assert not make(*ABOUT, 5, bad, 3).holds  # type: ignore[operator]


def test_nan_never_holds() -> None:
    assert not CHECK.near(*ABOUT, 1, float("nan"), 10).holds
    assert not CHECK.at_least(*ABOUT, 1, float("inf"), 0).holds


def made(holds: bool) -> Row:
    return CHECK.equal(*ABOUT, "a", "a" if holds else "b")


def test_listed_row_may_fail_and_says_why() -> None:
    listed = made(False).mark_known("the paper says less")
    assert listed.is_as_claimed
    assert (listed.status, listed.reason) == ("does not hold", "the paper says less")
    assert not made(False).is_as_claimed
    assert made(False).status == "FAILS"


def test_listed_row_that_holds_is_reported() -> None:
    listed = made(True).mark_known("the paper says less")
    assert listed.status == "holds, listed as failing"
    assert listed.reason == ""
