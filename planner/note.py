"""What accompanies an answer besides its figures: facts that it assumes, notes in sentences, progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Progress = Callable[[str, int, int], None]  # stage, done, of


def ignore_progress(stage: str, done: int, total: int) -> None:
    """No-op progress callback."""


class Topic(StrEnum):
    """Subject of an assumption, as the word before its colon."""

    PLAN = "Plan"
    MEMORY = "Memory"
    JOB = "Job"
    BUDGET = "Budget"
    MACHINES = "Machines"
    PRICE = "Price"
    PRICES = "Prices"
    SPOT = "Spot"
    ENERGY = "Energy"
    NETWORK = "Network"
    COMPUTE = "Compute"
    BATCH = "Batch"
    INPUT = "Input"
    MEASURED = "Measured"
    TRAINING = "Training"
    TRANSFERS = "Transfers"
    COLLECTIVES = "Collectives"
    REPLICAS = "Replicas"
    WARNING = "Note"
    LEFT_OUT = "Left out"
    SEARCH = "Search"
    SOURCE = "Source"


@dataclass(frozen=True, slots=True)
class Note:
    """Sentence with a topic and optionally a part of it: `Collectives (NCCL): ...`."""

    topic: Topic | None
    text: str
    of: str | None = None
    brief: str | None = None  # a clause instead of the text where room is short; empty: left out there

    @property
    def heading(self) -> str:
        """Topic and, in parentheses, its part: `Collectives (NCCL)`."""
        if self.topic is None:
            return ""
        return self.topic.value if self.of is None else f"{self.topic.value} ({self.of})"

    def __str__(self) -> str:
        return self.text if self.topic is None else f"{self.heading}: {self.text}"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that an answer assumes: a name and values; `report/assumed.toml` has its sentence."""

    name: str
    values: Mapping[str, Any]


def fact(name: str, **values: Any) -> Fact:
    """Builds the fact of this name, with the values that its sentence states."""
    return Fact(name, values)


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why machines were left out: a verb in the singular (`has`) and the rest of a clause."""

    verb: str
    rest: str

    def clause(self, machines: int) -> str:
        """The reason as a clause: `has no price` for one machine, `have no price` for several."""
        plural = {"has": "have", "does": "do"}.get(self.verb, self.verb.removesuffix("s"))
        return f"{self.verb if machines == 1 else plural} {self.rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(Note):
    """Note on machines that were left out for one reason."""

    machines: tuple[str, ...]
