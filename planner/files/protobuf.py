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
    """Yields each field as (number, kind, a, b): a number's value is `a`, other contents are data[a:b].

    Stops at the first field with a number above `last`.
    """
    more = True
    while more:
        some, start = parse_fields(data, start, end, last)
        yield from some
        more = len(some) == AT_ONCE


def parse_fields(data: bytes, position: int, end: int, last: int = MAX_NUMBER) -> tuple[list[Field], int]:
    """Parses up to AT_ONCE fields from a position; returns them and the position after them."""
    parts: list[Field] = []
    try:
        while position < end and len(parts) < AT_ONCE:
            start = position
            tag = data[position]
            position += 1
            if tag > 0x7F:
                tag, position = _parse_long_varint(data, start, end)
            number, kind = tag >> 3, tag & 7
            if number > last:
                return parts, start
            if number == 0:
                raise WireError(f"field number 0 at byte {start}")
            if kind == VARINT:
                value = data[position]
                position += 1
                if value > 0x7F:
                    value, position = _parse_long_varint(data, position - 1, end)
                parts.append((number, kind, value, 0))
                continue
            if kind == BYTES:
                length = data[position]
                position += 1
                if length > 0x7F:
                    length, position = _parse_long_varint(data, position - 1, end)
            elif kind in FIXED:
                length = FIXED[kind]
            else:
                raise WireError(f"unknown coding {kind} of field {number} at byte {start}")
            stop = position + length
            if stop > end:
                raise WireError(f"field {number} ends {stop - end} bytes after its message")
            parts.append((number, kind, position, stop))
            position = stop
    except IndexError:
        raise WireError("the data ends inside a field") from None
    if position > end:
        raise WireError("a field ends after its message")
    return parts, position


def decode_text(data: bytes, start: int, end: int) -> str:
    """Decodes a UTF-8 string field."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a name is not UTF-8 ({error.reason})") from error


def _parse_long_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Decodes a varint at a position; returns its value and the position after it."""
    value = shift = 0
    for byte in data[position : position + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        if shift == 70:
            raise WireError(f"a number of more than 64 bits at byte {position}")
        raise WireError("the data ends inside a number")
    position += shift // 7
    if position > end:
        raise WireError("the data ends inside a number")
    return value & 0xFFFFFFFFFFFFFFFF, position
