"""A reader of the protobuf wire format: enough to read messages whose few fields we know, and no more.

A message is a run of (tag, value); the tag holds the field's number and how its value is coded. Values of
fields nobody asks for are skipped by their length, so reading costs what is used, not what is there.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a protobuf message, or only a part of one."""


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message in data[start:end], as (number, kind, a, b): `a` is the value of a number;
    data[a:b] is the content of a string or of an embedded message."""
    at = start
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = _long_varint(data, at - 1, end)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise WireError(f"field number 0 at byte {at - 1}")
            if kind == BYTES:
                length = data[at]
                at += 1
                if length > 0x7F:
                    length, at = _long_varint(data, at - 1, end)
                stop = at + length
                if stop > end:
                    raise WireError(f"field {number} ends {stop - end} bytes after its message")
                yield number, kind, at, stop
                at = stop
            elif kind == VARINT:
                value = data[at]
                at += 1
                if value > 0x7F:
                    value, at = _long_varint(data, at - 1, end)
                yield number, kind, value, 0
            elif kind in (FIXED64, FIXED32):
                stop = at + (8 if kind == FIXED64 else 4)
                if stop > end:
                    raise WireError(f"field {number} ends after its message")
                yield number, kind, at, stop
                at = stop
            else:
                raise WireError(f"unknown coding {kind} of field {number} at byte {at - 1}")
    except IndexError:
        raise WireError("the data ends inside a field") from None
    if at != end:
        raise WireError("a field ends after its message")


def text(data: bytes, start: int, end: int) -> str:
    """A string field's value."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a name is not UTF-8 ({error.reason})") from error


def _long_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end:
            raise WireError("the data ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError(f"a number of more than 64 bits at byte {at}")
