"""The machines of a request by their names. A plan holds names; those that the request gave as files of the
user's own are found there first, so that they hide the same names of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from planner.catalog import load_hardware, match_hardware
from planner.catalog_folders import looks_like_path
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.search.request import Request


def machine_of(name: str, request: Request) -> Hardware:
    """The machine that a plan of this request calls by a name."""
    return _own(request).get(name) or load_hardware(name)


def machines_of(words: Iterable[str], request: Request) -> tuple[Hardware, ...]:
    """The machines that names, patterns and files mean, each once and in order."""
    own = _own(request)
    return tuple(own.get(kind.name, kind) for kind in match_hardware(",".join(words)))


def _own(request: Request) -> dict[str, Hardware]:
    """The machines that the request names by their files."""
    own: dict[str, Hardware] = {}
    for word in ",".join((*request.hardware, *request.server_hardware)).split(","):
        if not looks_like_path(word):
            continue
        machine = load_hardware(word.strip())
        if own.setdefault(machine.name, machine) != machine:
            raise BadInput(f"{word}: another file has a machine {machine.name!r} too; rename one of them")
    return own
