"""One validation row: the published or measured value, ours, the claim, and whether it holds. Rows are
created by the methods of `Section`, one for each kind of claim, so that no verdict is typed in."""

from __future__ import annotations

import csv
import gzip
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from planner.errors import BadInput
from planner.memoize import memoize
from planner.simulator.step import Profile

T = TypeVar("T")

LARGEST_BYTES = 2**26  # of a user's table
DATA: Traversable = files("planner.validation") / "data"


@memoize
def load_figures(name: str) -> dict[str, Any]:
    """Contents of `data/<name>.toml`; cached."""
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))


def reading_of(row: Mapping[str, str], table: str, name: str) -> Any:
    """Entry of a `data/reading.toml` table by source and name, else by name; None if absent."""
    entries = load_figures("reading")[table]
    return entries.get(f"{row['source_id']}, {name}", entries.get(name))


def read_data_table(*path: str) -> list[dict[str, str]]:
    """Rows of a CSV file in `data/`."""
    return list(csv.DictReader(DATA.joinpath(*path).read_text("utf-8").splitlines()))


def read_packed_table(name: str) -> list[dict[str, str]]:
    """Rows of a gzipped CSV file in `data/`."""
    return list(csv.DictReader(gzip.decompress((DATA / name).read_bytes()).decode().splitlines()))


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a user's CSV file, which may be gzipped."""
    from planner.files.regular_file import read_bytes
    from planner.files.tomlfile import LONGEST_OP_NAME, check_names

    try:
        words = read_bytes(path, LARGEST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no CSV file in UTF-8; write it as one") from None
    try:
        rows = list(csv.DictReader(words.splitlines()))
    except csv.Error as error:
        raise BadInput(f"{path} is no CSV file: {error}") from None
    for line, row in enumerate(rows, 2):
        check_names(
            (cell for cell in row.values() if isinstance(cell, str)), f"{path}:{line}", LONGEST_OP_NAME
        )
    return [{key: value or "" for key, value in row.items() if key} for row in rows]


@memoize
def load_profile(*path: str) -> Profile:
    """Loads a profile from `data/`."""
    from planner.simulator.step.files import load

    with as_file(DATA.joinpath(*path)) as file:
        return load(file)


def compute_once(function: Callable[[], T]) -> Callable[[], T]:
    """Decorator that computes a function's value on the first call, from any thread, and caches it."""
    lock, made = Lock(), memoize(function)

    def get() -> T:
        """Result of the function, computed in the first call only."""
        with lock:
            return made()

    return get


# the columns of tables of runs

WHOLE = (
    *("micro_batch", "grad_accum", "global_batch", "dp", "tp", "pp", "cp", "ep"),
    *("devices_per_node", "nodes", "devices"),
)
NUMBERS = (
    *("inter_gbps_per_node", "memory_gib", "samples_per_s_global", "tokens_per_s_global", "metric_value"),
    *("step_time_s", "params_total", "peak_tflops"),
)
TEXTS = (
    *("id", "source_id", "series", "model", "arch", "seq_or_image", "precision_norm", "optimizer", "note"),
    *("strategy", "strategy_norm", "ckpt_norm", "framework", "flags", "device", "device_mem_gb"),
    *("intra_class", "inter_net", "inter_basis", "metric_unit"),
)
MOST_WHOLE, MOST = 10**7, 1e15  # beyond these a figure is a slip of the pen
SHARDED = {
    **{"fsdp": "zero3/fsdp", "zero-3": "zero3/fsdp", "zero3": "zero3/fsdp"},
    **{"zero-2": "zero2", "zero2": "zero2", "zero-1": "zero1", "zero1": "zero1"},
}


def fill_columns(row: Mapping[str, str], line: int, name: str) -> dict[str, str]:
    """Completes a user's row with every column, deriving missing ones from others where possible."""
    full = dict.fromkeys((*TEXTS, *WHOLE, *NUMBERS), "") | {key: text.strip() for key, text in row.items()}
    full["id"] = full["id"] or f"line {line}"
    full["source_id"] = full["source_id"] or name
    full["arch"] = full["arch"] or ("llm" if full["seq_or_image"].isdecimal() else "cnn")
    full["precision_norm"] = full["precision_norm"] or full.get("precision", "").lower() or "fp32"
    full["ckpt_norm"] = full["ckpt_norm"] or full.get("act_ckpt", "").lower() or "none"
    full["strategy_norm"] = full["strategy_norm"] or _inferred_strategy(full)
    return full


def figure_problem(row: Mapping[str, str]) -> str:
    """Text on the first malformed number in a row; empty string if all are well-formed. Batches in words
    ("1024 tokens") pass."""
    for name in (*WHOLE, *NUMBERS):
        text = row[name]
        if not text or (name in ("micro_batch", "global_batch") and " " in text):
            continue
        value = parse_number(text)
        if name in WHOLE and not (value is not None and 1 <= value <= MOST_WHOLE and value == int(value)):
            return f"{name} is {text[:40]!r}, not a whole number from 1 on"
        if value is None or not 1e-9 <= value <= MOST:
            return f"{name} is {text[:40]!r}, not a number above zero"
    return ""


def parse_number(text: str) -> float | None:
    """Parses a number; None if the text is not one."""
    try:
        return float(text)
    except ValueError:
        return None


def parse_count(text: str) -> int | None:
    """Parses a positive whole number; None if the text is not one."""
    value = parse_number(text)
    return int(value) if value is not None and value == value // 1 and 1 <= value <= MOST_WHOLE else None


def _inferred_strategy(row: Mapping[str, str]) -> str:
    """Strategy of a row, from its words and degrees of parallelism."""
    words = row["strategy"].lower()
    for word, strategy in SHARDED.items():
        if word in words:
            return strategy
    if any(row[degree] not in ("", "1") for degree in ("tp", "pp")):
        return "3d"
    return "single" if row["devices"] == "1" else "ddp"


Value = float | str


class CheckName(NamedTuple):
    """Name of a check: `li/saturation`."""

    paper: str
    check: str

    def __str__(self) -> str:
        return "/".join(self)


class RowName(NamedTuple):
    """Name of a row in a check: `li/saturation/batch-32`."""

    paper: str
    check: str
    case: str

    @property
    def check_name(self) -> CheckName:
        """Name of the check that the row belongs to."""
        return CheckName(self.paper, self.check)

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim: a published value, our value, and whether the claim holds. `error` is ours relative to the
    published value if both are numbers. `known`: whether the row is listed as failing in `data/known.toml`,
    with its `reason`."""

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
        """Whether the row holds, and whether it is listed as failing, in words."""
        if self.holds:
            return "holds, listed as failing" if self.known else "holds"
        return "does not hold" if self.known else "FAILS"

    @property
    def is_as_claimed(self) -> bool:
        """Whether the row holds or is listed as failing."""
        return self.holds or self.known

    def record(self) -> dict[str, Any]:
        """Fields of the row by name, for JSON and CSV."""
        return asdict(self) | {"name": str(self.name)}

    def mark_known(self, reason: str) -> Row:
        """Copy of the row, marked as listed in known.toml; the reason is kept only if it fails."""
        return replace(self, known=True, reason="" if self.holds else reason)


def workers_label(count: int) -> str:
    """Count and noun: `1 worker`, `4 workers`."""
    return f"{count} worker" + ("s" if count != 1 else "")


Check = Callable[[], list[Row]]


@dataclass(frozen=True)
class Section:
    """One check of a paper: its published figures, and the source that its rows cite. Its methods make rows,
    of which `case` and `what` say what is compared; `how` and `source` replace those of the section."""

    name: CheckName
    how: str  # ours is found
    source: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def near(self, case: str, what: str, published: float, ours: float, tolerance: float, **more: Any) -> Row:
        """Row that holds if our value is within `tolerance` (a fraction) of the published one."""
        error = ours / published - 1
        holds = abs(error) <= tolerance
        return self._row(case, what, (published, ours), f"within {tolerance:.0%}", holds, error=error, **more)

    def close(self, case: str, what: str, published: float, ours: float, distance: float, **more: Any) -> Row:
        """Row that holds if our value differs by at most `distance`, in the unit of the figure."""
        unit = more.get("unit", "")
        units = unit if distance != 1 else unit.rstrip("s")
        claim = "equal" if distance == 0 else f"within {distance:g} {units}".rstrip()
        error = ours / published - 1 if published else None
        holds = abs(ours - published) <= distance
        return self._row(case, what, (published, ours), claim, holds, error=error, **more)

    def equal(self, case: str, what: str, published: str, ours: str, **more: Any) -> Row:
        """Row that holds if our text equals the published one."""
        return self._row(case, what, (published, ours), "equal", published == ours, **more)

    def at_least(self, case: str, what: str, published: float, ours: float, least: float, **more: Any) -> Row:
        """Row that holds if our value is at least `least`."""
        return self._row(case, what, (published, ours), f"at least {least:g}", ours >= least, **more)

    def at_most(self, case: str, what: str, published: float, ours: float, most: float, **more: Any) -> Row:
        """Row that holds if our value is at most `most`."""
        return self._row(case, what, (published, ours), f"at most {most:g}", ours <= most, **more)

    def stated(  # noqa: PLR0917 (a sentence: what, published, ours, and whether the claim holds)
        self, case: str, what: str, published: str, ours: str, holds: bool, claim: str, **more: Any
    ) -> Row:
        """Row for a statement on an order or a trend, which the caller has judged."""
        return self._row(case, what, (published, ours), claim, holds, **more)

    def _row(
        self,
        case: str,
        what: str,
        values: tuple[Value, Value],
        claim: str,
        holds: bool,
        *,
        error: float | None = None,
        how: str = "",
        source: str = "",
        unit: str = "",
    ) -> Row:
        """Row of this section; it does not hold if a value is not finite."""
        published, ours = values
        return Row(
            name=RowName(*self.name, case),
            what=what,
            published=published,
            ours=ours,
            claim=claim,
            holds=bool(holds) and (isinstance(ours, str) or math.isfinite(ours)),
            how=how or self.how,
            source=source or self.source,
            error=error,
            unit=unit,
        )


class Paper:
    """Checks of one paper, with published figures from `data/<name>.toml`."""

    def __init__(self, name: str, how: str = "") -> None:
        self.name, self.how, self.figures = name, how, load_figures(name)
        self.checks: dict[str, Check] = {}

    def check(
        self, figures_of: str = ""
    ) -> Callable[[Callable[[Section], Iterable[Row]]], Callable[[Section], Iterable[Row]]]:
        """Decorator that registers `check_NAME`, a generator of rows, as the paper's check NAME."""

        def register(rows: Callable[[Section], Iterable[Row]]) -> Callable[[Section], Iterable[Row]]:
            """Registers a generator of rows under its name without the prefix."""
            name = rows.__name__.removeprefix("check_")
            given = self.figures[figures_of or name]
            source = f"{self.figures['paper']}, {given['source']}"
            section = Section(CheckName(self.name, name), self.how, source, given)
            self.checks[name] = lambda: list(rows(section))
            return rows

        return register
