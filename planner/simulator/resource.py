"""What is busy in a run, as a value: of which kind and which one. Text is made of it at the edges alone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class ResourceKind(StrEnum):
    """The values are the words of files and JSON."""

    DOWNLINK = "downlink"
    WORKER = "worker"
    UPLINK = "uplink"
    PS = "ps"
    HOST = "host"
    WORKER_DOWNLINK = "worker downlink"
    WORKER_UPLINK = "worker uplink"
    LINK = "link"


class Resource(NamedTuple):
    """`uplink[0]` is the uplink of server 0; `worker` the computation of all workers. A link between workers
    may have a name of its own (`fabric`), and a number where several go by one name."""

    kind: ResourceKind
    number: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        word = self.name or self.kind.value
        return word if self.number is None else f"{word}[{self.number}]"

    @property
    def unnumbered(self) -> Resource:
        """What it has in common with others that differ in their number alone."""
        return self._replace(number=None)

    @staticmethod
    def link(name: str, number: int | None = None) -> Resource:
        return Resource(ResourceKind.LINK, number, name)

    @staticmethod
    def read(text: str) -> Resource:
        """Of the text that stands in stores and studies."""
        word, bracket, digits = text.removesuffix("]").rpartition("[")
        numbered = bool(bracket) and digits.isdigit()
        word, number = (word, int(digits)) if numbered else (text, None)
        return Resource(ResourceKind(word), number) if word in _KINDS else Resource.link(word, number)


_KINDS = frozenset(kind.value for kind in ResourceKind)
COMPUTATION = Resource(ResourceKind.WORKER)
HOSTS = Resource(ResourceKind.HOST)
FABRIC = Resource.link("fabric")  # between the devices of a machine
NETWORK = Resource.link("network")  # between machines


def as_text(used: Mapping[Resource, float]) -> dict[str, float]:
    """Figures by resource as files and JSON have them."""
    return {str(resource): value for resource, value in used.items()}
