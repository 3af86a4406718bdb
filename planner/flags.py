"""Declaring a flag: its help, how its value is written and parsed, and its section of `--help`.

A flag is declared once: in `planner/search/flags.toml`, with the field of `Request` that holds its value, or
as a `Flag` that a registry contributes (`add_flags`). Command-line options, `PLANNER_*` variables, keys of
scenario files, the keyword arguments of `planner.recommend` and docs/flags.md are generated from it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from planner.errors import BadInput
from planner.units import parse_bandwidth

MAX_COUNTS = 4096  # numbers that one range may name
SMALLEST, LARGEST = 1e-9, 1e18  # of a positive number: what lies outside is a slip of the pen
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_DURATION_S = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# In --help these come first, under a heading of their own.
COMMON = (
    "model",
    "hardware",
    "gpu",
    "budget",
    "deadline",
    "epochs",
    "workers",
    "batch",
    "precision",
    "exchange",
)


class FlagSection(StrEnum):
    """Sections of `--help`, in its order."""

    JOB = "Job"
    MACHINES = "Machines"
    LIMITS = "Limits"
    PARALLELISM = "Parallelism"
    SERVERS = "Parameter servers"
    OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class FlagType:
    """Type of a flag's value: notation in files and Python, parser, and type for typer."""

    written: Any
    parse: Callable[[Any, str], Any] = lambda value, option: value  # of the value and the option's name
    option: type = str
    metavar: str = "TEXT"
    python: str = ""  # annotation of the keyword argument, where Python takes more than files do


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line flag. `name` is its key in files and Python; its parser gives one value per field."""

    name: str
    help: str  # one line with an example value
    section: FlagSection
    kind: FlagType
    fields: tuple[str, ...] = ()
    spellings: tuple[str, ...] = ()  # beside `--name`: "-w"; for a switch "--spot/--on-demand"
    metavar: str | None = None
    commands: tuple[str, ...] = ("compare", "recommend", "saturation", "simulate")
    minimum: int | None = None
    positive: bool = False
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The flag on a command line: `--server-hardware` for `server_hardware`."""
        return option_name(self.name)

    @property
    def variable(self) -> str:
        """Environment variable that sets the flag: `PLANNER_WORKERS` for `workers`."""
        return "PLANNER_" + self.name.upper()

    def parse_fields(self, value: Any) -> dict[str, Any]:
        """Parses a written value into values of request fields, by field name."""
        parsed = self.kind.parse(value, self.option)
        if not self.fields:
            return {"extra": {self.name: parsed}}
        return dict(zip(self.fields, parsed if len(self.fields) > 1 else (parsed,), strict=True))

    def check(self, value: Any) -> None:
        """Raises BadInput if a parsed value is out of range."""
        if value is None:
            return
        if isinstance(value, int) and abs(value) > LARGEST:  # perhaps beyond floats
            raise BadInput(f"{self.option} is beyond {LARGEST:g}; give a smaller number")
        if self.positive and not (math.isfinite(value) and value > 0):
            raise BadInput(f"{self.option} is {value:g}; it must be a number above zero")
        if self.positive and not SMALLEST <= value <= LARGEST:
            raise BadInput(f"{self.option} is {value:g}; it must be between {SMALLEST:g} and {LARGEST:g}")
        if self.minimum is not None and value < self.minimum:
            raise BadInput(f"{self.option} is {value}; it must be at least {self.minimum}")
        if self.choices and value not in self.choices:
            raise BadInput(f"{self.option} is {value!r}; it is one of {', '.join(self.choices)}")
        if value == ():
            raise BadInput(f"{self.option} is empty; name at least one, or leave it out")


def option_name(name: str) -> str:
    """Command-line option of a Python name: `--seq-length` for `seq_length`."""
    return "--" + name.replace("_", "-")


