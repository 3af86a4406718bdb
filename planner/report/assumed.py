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
    """Notes that state the facts among an answer's assumptions."""
    return [item if isinstance(item, Note) else fact_note(item) for item in assumed]


def fact_note(fact: Fact) -> Note:
    """Sentence that states a fact, with its topic and a shorter clause for terminals."""
    template = TEMPLATES[fact.name]
    brief = template.get("brief")
    clause = None if brief is None else fill_template(brief, fact.values)
    return Note(Topic(template["topic"]), fill_template(template["text"], fact.values), brief=clause)


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


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """Replaces the placeholders of a template; bracketed parts with an empty value are left out."""

    def keep_if_known(part: re.Match[str]) -> str:
        """Text of a bracketed part; empty string if one of its values is empty."""
        names = [name for _, name, _, _ in _FORMATTER.parse(part[1]) if name]
        return part[1] if all(values[name] for name in names) else ""

    return _FORMATTER.vformat(re.sub(r"\[([^]]*)]", keep_if_known, template), (), values)


class _Formatter(Formatter):
    """Formats template values by `FORMATS`, as Python does, or as `singular|plural` by number."""

    def format_field(self, value: Any, spec: str) -> str:
        """Formats one value as its template field asks."""
        if "|" in spec:
            number = value if isinstance(value, int) else len(value)
            return spec.split("|")[number != 1]
        return FORMATS[spec](value) if spec in FORMATS else format(value, spec)


_FORMATTER = _Formatter()


def _hourly_price_words(prices: Sequence[tuple[str, float]]) -> list[str]:
    """Machines with their prices per hour, as text."""
    return [f"{machine} {usd(usd_per_hour)}/h" for machine, usd_per_hour in prices]


def _device_rates_words(device_basis: tuple[str, str]) -> str:
    """Text on the source of a device's kernel rates, such as measured or estimated."""
    device, basis = device_basis
    return f"{device} rates {BASES[basis]}" if device and basis in BASES else basis


def _link_name(kind: str) -> str:
    """Name of a kind of link between devices, such as NVLink, for people."""
    from planner.report.hardware import LINKS

    return LINKS[kind]


FORMATS: dict[str, Callable[[Any], str]] = {
    "all prices": lambda prices: listing(_hourly_price_words(prices), len(prices)),
    "bandwidth": format_bandwidth,
    "bytes": format_bytes,
    "count": format_count,
    "few prices": lambda prices: listing(_hourly_price_words(prices), FEW),
    "limit": limit_usd,
    "link": _link_name,
    "list": lambda values: ", ".join(map(str, values)),
    "names": lambda names: listing(list(names)),
    "or": lambda values: " or ".join(map(str, values)),
    "prices": lambda prices: ", ".join(_hourly_price_words(prices)),
    "rate": rate,
    "rates": _device_rates_words,
}
