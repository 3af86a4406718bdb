"""Damaged files: bytes, values and structure of real files changed at random, for fuzzing readers.

`mutate` knows four forms. TOML and JSON are changed as trees and written out again, so that most damage gets
past the parser and meets what lies behind it; protobuf messages are changed field by field with their lengths
mended, tables (CSV) cell by cell; and all are also changed as plain bytes.
"""

from __future__ import annotations

import csv
import io
import json
import random as random_module
import re
import tomllib
from typing import Any, Literal

from planner.servers.tensorflow import runmetadata as wire

# Written where JSON is dumped with a marker, as Python neither reads nor writes so many digits.
LONG_INTEGER = "\u0001long integer\u0001"
DEEP_JSON = "\u0001deep\u0001"
DEPTH = 1_100  # beyond what recursive readers follow

Form = Literal["toml", "json", "wire", "onnx", "csv"]  # wire: a RunMetadata, onnx: a ModelProto
Random = random_module.Random

ODD_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(
        10**30,
        10**308,
        10**400,
        0.0,
        -0.0,
        0.5,
        1e-320,
        1e300,
        1e308,
        -1e308,
        float("inf"),
        float("-inf"),
        float("nan"),
    ),
)
HUGE_SIZES: tuple[Any, ...] = ([2**62] * 8, [[2**62] * 40] * 3)  # their products are infinite
ODD_TEXTS = (
    *("", " ", "x", "input", "$x", "$", "{i}", "{n}", "{layer}/w", "../../etc/passwd", "nan", "1e999", "-1"),
    *(
        "\u0000",
        "\n",
        "a\nb",
        "\u2028",
        "\u0085",
        "\x1b[2J",
        "\ud7ff",
        "\U0001f4a9",
        "a" * 3000,
        "/job:ps/task:99999999999",
        "edge_1_x",
        "^a:0",
        "1-9999",
    ),
    *("inf", "1e309 MB", "9" * 5_000, f"edge_{'9' * 5_000}_x", f"[[{'9' * 400}]]", "1e999 GB"),
)
# Of RunMetadata: which fields of a message are messages themselves.
MESSAGES: dict[int, Any] = {1: {1: {2: {7: {3: {4: {}}}}}}, 3: {1: {5: {2: {}}}}}
_TENSOR_TYPE: dict[int, Any] = {2: {1: {2: {1: {}}}}}  # of a value: type, tensor, shape, dimension
_ATTRIBUTE: dict[int, Any] = {5: {}}  # a tensor
_GRAPH: dict[int, Any] = {1: {5: _ATTRIBUTE}, 5: {}, 11: _TENSOR_TYPE, 12: _TENSOR_TYPE, 13: _TENSOR_TYPE}
SCHEMAS: dict[str, dict[int, Any]] = {"wire": MESSAGES, "onnx": {7: _GRAPH, 8: {}}}


def mutate(data: bytes, form: Form, random: Random, others: list[bytes] | None = None) -> bytes:
    """Some damage, of one kind or several; `others` are files to take pieces from."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = mutate_bytes if random.random() < 0.3 else mutate_structure
        data = change(data, form, random, others or [data])
    return data


def mutate_bytes(data: bytes, form: Form, random: Random, others: list[bytes]) -> bytes:
    """Bytes turned, removed, doubled, cut off, or joined with another file's."""
    if not data:
        return random.randbytes(random.randrange(8))
    at = random.randrange(len(data))
    to = min(len(data), at + random.choice((1, 1, 2, 4, 16, 256)))
    kind = random.randrange(6)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + random.randbytes(to - at) + data[to:]
    if kind == 2:
        return data[:at] + data[to:]
    if kind == 3:
        return data[:to] + data[at:to] * random.choice((1, 1, 2, 50)) + data[to:]
    if kind == 4:
        return data[:at]
    other = random.choice(others)
    return data[:at] + other[random.randrange(len(other) + 1) :]