def read_flags(text: str, kinds: Mapping[str, FlagType], helps: Mapping[str, str]) -> tuple[Flag, ...]:
    """Reads flags from TOML, one table each.

    `kinds` are types by name; `helps` are texts not in the file.
    """
    declared = []
    for name, table in tomllib.loads(text).items():
        section, kind = FlagSection[table.pop("section").upper()], kinds[table.pop("type")]
        described = helps.get(name) or table.pop("help")
        more: dict[str, Any] = {"fields": (name,)}
        more |= {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        declared.append(Flag(name, described, section, kind, **more))
    return tuple(declared)


_CONTRIBUTED: dict[str, Flag] = {}


def add_flags(*flags: Flag) -> None:
    """Adds the flags of a mesh axis or a strategy; `Request.extra` holds their values by name."""
    _CONTRIBUTED.update({flag.name: flag for flag in flags})


def flags_of(request: type) -> tuple[Flag, ...]:
    """All flags of a request type: its own (`FLAGS`), then those added with `add_flags`."""
    known = {flag.name for flag in request.FLAGS}  # type: ignore[attr-defined]
    return (*request.FLAGS, *(flag for name, flag in _CONTRIBUTED.items() if name not in known))  # type: ignore[attr-defined]


def parse_names(value: str | Sequence[str], option: str = "") -> tuple[str, ...]:
    """Parses `a,b` or a list into a tuple of stripped, non-empty names."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def parse_counts(value: str | int | Sequence[int | str], option: str) -> tuple[int, ...]:
    """Parses `1,2,4`, `1-8` or a list into whole numbers in ascending order."""
    parts = str(value).split(",") if isinstance(value, str | int) else value
    out: set[int] = set()
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:(?:-|\.\.)\s*(\d{1,7}))?\s*", str(part))
        if not match:
            raise BadInput(f"{option} is {value!r}; write whole numbers as 8 or 1,2,4 or 1-8")
        low, high = int(match[1]), int(match[2] or match[1])
        if not 1 <= low <= high or high - low > MAX_COUNTS:
            raise BadInput(f"{option} is {value!r}; write counts from 1 on as 8, or a rising range as 1-8")
        out.update(range(low, high + 1))
        if len(out) > MAX_COUNTS:
            raise BadInput(f"{option} holds more than {MAX_COUNTS} numbers; give fewer")
    return tuple(sorted(out))


def parse_duration_s(value: str | float, option: str) -> float:
    """Parses `36h`, `90min` or `2d` into seconds; a bare number is hours."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(value).lower())
    if not match or (match[2] or "h") not in _DURATION_S:
        raise BadInput(f"{option} {value!r} is not understood; write it as 36h, 90min or 2d")
    seconds = float(match[1]) * _DURATION_S[match[2] or "h"]
    if not (math.isfinite(seconds) and seconds > 0):
        raise BadInput(f"{option} {value!r} must be above zero")
    return seconds


def parse_share(value: str | float, option: str) -> float:
    """Parses `10%` or 0.1 into a fraction."""
    text = str(value).strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise BadInput(f"{option} is {value!r}; write a share, as 10%") from None


def parse_usd_per_hour(value: str | float, option: str) -> float:
    """Parses `20`, `20/h` or `$20/h` into US dollars per hour."""
    match = re.fullmatch(
        r"\$?\s*(-?[0-9.]+(?:e[0-9]+)?)\s*(?:usd)?\s*(?:/\s*(?:h|hr|hour))?", str(value).lower()
    )
    try:
        return float(match[1] if match else "")
    except ValueError:
        raise BadInput(f"{option} is {value!r}; write US dollars per hour, as 20 or 20/h") from None


def parse_tokens(value: str | float, option: str) -> float:
    """Parses `15B`, `300M`, `2T` or a number into tokens."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKMBTG]?)\s*", str(value))
    try:
        tokens = float(match[1]) * _SUFFIXES[match[2].upper()] if match else math.nan
    except ValueError:
        tokens = math.nan
    if not (math.isfinite(tokens) and tokens > 0):
        raise BadInput(f"{option} is {value!r}; write a number above zero, as 15B, 300M or 2T")
    return tokens


TEXT = FlagType(str)
NUMBER = FlagType(float, option=float, metavar="NUMBER")
WHOLE = FlagType(int, option=int, metavar="N")
SWITCH = FlagType(bool, option=bool, metavar="")
NAMES = FlagType(str | Sequence[str], parse_names, metavar="NAMES")
COUNTS = FlagType(str | int | Sequence[int | str], parse_counts, metavar="N,...")
DURATION = FlagType(str | float, parse_duration_s, metavar="TIME")
SHARE = FlagType(str | float, parse_share, metavar="SHARE")
USD_PER_HOUR = FlagType(str | float, parse_usd_per_hour, metavar="USD")
TOKENS = FlagType(str | float, parse_tokens, metavar="TOKENS")
BANDWIDTH = FlagType(str, lambda value, option: parse_bandwidth(value), metavar="RATE")
