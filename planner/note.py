"""A sentence that stands with an answer, and what it is about: what it rests on, what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """What a sentence is about, by the word that stands before it."""

    PLAN = "Plan"
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


@dataclass(frozen=True, slots=True)
class Note:
    """`Collectives (NCCL): ...`: a topic, what of it where that matters, and the sentence."""

    topic: Topic | None
    text: str
    of: str | None = None

    @property
    def heading(self) -> str:
        if self.topic is None:
            return ""
        return self.topic.value if self.of is None else f"{self.topic.value} ({self.of})"

    def __str__(self) -> str:
        return self.text if self.topic is None else f"{self.heading}: {self.text}"


@dataclass(frozen=True, slots=True)
class LeftOut(Note):
    """Machines that were not looked at, for one reason."""

    machines: tuple[str, ...] = ()
    reason: str = ""

    @staticmethod
    def because(machines: Sequence[str], reason: str) -> LeftOut:
        text = f"{', '.join(machines)} {reason}."
        return LeftOut(Topic.LEFT_OUT, text, machines=tuple(machines), reason=reason)
