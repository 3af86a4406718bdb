"""The assumptions of an answer in words: one sentence per fact, and a shorter clause for screens.

The sentences are templates in `assumed.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from string import Formatter
from typing import Any

from planner.note import Fact, LeftOut, Note, Topic
from planner.units import count, format_bandwidth, format_bytes, format_count, limit_usd, listing, rate, usd

SENTENCES = (Topic.WARNING, Topic.PRICES)  # shown as they are on a screen
CLAUSES = (  # joined to one sentence
    Topic.JOB,
    Topic.MACHINES,
    Topic.PRICE,
    Topic.SPOT,
    Topic.COMPUTE,
    Topic.MEASURED,
    Topic.BATCH,
    Topic.INPUT,
    Topic.LEFT_OUT,
)
FEW = 3  # machines that a clause has room for
BASES = {  # of the rates of a device
    "recorded": "as recorded",
    "fitted": "fitted on published runs",
    "new kind": "fitted on other kinds of networks",
    "matmul": "from its matmul benchmarks",
    "peaks": "from its published peaks",
    "other vendor": "as uncertain as other vendors' libraries",
}


TEMPLATES: dict[str, dict[str, str]] = tomllib.loads(
    (files("planner.report") / "assumed.toml").read_text("utf-8")
)


def notes_of(assumed: Iterable[Note | Fact]) -> list[Note]:
    """Converts the facts among assumptions to notes."""
    return [item if isinstance(item, Note) else fact_note(item) for item in assumed]


def fact_note(fact: Fact) -> Note:
    """The sentence that states a fact, with its topic and its clause for terminals."""
    template = TEMPLATES[fact.name]
    brief = template.get("brief")
    clause = None if brief is None else fill(brief, fact.values)
    return Note(Topic(template["topic"]), fill(template["text"], fact.values), brief=clause)


def brief_notes(notes: Sequence[Note], *, energy: bool = False) -> list[str]:
    """Assumptions for a terminal: one sentence of short clauses, then warnings and prices."""
    computes = [
        note for note in notes if note.topic is Topic.COMPUTE
    ]  # one for each device, the choice first
    kept = [note for note in notes if note.topic in CLAUSES and note not in computes[1:]]
    left = sum(len(note.machines) for note in kept if isinstance(note, LeftOut))
    joined = [
        (note.text if note.brief is None else note.brief).rstrip(".")
        for note in kept
        if not isinstance(note, LeftOut)
    ]
    joined += [f"{count(left, 'machine')} left out"] if left else []
    said = ["; ".join(filter(None, joined)) + "."] if any(joined) else []
    wanted = (*SENTENCES, Topic.ENERGY) if energy else SENTENCES
    said += [str(note) for note in notes if note.topic in wanted]
    more = len(notes) - len(said)
    return [*said, f"--explain lists all {len(notes)} assumptions."] if said and more > 0 else said


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Fills in a template; a part in brackets is left out if one of its values is empty."""

    def keep_if_known(part: re.Match[str]) -> str:
        names = [name for _, name, _, _ in _FORMATTER.parse(part[1]) if name]
        return part[1] if all(values[name] for name in names) else ""

    return _FORMATTER.vformat(re.sub(r"\[([^]]*)]", keep_if_known, template), (), values)


class _Formatter(Formatter):
    """Formats the values of templates: by `FORMATS`, as Python does, or `singular|plural` by number."""

    def format_field(self, value: Any, spec: str) -> str:
        if "|" in spec:
            number = value if isinstance(value, int) else len(value)
            return spec.split("|")[number != 1]
        return FORMATS[spec](value) if spec in FORMATS else format(value, spec)


_FORMATTER = _Formatter()


def _priced(prices: Sequence[tuple[str, float]]) -> list[str]:
    return [f"{machine} {usd(usd_per_hour)}/h" for machine, usd_per_hour in prices]


def _device_rates(device_basis: tuple[str, str]) -> str:
    device, basis = device_basis
    return f"{device} rates {BASES[basis]}" if device and basis in BASES else basis


def _link_name(kind: str) -> str:
    from planner.report.hardware import LINKS

    return LINKS[kind]


FORMATS: dict[str, Callable[[Any], str]] = {
    "all prices": lambda prices: listing(_priced(prices), len(prices)),
    "bandwidth": format_bandwidth,
    "bytes": format_bytes,
    "count": format_count,
    "few prices": lambda prices: listing(_priced(prices), FEW),
    "limit": limit_usd,
    "link": _link_name,
    "list": lambda values: ", ".join(map(str, values)),
    "names": lambda names: listing(list(names)),
    "or": lambda values: " or ".join(map(str, values)),
    "prices": lambda prices: ", ".join(_priced(prices)),
    "rate": rate,
    "rates": _device_rates,
}