def mutate_structure(data: bytes, form: Form, random: Random, others: list[bytes]) -> bytes:
    """Values changed, removed, doubled or moved; what cannot be parsed is damaged as bytes."""
    try:
        if form == "csv":
            return _mutated_table(data.decode(), random).encode("utf-8", "surrogatepass")
        if form in SCHEMAS:
            return _encoded(_mutated_message(_message(data, SCHEMAS[form]), random))
        tree = json.loads(data) if form == "json" else tomllib.loads(data.decode())
        tree = _mutated(tree, random, _leaves(tree))
        text = json.dumps(tree) if form == "json" else toml(tree)
        if form == "json":
            text = text.replace(json.dumps(LONG_INTEGER), "9" * 5_000)
            text = text.replace(json.dumps(DEEP_JSON), '{"x": [' * (DEPTH // 2) + "1" + "]}" * (DEPTH // 2))
        return text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError, csv.Error):
        return mutate_bytes(data, form, random, others)


def toml(table: Any) -> str:
    """A table as TOML, all on one level: values that are tables are written inline."""
    table = table if isinstance(table, dict) else {"x": table}
    return "".join(f"{json.dumps(str(key))} = {_toml_value(value)}\n" for key, value in table.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # inf and nan as TOML writes them
    return json.dumps(value) if isinstance(value, str | bool | int) else '""'


def _leaves(tree: Any) -> list[Any]:
    out, todo = [], [tree]
    while todo and len(out) < 500:
        value = todo.pop()
        if isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
        else:
            out.append(value)
    return out


def _odd(random: Random, leaves: list[Any]) -> Any:
    kind = random.randrange(9)
    if kind < 3:
        return random.choice(ODD_NUMBERS)
    if kind == 8:
        return random.choice((LONG_INTEGER, DEEP_JSON))
    if kind == 3:
        return random.choice(ODD_TEXTS)
    if kind == 4 and leaves:
        return random.choice(leaves)
    if kind == 5:
        nested: Any = 1
        for _ in range(random.choice((1, 3, 200))):
            nested = [nested] if random.random() < 0.5 else {"x": nested}
        return nested
    return random.choice(
        (
            True,
            False,
            [],
            {},
            [1, 2],
            ["a", "a"],
            {"name": "a"},
            *HUGE_SIZES,
            random.randrange(1000),
        )
    )


def _mutated(tree: Any, random: Random, leaves: list[Any]) -> Any:
    """The tree with one place changed; only what lies on the way there is copied."""
    if not isinstance(tree, dict | list) or not tree or random.random() < 0.03:
        return _near(tree, random) if random.random() < 0.4 else _odd(random, leaves)
    if isinstance(tree, dict):
        out = dict(tree)
        key = random.choice(list(out))
        kind = random.randrange(12)
        if kind == 0:
            del out[key]
        elif kind == 1:
            out[random.choice((key + "x", *ODD_TEXTS[:4]))] = out.pop(key)
        elif kind == 2:
            out[key], other = out[random.choice(list(out))], out[key]
            out[random.choice(list(out))] = other
        else:
            out[key] = _mutated(out[key], random, leaves)
        return out
    items = list(tree)
    at, kind = random.randrange(len(items)), random.randrange(12)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.insert(random.randrange(len(items) + 1), items[at])
    elif kind == 2:
        random.shuffle(items)
    elif kind == 3:
        items.insert(at, _odd(random, leaves))
    else:
        items[at] = _mutated(items[at], random, leaves)
    return items


def _near(value: Any, random: Random) -> Any:
    """Something like the value: what passes the type and may still be wrong."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(
            (value + 1, value - 1, value + 10, 0, -value, 2 * value, 2**53, 2**63 - 1, 10**400)
        )
    if isinstance(value, float):
        return value * random.choice((0.0, -1.0, 0.5, 2.0, 1e9, 1e-9, 1e200, 1e300))
    if isinstance(value, str) and value:
        digits = list(re.finditer(r"\d+", value))
        if digits and random.random() < 0.3:  # numbers inside of labels, names of edges and shapes
            run = random.choice(digits)
            return value[: run.start()] + "9" * random.choice((20, 400, 5_000)) + value[run.end() :]
        at = random.randrange(len(value))
        return random.choice((value[:at], value[at:], value + value, value[:at] + "/" + value[at:]))
    return value


def _mutated_table(text: str, random: Random) -> str:
    """A table with a cell, a row or a column changed."""
    rows = list(csv.reader(io.StringIO(text))) or [[""]]
    at = random.randrange(len(rows))
    kind = random.randrange(12)
    if kind == 0:
        del rows[at]
    elif kind == 1:
        rows.insert(random.randrange(len(rows) + 1), rows[at])
    elif kind == 2:
        column = random.randrange(max(1, len(rows[0])))
        rows = [row[:column] + row[column + 1 :] for row in rows]
    elif kind == 3:
        rows[at] = rows[at] + [str(random.choice(ODD_NUMBERS))]
    elif rows[at]:
        cell = random.randrange(len(rows[at]))
        old = rows[at][cell]
        numbers = [str(_near(int(old), random))] if old.isdigit() else []
        texts = [*map(str, ODD_NUMBERS), *ODD_TEXTS, *rows[at], *rows[random.randrange(len(rows))]]
        rows[at] = [*rows[at][:cell], random.choice([*numbers * 20, *texts]), *rows[at][cell + 1 :]]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


Field = tuple[int, int, Any]  # number, coding, value: a number, bytes or a list of fields


def _message(data: bytes, schema: dict[int, Any]) -> list[Field]:
    out: list[Field] = []
    for number, kind, a, b in wire.fields(data, 0, len(data)):
        if kind == wire.VARINT:
            out.append((number, kind, a))
        elif kind == wire.BYTES and number in schema:
            out.append((number, kind, _message(data[a:b], schema[number])))
        else:
            out.append((number, kind, data[a:b]))
    return out


def _encoded(message: list[Field]) -> bytes:
    out = bytearray()
    for number, kind, value in message:
        out += _varint(number << 3 | kind)
        if kind == wire.VARINT:
            out += _varint(value)
            continue
        content = _encoded(value) if isinstance(value, list) else value
        out += (_varint(len(content)) if kind == wire.BYTES else b"") + content
    return bytes(out)


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protobuf message of numbers, texts and messages."""
    out: list[Field] = []
    for number, value in fields:
        content = value.encode() if isinstance(value, str) else value
        out.append((number, wire.VARINT if isinstance(content, int) else wire.BYTES, content))
    return _encoded(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _mutated_message(message: list[Field], random: Random) -> list[Field]:
    out = list(message)
    if not out:
        return [(random.randrange(1, 10), wire.VARINT, random.randrange(2**64))]
    at = random.randrange(len(out))
    number, kind, value = out[at]
    choice = random.randrange(14)
    if choice == 0:
        del out[at]
    elif choice == 1:
        out.insert(random.randrange(len(out) + 1), out[at])
    elif choice == 2:
        random.shuffle(out)
    elif choice == 3:
        out[at] = (random.randrange(1, 12), kind, value)
    elif isinstance(value, list):
        out[at] = (number, kind, _mutated_message(value, random))
    elif kind == wire.VARINT:
        numbers = (0, 1, 2**31, 2**53, 2**62, 2**63, 2**64 - 1, value + 1, 2 * value, random.randrange(2**64))
        out[at] = (number, kind, random.choice(numbers))
    else:
        texts = [text.encode("utf-8", "surrogatepass") for text in ODD_TEXTS]
        strings = [v for _, _, v in out if isinstance(v, bytes)]
        out[at] = (
            number,
            kind,
            random.choice([*texts, *strings, mutate_bytes(value, "wire", random, [value])]),
        )
    return out


def slim(data: bytes) -> bytes:
    """A RunMetadata without the fields that nobody reads: a seed that is quick to read and to change."""
    return _encoded(_slim(_message(data, MESSAGES), MESSAGES))


def _slim(message: list[Field], schema: dict[int, Any]) -> list[Field]:
    nodes = schema is MESSAGES[1][1][2] or schema is MESSAGES[3][1]
    attributes = [v for n, _, v in message if n == 5 and isinstance(v, list)] if nodes else []
    named = [v for v in attributes if any(inner[2] == b"tensor_name" for inner in v)]
    return [
        (n, k, _slim(v, schema[n]) if isinstance(v, list) else v)
        for n, k, v in message
        if not nodes or (n <= 8 and n != 6 and not (v in attributes and v not in named))
    ]
