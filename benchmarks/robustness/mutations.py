"""Random damage to real files, for fuzzing readers.

`mutate` knows seven forms. TOML and JSON are changed as trees and serialized again, so most damage gets past
the parser; protobuf messages are changed field by field with correct lengths, as are event files; tables
(CSV) cell by cell, program output word by word; and all of them as plain bytes. Compressed files are changed
inside, and pieces of similar files are grafted in.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random as random_module
import re
import tomllib
import zlib
from functools import lru_cache
from typing import Any, Literal

from planner.files import protobuf as wire

# Written where JSON is dumped with a marker, as Python neither reads nor writes so many digits.
LONG_INTEGER = "\u0001long integer\u0001"
DEEP_JSON = "\u0001deep\u0001"
DEPTH = 1_100  # beyond what recursive readers follow
LARGEST_BYTES = 2**20  # of a file that repeats a piece

# wire: a RunMetadata, onnx: a ModelProto, events: TensorBoard's records
Form = Literal["toml", "json", "wire", "onnx", "csv", "text", "events"]
Random = random_module.Random

ODD_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(10**19, 10**30, 10**308, 2**1024, 10**400, -(10**400), 0.0, -0.0, 0.5, 5e-324, 1e-320, 1e-300),
    *(1e19, 1e154, 1e300, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
)
HUGE_SIZES: tuple[Any, ...] = ([2**62] * 8, [[2**62] * 40] * 3)  # their products are infinite
ODD_TEXTS = (
    *("", " ", "x", "input", "$x", "$", "{i}", "{n}", "{layer}/w", "../../etc/passwd", "nan", "1e999", "-1"),
    *("\u0000", "\n", "a\nb", "\u2028", "\u0085", "\x1b[2J", "\ud7ff", "\U0001f4a9", "\u202e", "a" * 3000),
    *("/job:ps/task:99999999999", "edge_1_x", "^a:0", "1-9999", "a/b", "~nobody/x", "=1+1", "$(id)", "{0.x}"),
    *("inf", "1e309 MB", "9" * 5_000, f"edge_{'9' * 5_000}_x", f"[[{'9' * 400}]]", "1e999 GB", "\u0664", "²"),
)
# Numbers inside of labels, names of edges, sizes and expressions.
ODD_DIGITS = ("0", "-1", "1e400", "nan", *("9" * digits for digits in (20, 400, 5_000)))
# Of RunMetadata: which fields of a message are messages themselves.
MESSAGES: dict[int, Any] = {1: {1: {2: {7: {3: {4: {}}}}}}, 3: {1: {5: {2: {}}}}}
_TENSOR_TYPE: dict[int, Any] = {2: {1: {2: {1: {}}}}}  # of a value: type, tensor, shape, dimension
_ATTRIBUTE: dict[int, Any] = {5: {}}  # a tensor
_NODE: dict[int, Any] = {5: _ATTRIBUTE}
_GRAPH: dict[int, Any] = {1: _NODE, 5: {}, 11: _TENSOR_TYPE, 12: _TENSOR_TYPE, 13: _TENSOR_TYPE}
_ATTRIBUTE[6] = _GRAPH  # a branch
SCHEMAS: dict[str, dict[int, Any]] = {"wire": MESSAGES, "onnx": {7: _GRAPH, 8: {}, 25: {7: _NODE, 9: {}}}}


def mutate(data: bytes, form: Form, random: Random, others: list[bytes] | None = None) -> bytes:
    """Damage a file in one or several ways; `others` are files to take pieces from."""
    packed = data[:2] == b"\x1f\x8b" and random.random() < 0.9
    data = _unpacked(data) if packed else data
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = mutate_bytes if random.random() < 0.3 else mutate_structure
        data = change(data, form, random, others or [data])
    return gzip.compress(data, 1, mtime=0) if packed else data


def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return data


def mutate_bytes(data: bytes, form: Form, random: Random, others: list[bytes]) -> bytes:
    """Flip, remove, repeat or truncate bytes, or splice in another file's."""
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
    """Change, remove, repeat, move or graft values; unparsable files are damaged as bytes."""
    try:
        if form == "csv":
            return _mutated_table(data.decode(), random).encode("utf-8", "surrogatepass")
        if form == "text":
            return _mutated_words(data.decode(), random).encode("utf-8", "surrogatepass")
        if form == "events":
            return _mutated_records(data, random)
        if form in SCHEMAS:
            return _encoded(_mutated_message(_message(data, SCHEMAS[form]), random))
        tree, leaves = _parsed(data, form)
        if random.random() < 0.1:
            other = random.choice(others)
            tree = _grafted(tree, _parsed(other, form)[0], random)
        else:
            tree = _mutated(tree, random, leaves)
        text = json.dumps(tree) if form == "json" else toml(tree)
        opened, closed = ('{"x": [', "]}") if form == "json" else ("{x = [", "]}")
        text = text.replace(json.dumps(LONG_INTEGER), "9" * 5_000)
        text = text.replace(json.dumps(DEEP_JSON), opened * (DEPTH // 2) + "1" + closed * (DEPTH // 2))
        return text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError, csv.Error):
        return mutate_bytes(data, form, random, others)


@lru_cache(maxsize=400)
def _parsed(data: bytes, form: Form) -> tuple[Any, list[Any]]:
    """A file's tree and some of its leaves; mutations copy what they change."""
    tree = json.loads(data) if form == "json" else tomllib.loads(data.decode())
    return tree, _leaves(tree)


def _grafted(tree: Any, other: Any, random: Random) -> Any:
    """The tree with a key or item of another file's at a common depth."""
    if isinstance(tree, dict) and isinstance(other, dict) and other:
        key = random.choice(list(other))
        inner = tree.get(key)
        deeper = isinstance(inner, dict | list) and random.random() < 0.7
        return {**tree, key: _grafted(inner, other[key], random) if deeper else other[key]}
    if isinstance(tree, list) and isinstance(other, list) and other:
        at = random.randrange(len(tree) + 1)
        if at < len(tree) and random.random() < 0.5:
            return [*tree[:at], _grafted(tree[at], random.choice(other), random), *tree[at + 1 :]]
        return [*tree[:at], random.choice(other), *tree[at:]]
    return other


def toml(table: Any) -> str:
    """A table as TOML on one level, with inline tables for nested ones."""
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
    containers: tuple[Any, ...] = ([], {}, [1, 2], ["a", "a"], [[]], {"": {}}, {"name": "a"}, *HUGE_SIZES)
    return random.choice((True, False, None, *containers, random.randrange(1000)))


def _mutated(tree: Any, random: Random, leaves: list[Any]) -> Any:
    """The tree with one place changed; only the path to it is copied."""
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
    elif kind == 4 and random.random() < 0.05:
        size = len(str(items[at])) + 8
        items[at:at] = [items[at]] * min(random.choice((100, 5_000)), LARGEST_BYTES // size)
    else:
        items[at] = _mutated(items[at], random, leaves)
    return items


def _near(value: Any, random: Random) -> Any:
    """A value like the given one: of the same type, or with the same meaning in another."""
    if random.random() < 0.1:
        text = "9" * 5_000 if isinstance(value, int) and abs(value) >= 10**4000 else str(value)
        return random.choice((text, [value], {"x": value}, None))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        same = float(value) if abs(value) < 2**63 else 0.0
        near = (value + 1, value - 1, value + 10, 0, -value, 2 * value, same)
        return random.choice((*near, 2**53, 2**63 - 1, 2**63, 10**19, 10**400))
    if isinstance(value, float):
        return value * random.choice((0.0, -1.0, 0.5, 2.0, 1e9, 1e-9, 1e200, 1e300, 1e-300))
    if isinstance(value, str) and value:
        digits = list(re.finditer(r"\d+", value))
        if digits and random.random() < 0.5:  # numbers inside of labels, names of edges and shapes
            run = random.choice(digits)
            return value[: run.start()] + random.choice(ODD_DIGITS) + value[run.end() :]
        at = random.randrange(len(value))
        return random.choice((value[:at], value[at:], value + value, value[:at] + "/" + value[at:]))
    return value


def _mutated_table(text: str, random: Random) -> str:
    """A table with one cell, row or column changed."""
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


def _mutated_words(text: str, random: Random) -> str:
    """Program output with one word or line changed."""
    lines = text.split("\n")
    at, kind = random.randrange(len(lines)), random.randrange(10)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        lines[at:at] = [lines[at]] * min(1_000, LARGEST_BYTES // (len(lines[at]) + 1))
    else:
        words = re.split(r"(\s+)", lines[at])
        word = random.randrange(len(words))
        words[word] = str(_near(words[word], random) if random.random() < 0.7 else random.choice(ODD_TEXTS))
        lines[at] = "".join(words)
    return "\n".join(lines)


EVENT: dict[int, Any] = {5: {1: {8: {}}}}  # summary, value, tensor


def _mutated_records(data: bytes, random: Random) -> bytes:
    """Event files with one record changed, removed or repeated, with correct lengths."""
    records, at = list[bytes](), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        records.append(data[at + 12 : at + 12 + size])
        at += size + 16
    at, kind = random.randrange(len(records) or 1), random.randrange(8)
    if kind == 0:
        del records[at : at + random.choice((1, 10))]
    elif kind == 1:
        records[at:at] = records[at : at + 1] * random.choice((1, 100))
    elif records:
        records[at] = _encoded(_mutated_message(_message(records[at], EVENT), random))
    return b"".join(len(record).to_bytes(8, "little") + b"crc4" + record + b"crc4" for record in records)


Field = tuple[int, int, Any]  # number, coding, value: a number, bytes or a list of fields


def _message(data: bytes, schema: dict[int, Any]) -> list[Field]:
    out: list[Field] = []
    for number, kind, a, b in wire.iterate_fields(data, 0, len(data)):
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
    """Encode a protobuf message of numbers, texts and messages."""
    out: list[Field] = []
    for number, value in fields:
        content = value.encode(errors="surrogatepass") if isinstance(value, str) else value
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
    elif choice == 4 and random.random() < 0.05:
        times = random.choice((100, 2_000))
        size = len(_encoded([out[at]])) + 1
        out[at:at] = [out[at]] * min(times, LARGEST_BYTES // 4 // size)
    elif choice == 5 and isinstance(value, list) and random.random() < 0.1:
        content = _encoded(value)
        for _ in range(random.choice((3, 100, 600))):  # inside itself
            content = _encoded([*value, (number, wire.BYTES, content)])[: LARGEST_BYTES // 4]
        out[at] = (number, wire.BYTES, content)
    elif isinstance(value, list):
        out[at] = (number, kind, _mutated_message(value, random))
    elif kind == wire.VARINT:
        numbers = (0, 1, 2**31, 2**53, 2**62, 2**63, 2**64 - 1, value + 1, 2 * value, random.randrange(2**64))
        out[at] = (number, kind, random.choice(numbers))
    else:
        texts = [text.encode("utf-8", "surrogatepass") for text in ODD_TEXTS]
        strings = [v for _, _, v in out if isinstance(v, bytes)]
        near = str(_near(value.decode("latin-1"), random)).encode("latin-1", "replace")
        changed = mutate_bytes(value, "wire", random, [value])
        out[at] = (number, kind, random.choice([*texts, *strings, *[near] * 20, *[changed] * 5]))
    return out


def slim(data: bytes) -> bytes:
    """A RunMetadata without unread fields, quick to read and mutate."""
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
