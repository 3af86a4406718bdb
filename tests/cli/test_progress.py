"""Progress never runs backwards, and says how long the rest takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cli import _output
from planner.cli._output import Meter

ENDS = {"first": 0.25, "second": 0.75}


@given(
    st.lists(st.tuples(st.sampled_from(["first", "second", "other"]), st.integers(0, 9), st.integers(0, 9)))
)
def test_share_never_falls(told: list[tuple[str, int, int]]) -> None:
    meter, last = Meter(ENDS, clock=lambda: 0.0), 0.0
    for stage, done, of in told:
        meter(stage, done, of)
        assert last <= meter.share <= 1.0
        last = meter.share


def test_stage_goes_from_the_end_of_the_one_before_to_its_own() -> None:
    meter = Meter(ENDS)
    for done, share in ((0, 0.0), (1, 0.125), (2, 0.25)):
        meter("first", done, 2)
        assert meter.share == pytest.approx(share)
    meter("second", 1, 2)
    assert meter.share == pytest.approx(0.5)
    meter("second", 1, 10)  # more work than was thought
    assert meter.share == pytest.approx(0.5)
    meter("what nobody named", 1, 2)
    assert meter.share == pytest.approx(0.75)


def test_time_left_is_that_of_the_rest_at_the_same_pace() -> None:
    now = 0.0
    meter = Meter(ENDS, clock=lambda: now)
    meter("first", 0, 1)
    assert meter.remaining_s is None
    now = 10.0
    meter("first", 1, 1)
    assert meter.remaining_s == pytest.approx(30.0)
    assert meter.progress_text == "first, 25%, about 30 s left"


def test_without_a_terminal_a_line_comes_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(_output, "Meter", lambda ends: Meter(ends, clock=lambda: now))
    with _output.show_progress(quiet=False, ends=ENDS) as watch:
        for second in range(13):
            now = float(second)
            watch("first", second, 24)
            watch.on_improvement("Rent 1 x g6e.xlarge")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("planner: first, 5%, about ")
    assert lines[1].endswith("left; best so far: Rent 1 x g6e.xlarge")


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_output, "LOG_EVERY_S", 0.0)
    with _output.show_progress(quiet=True) as watch:
        watch("first", 1, 2)
        watch.on_improvement("something")
    assert capsys.readouterr().err == ""


def test_terminal_shows_the_best_so_far_above_the_bar() -> None:
    from rich.console import Console

    bar = _output.ProgressBar(ENDS)
    bar("first", 1, 1)
    bar.on_improvement("Rent 1 x g6e.xlarge: 729 samples/s")
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(bar)
    first, second = console.export_text().splitlines()[:2]
    assert first.rstrip() == "Best so far: Rent 1 x g6e.xlarge: 729 samples/s"
    assert "first, 25%" in second
