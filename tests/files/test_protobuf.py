"""The protobuf wire reader, against bytes written by hand from the format's description."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.files.protobuf import BYTES, FIXED32, FIXED64, VARINT, WireError, decode_text, iterate_fields


def varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1) | st.binary(max_size=300))))
def test_protobuf_round_trip_keeps_values(message):
    data = b""
    for number, value in message:
        if isinstance(value, int):
            data += varint(number << 3 | VARINT) + varint(value)
        else:
            data += varint(number << 3 | BYTES) + varint(len(value)) + value
    read = [
        (number, a if kind == VARINT else data[a:b])
        for number, kind, a, b in iterate_fields(data, 0, len(data))
    ]
    assert read == message


def test_fixed_fields_are_skipped_by_their_width():
    data = (
        varint(1 << 3 | FIXED64) + b"12345678" + varint(2 << 3 | FIXED32) + b"1234" + varint(3 << 3) + b"\x05"
    )
    assert [(n, data[a:b] if b else a) for n, _, a, b in iterate_fields(data, 0, len(data))] == [
        (1, b"12345678"),
        (2, b"1234"),
        (3, 5),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # a tag and no value
        b"\x08\x80",  # half a number
        b"\x08" + b"\xff" * 10 + b"\x01",  # more than 64 bits
        b"\x0a\x05abc",  # a string longer than its message
        b"\x09\x01",  # half of a fixed64
        b"\x00\x00",  # field 0
        b"\x0b",  # a group, which proto3 does not have
        b"\x8a",  # half a tag
    ],
)
def test_broken_data_is_refused(data):
    with pytest.raises(WireError):
        list(iterate_fields(data, 0, len(data)))


def test_name_must_be_text():
    with pytest.raises(WireError, match="UTF-8"):
        decode_text(b"\xff\xfe", 0, 2)
