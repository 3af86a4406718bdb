"""One line of the validation: what was published or measured, what we get, what is claimed, and whether it
holds. Rows are made by the functions below, each for one kind of claim, so that none is typed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypedDict, Unpack

from planner.validation.figures import figures

Value = float | str


class CheckName(NamedTuple):
    """What can be asked for: `li/saturation`."""

    paper: str
    check: str

    def __str__(self) -> str:
        return "/".join(self)


class RowName(NamedTuple):
    """A row of a check: `li/saturation/batch-32`."""

    paper: str
    check: str
    case: str

    @property
    def of(self) -> CheckName:
        return CheckName(self.paper, self.check)

    def __str__(self) -> str:
        return "/".join(self)


class About(TypedDict):
    """What a row is, how ours was found, and where the published figure stands."""

    name: RowName
    what: str
    how: str
    source: str


def of_paper(paper: str, how: str) -> Callable[[str, str, str], About]:
    """What rows of a paper say of themselves, by their check, their case and what they are."""
    given = figures(paper)

    def about(check: str, case: str, what: str) -> About:
        source = f"{given['paper']}, {given[check]['source']}"
        return {"name": RowName(paper, check, case), "what": what, "how": how, "source": source}

    return about


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`error` is ours relative to the published figure, where both are numbers.
    `known` says that the row is listed as not holding (`data/known.toml`), `reason` why."""

    name: RowName
    what: str
    published: Value
    ours: Value
    claim: str
    holds: bool
    how: str
    source: str
    error: float | None = None
    unit: str = ""
    reason: str = ""
    known: bool = False
    varies: bool = False  # depends on the machine that runs it: not compared between runs

    @property
    def status(self) -> str:
        if self.holds:
            return "holds, listed as failing" if self.known else "holds"
        return "does not hold" if self.known else "FAILS"

    @property
    def as_claimed(self) -> bool:
        """Whether the row does what we say of it. One that is listed as failing and holds is good news, and
        its entry in the list is out of date."""
        return self.holds or self.known

    def record(self) -> dict[str, Any]:
        """The row as JSON and CSV have it."""
        return asdict(self) | {"name": str(self.name)}

    def listed(self, reason: str) -> Row:
        """The row as one of the listed ones; the reason is shown only where it is needed."""
        return replace(self, known=True, reason="" if self.holds else reason)


def near(published: float, ours: float, tolerance: float, *, unit: str = "", **about: Unpack[About]) -> Row:
    """Ours within `tolerance` (a share) of the published figure."""
    error = ours / published - 1
    return _row(
        about, published, ours, f"within {tolerance:.0%}", abs(error) <= tolerance, error=error, unit=unit
    )


def close(published: float, ours: float, distance: float, *, unit: str = "", **about: Unpack[About]) -> Row:
    """Ours at most `distance` away, in the figure's own unit."""
    claim = "equal" if distance == 0 else f"within {distance:g} {unit if distance != 1 else unit.rstrip('s')}"
    return _row(
        about,
        published,
        ours,
        claim.rstrip(),
        abs(ours - published) <= distance,
        error=ours / published - 1 if published else None,
        unit=unit,
    )


def equal(published: str, ours: str, **about: Unpack[About]) -> Row:
    """Ours is the same."""
    return _row(about, published, ours, "equal", published == ours)


def at_least(published: float, ours: float, least: float, *, unit: str = "", **about: Unpack[About]) -> Row:
    """Ours at `least` or above."""
    return _row(about, published, ours, f"at least {least:g}", ours >= least, unit=unit)


def at_most(published: float, ours: float, most: float, *, unit: str = "", **about: Unpack[About]) -> Row:
    """Ours at `most` or below."""
    return _row(about, published, ours, f"at most {most:g}", ours <= most, unit=unit)


def stated(published: str, ours: str, holds: bool, claim: str, **about: Unpack[About]) -> Row:
    """A statement of a paper about an order or a shape, and whether ours has it."""
    return _row(about, published, ours, claim, holds)


def workers(count: int) -> str:
    """`1 worker`, `4 workers`."""
    return f"{count} worker" + ("s" if count != 1 else "")


def _row(
    about: About,
    published: Value,
    ours: Value,
    claim: str,
    holds: bool,
    *,
    error: float | None = None,
    unit: str = "",
) -> Row:
    finite = not isinstance(ours, float) or math.isfinite(ours)
    return Row(
        **about,
        published=published,
        ours=ours,
        claim=claim,
        holds=bool(holds) and finite,
        error=error,
        unit=unit,
    )


Check = Callable[[], list[Row]]
