"""Plain values and JSON as typed values: msgspec, one thread at a time.

msgspec 0.22 looks into a type when it first meets it and shows other threads the half of what it has found:
two threads that read their first file at once crash the process. It never lets go of the interpreter's lock,
so that waiting here costs nothing. Messages of what is wrong are the caller's.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_DECODING = threading.Lock()


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """`msgspec.convert`."""
    with _DECODING:
        return msgspec.convert(value, kind, strict=strict)


def from_json(data: bytes, kind: type[T]) -> T:
    """`msgspec.json.decode`. An integer of more digits than Python reads is an error of decoding too."""
    with _DECODING:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError:
            raise
        except ValueError as error:
            raise msgspec.DecodeError(f"JSON is malformed: {error}") from error
