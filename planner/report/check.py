"""A check in words: the run, the prediction, what would explain the difference, what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.answers.answer_files import ChosenPlan
from planner.answers.checking import Check
from planner.report.output import Column, Table
from planner.search.measured import Measured, factor_for, load


def check_lines(
    found: Check, plan: ChosenPlan, kept: Measured | None, *, asked: bool = False
) -> Iterator[str]:
    """What a check says, a line at a time; `asked`: the run was to be kept."""
    where = "inside" if found.inside else "outside"
    yield (
        f"{plan.cluster}: measured {found.measured_samples_per_s:,.4g} samples/s, predicted "
        f"{found.predicted_samples_per_s:,.4g} ({found.low:,.4g} to {found.high:,.4g}): {where} of the "
        f"range, {found.factor - 1:+.1%}."
    )
    if found.culprits:
        first, *others = found.culprits
        yield f"Likeliest: {first.words}."
        yield from (f"Or: {one.words}." for one in others)
    if kept is None and asked and found.absurd:
        yield (
            f"Not kept: {found.factor:.2g} times the prediction is more than a wrong assumption explains; "
            "see that the rate is samples/s of all workers and the run is that of the answer, or add --force."
        )
    if kept is not None:
        factor = factor_for(load(), kept.device, kept.reach)
        assert factor is not None
        yield (
            f"Kept: answers for {kept.device} ({_REACH[kept.reach]}) count with {factor.words}; "
            f"`planner check --forget {kept.device}` takes it back."
        )


def check_table(found: Check, lines: Sequence[str]) -> Table:
    """A check for a page: what it says, and the run beside the prediction."""
    rows = [
        {"what": "measured", "samples_per_s": found.measured_samples_per_s},
        {"what": "predicted", "samples_per_s": found.predicted_samples_per_s},
        {"what": "at least, in nine of ten runs", "samples_per_s": found.low},
        {"what": "at most, in nine of ten runs", "samples_per_s": found.high},
    ]
    columns = [Column("what", ""), Column("samples_per_s", "samples/s", show=lambda value: f"{value:,.4g}")]
    return Table(rows, columns, title=lines[0], notes=lines[1:])


_REACH = {"device": "one device", "machine": "one machine", "machines": "several machines"}


def kept_lines() -> Iterator[str]:
    """The runs that are kept, numbered."""
    runs = load()
    if not runs:
        yield "no runs are kept; `planner check ANSWER.json --measured RATE` keeps one"
    for number, run in enumerate(runs, 1):
        note = f" ({run.note})" if run.note else ""
        yield (
            f"{number}  {run.as_of}  {run.device}, {_REACH[run.reach]}, {run.model} in {run.precision}: "
            f"{run.measured_samples_per_s:,.4g} of {run.predicted_samples_per_s:,.4g} samples/s, "
            f"x {run.factor:.3g}{note}"
        )
