"""The protobuf wire format: a message is a sequence of fields, each with its number and how it is coded.

Unused fields are skipped by their length, so the cost of reading is that of the fields used.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}  # bytes
MAX_NUMBER = 2**29 - 1
AT_ONCE = 256

Field = tuple[int, int, int, int]


class WireError(ValueError):
    """The bytes are not a complete protobuf message."""


def iterate_fields(data: bytes, start: int, end: int, last: int = MAX_NUMBER) -> Iterator[Field]:
    """Yields (number, kind, a, b) per field up to `last`: `a` is a number, data[a:b] a string or message."""
    more = True
    while more:
        some, start = parse_fields(data, start, end, last)
        yield from some
        more = len(some) == AT_ONCE


def parse_fields(data: bytes, at: int, end: int, last: int = MAX_NUMBER) -> tuple[list[Field], int]:
    """Parses up to AT_ONCE fields; returns the fields and the position after them."""
    parts: list[Field] = []
    try:
        while at < end and len(parts) < AT_ONCE:
            start = at
            tag = data[at]
            at += 1
            if tag > 0x7F:
                tag, at = _parse_long_varint(data, start, end)
            number, kind = tag >> 3, tag & 7
            if number > last:
                return parts, start
            if number == 0:
                raise WireError(f"field number 0 at byte {start}")
            if kind == VARINT:
                value = data[at]
                at += 1
                if value > 0x7F:
                    value, at = _parse_long_varint(data, at - 1, end)
                parts.append((number, kind, value, 0))
                continue
            if kind == BYTES:
                length = data[at]
                at += 1
                if length > 0x7F:
                    length, at = _parse_long_varint(data, at - 1, end)
            elif kind in FIXED:
                length = FIXED[kind]
            else:
                raise WireError(f"unknown coding {kind} of field {number} at byte {start}")
            stop = at + length
            if stop > end:
                raise WireError(f"field {number} ends {stop - end} bytes after its message")
            parts.append((number, kind, at, stop))
            at = stop
    except IndexError:
        raise WireError("the data ends inside a field") from None
    if at > end:
        raise WireError("a field ends after its message")
    return parts, at


def decode_text(data: bytes, start: int, end: int) -> str:
    """Decodes a UTF-8 string field."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a name is not UTF-8 ({error.reason})") from error


def _parse_long_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Decodes a varint at a position; returns its value and the position after it."""
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        if shift == 70:
            raise WireError(f"a number of more than 64 bits at byte {at}")
        raise WireError("the data ends inside a number")
    at += shift // 7
    if at > end:
        raise WireError("the data ends inside a number")
    return value & 0xFFFFFFFFFFFFFFFF, at
