"""The pages of `check` and `diff`: a real run beside its prediction, and two answers side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.answers.checking import Check, Suspect
from planner.answers.differing import Difference
from planner.report.format import percent, rate, ratio, span
from planner.report.page import Column, Page, Remark, Table
from planner.search.measured import Measured, factor_for, load

if TYPE_CHECKING:
    from planner.answers.answer_files import ChosenPlan

_REACH = {"device": "one device", "machine": "one machine", "machines": "several machines"}
SUSPECTS = {
    "device": "the device computes {times} than assumed",
    "network": "communication and waiting that compute does not hide take {times}",
    "input": "each step waits {times} of its time for input or the host",
}


def check_page(
    checked: Check, plan: ChosenPlan, kept: Measured | None, *, title: str = "", asked: bool = False
) -> Page:
    """A run and its prediction, what would explain the difference, and what is kept; `asked`: the run was to
    be kept."""
    where = "inside" if checked.inside else "outside"
    rows = [
        {"what": "measured", "samples_per_s": checked.measured_samples_per_s},
        {"what": "predicted", "samples_per_s": checked.predicted_samples_per_s},
        {"what": "low end of the 90% range", "samples_per_s": checked.low},
        {"what": "high end of the 90% range", "samples_per_s": checked.high},
    ]
    causes = [
        f"{'Most likely' if not place else 'Or'}: {suspect_words(suspect)}."
        for place, suspect in enumerate(checked.suspects)
    ]
    return Page(
        title or "planner check",
        "Measured",
        f"{rate(checked.measured_samples_per_s)} samples/s on {plan.cluster}, "
        f"{checked.factor - 1:+.1%} against the prediction",
        [
            [
                f"predicted {rate(checked.predicted_samples_per_s)} samples/s "
                f"({span(checked.low, checked.high)})",
                f"the run is {where} the range",
            ]
        ],
        [Remark("Cause", causes)] if causes else [],
        [Table(rows, [Column("what", ""), Column("samples_per_s", "samples/s", show=rate)])],
        [Remark("Kept", _kept_words(checked, kept, asked))],
    )


def suspect_words(suspect: Suspect) -> str:
    """What an assumption would have to be to explain the run."""
    if suspect.name == "input":
        times = percent(suspect.wait_share)
    elif suspect.name == "network":
        times = f"{ratio(suspect.times)} as long"
    else:
        times = (
            f"{ratio(suspect.times)} slower" if suspect.times > 1 else f"{ratio(1 / suspect.times)} faster"
        )
    return SUSPECTS[suspect.name].format(times=times)


def _kept_words(checked: Check, kept: Measured | None, asked: bool) -> list[str]:
    if kept is None:
        if not (asked and checked.absurd):
            return []
        return [
            f"no: {ratio(checked.factor)} the prediction is more than a wrong assumption explains. Check "
            "that the rate is samples/s of all workers and that the answer is of this run, or add --force."
        ]
    factor = factor_for(load(), kept.device, kept.reach)
    assert factor is not None
    return [
        f"answers for {kept.device} ({_REACH[kept.reach]}) now use {factor.words}; "
        f"`planner check --forget {kept.device}` undoes it."
    ]


def kept_lines() -> Iterator[str]:
    """The runs that are kept, numbered."""
    runs = load()
    if not runs:
        yield "no runs are kept; `planner check ANSWER.json --measured RATE` keeps one"
    for number, run in enumerate(runs, 1):
        note = f" ({run.note})" if run.note else ""
        yield (
            f"{number}  {run.as_of}  {run.device}, {_REACH[run.reach]}, {run.model} in {run.precision}: "
            f"{rate(run.measured_samples_per_s)} of {rate(run.predicted_samples_per_s)} samples/s, "
            f"factor {run.factor:.3g}{note}"
        )


def diff_page(difference: Difference, title: str = "planner diff") -> Page:
    """What the change brings first, then what is run differently."""
    columns = [Column("name", ""), Column("old", align="right"), Column("new", align="right")]
    change = Column("ratio", "change", lambda value: f"{value - 1:+.1%}", "right")
    change_words = "no figures to compare"
    speed = next((figure for figure in difference.figures if figure.ratio is not None), None)
    if speed is not None and speed.ratio is not None:
        change_words = f"{speed.ratio - 1:+.1%} {speed.name}"
    tied = [] if difference.apart else ["The speeds are statistically tied: a run may show the other order."]
    tables = [Table([asdict(figure) for figure in difference.figures], [*columns, change], notes=tied)]
    if difference.settings:
        rows = [asdict(setting) for setting in difference.settings]
        tables.append(Table(rows, columns, title="Settings that differ"))
    same = [] if difference.settings else [Remark("Settings", ["the same."])]
    return Page(
        title,
        "Change",
        change_words,
        tables=tables,
        then=same,
        data=lambda: difference,
    )
