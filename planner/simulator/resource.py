"""A resource as a value: what it is and which one. Its text stands in predictions, stores and JSON."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """`uplink[0]` is the uplink of server 0; `worker` the computation of all workers; a link has its name."""

    kind: str
    number: int | None = None

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}[{self.number}]"

    @staticmethod
    def read(text: str) -> Resource:
        kind, bracket, number = text.removesuffix("]").rpartition("[")
        return Resource(kind, int(number)) if bracket and number.isdigit() else Resource(text)
