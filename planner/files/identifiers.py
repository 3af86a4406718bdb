"""Names that files give to things: machines, devices, providers, models, tensors.

A name ends up in scripts, manifests, pages and terminals. So it is one line of printable text of bounded
length, which is checked where the file is read; what cannot be printed never enters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.errors import BadInput

LONGEST_NAME = 256
LONGEST_OP_NAME = 2048  # C++ signatures among the kernels of a trace


def name_fault(text: str, longest: int = LONGEST_NAME) -> str:
    """Why a text cannot be a name; empty if it can."""
    if len(text) > longest:
        return f"a name of {len(text):,} characters ({text[:20]!r}...); at most {longest} are read"
    if not text.isprintable():
        char = next(char for char in text if not char.isprintable())
        return f"the name {text[:60]!r} holds the character {char!a}; a name is one line of printable text"
    return ""


def check_name(text: str, place: str, longest: int = LONGEST_NAME) -> str:
    """The name itself, or an error that begins with the place where it stands."""
    if fault := name_fault(text, longest):
        raise BadInput(f"{place}: {fault}")
    return text


def check_names(names: Iterable[str], place: str, longest: int = LONGEST_NAME) -> None:
    """The same for many names of one place."""
    for name in names:
        check_name(name, place, longest)


def faulty_name(value: Any, prose: frozenset[str]) -> tuple[list[str | int], str] | None:
    """Where in nested tables a key or text cannot be a name, and why; texts under keys of `prose` may have
    several lines."""
    if isinstance(value, str):
        return ([], fault) if (fault := name_fault(value)) else None
    if isinstance(value, Mapping):
        items: Iterable[tuple[str | int, Any]] = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        return None
    for key, inner in items:
        if isinstance(key, str) and (fault := name_fault(key)):
            return [], fault
        if key in prose and isinstance(inner, str):
            continue
        if result := faulty_name(inner, prose):
            return [key, *result[0]], result[1]
    return None
