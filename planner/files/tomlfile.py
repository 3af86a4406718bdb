"""TOML and JSON as typed values; errors are one line with file, line, key and the allowed values.

`read_toml` returns the plain values of a TOML file, `decode` turns them into a msgspec type; both raise
`BadInput`.

Decoding is locked: msgspec 0.22 inspects a type at its first use and shows the unfinished result to other
threads, so two threads that read their first file at once crash the process. It holds the interpreter's lock
anyway.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from planner.errors import BadInput
from planner.files.regular_file import read_text

T = TypeVar("T")
Key = str | int
MOST_KEY_PARTS = 32  # of one dotted key; the parser takes the square of it


@dataclass(frozen=True, slots=True)
class TomlSource:
    """A TOML file: its path, text and values."""

    path: Path
    text: str
    data: dict[str, Any]

    def error(self, message: str, key_path: Sequence[Key] = ()) -> BadInput:
        """Builds a BadInput whose message begins with the file, the line and the key."""
        line = line_number(self.text, key_path) if key_path else None
        where = f"{self.path}:{line}" if line else str(self.path)
        names = (f"[{k}]" if isinstance(k, int) else f'."{k}"' if "." in k else f".{k}" for k in key_path)
        key = "".join(names).lstrip(".")  # as layers[3].kernel or machines."p3.2xlarge".vcpus
        return BadInput(f"{where}: {key + ': ' if key_path else ''}{message}")


def read_toml(path: Path | str) -> TomlSource:
    """Reads and parses a TOML file of limited size and nesting."""
    path = Path(path)
    text = read_text(path)
    for line, words in enumerate(text.split("\n"), 1):
        # counting dots is a tenth of the work of looking for keys
        if words.count(".") >= MOST_KEY_PARTS and _LONG_KEY.search(words):
            raise BadInput(f"{path}:{line}: a key of more than {MOST_KEY_PARTS} parts; nest less deeply")
    try:
        return TomlSource(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        what = str(error)[: place.start()] if place else str(error)
        raise BadInput(f"{path}:{line}: not valid TOML: {what}") from error
    except ValueError as error:  # Python reads no more than 4,300 digits as one integer
        raise BadInput(f"{path}: an integer of more than 4,300 digits; TOML has 64 bits for one") from error
    except RecursionError as error:
        raise BadInput(f"{path}: nested too deeply") from error


def decode(source: TomlSource, value: Any, kind: type[T], key_path: Sequence[Key] = ()) -> T:
    """Converts a TOML value to a type; raises BadInput with file, line and key."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        message, inner = _split_error(str(error))
        inner = _resolve_placeholders(value, kind, inner)
        path = [*key_path, *inner]
        if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message):
            structs = [t for t in _types_at(kind, inner) if isinstance(t, type)]
            structs = [t for t in structs if issubclass(t, msgspec.Struct)]
            known = [field.encode_name for struct in structs for field in msgspec.structs.fields(struct)]
            near = difflib.get_close_matches(unknown[1], known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            message = f"unknown key; {hint}allowed: {', '.join(known)}"
            path.append(unknown[1])
        elif missing := re.fullmatch(r"Object missing required field `(.*)`", message):
            message = f"the key {missing[1]!r} is missing"
        elif message.startswith("Invalid enum value"):
            value = message.removeprefix("Invalid enum value ")
            literals = [t for t in _types_at(kind, inner) if typing.get_origin(t) is typing.Literal]
            choices = [str(choice) for literal in literals for choice in typing.get_args(literal)]
            message = f"{value} is not known; allowed: {', '.join(choices)}"
        else:
            message = message.replace("`", "")
            message = message[0].lower() + message[1:]
        raise source.error(message, path) from error


def _split_error(message: str) -> tuple[str, list[Key]]:
    """Splits msgspec's message (``... - at `$.layers[3].kernel` ``) into error and key path."""
    text, _, path = message.partition(" - at `")
    keys = re.findall(r"\[(\d+)\]|\[(\.\.\.)\]|\.([^.\[\]`]+)", path)
    return text, [int(index) if index else some or key for index, some, key in keys]


def _resolve_placeholders(value: Any, kind: Any, path: list[Key]) -> list[Key]:
    """Replaces each `...` in msgspec's key path by the dictionary key whose value is wrong."""
    out: list[Key] = []
    for key in path:
        if key == "..." and isinstance(value, dict):
            key = next((k for k, v in value.items() if not _can_convert(v, _types_at(kind, [k]))), key)
        out.append(key)
        kinds = _types_at(kind, [key])
        kind = kinds[0] if kinds else object
        inside = key in value if isinstance(value, dict) else isinstance(value, list)
        value = value[key] if inside else None
    return out


def _can_convert(value: Any, types: Sequence[Any]) -> bool:
    """Whether a value converts to one of several types."""
    any_of: Any = typing.Union[tuple(types)] if types else Any  # noqa: UP007
    try:
        convert(value, any_of)
    except msgspec.ValidationError:
        return False
    return True


def _types_at(kind: Any, path: Sequence[Key]) -> list[Any]:
    """Types that are allowed for the value at a key path inside a value of this type."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return [found for option in typing.get_args(kind) for found in _types_at(option, path)]
    if typing.get_origin(kind) is typing.Annotated:
        return _types_at(typing.get_args(kind)[0], path)
    if not path:
        return [kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return _types_at(fields[str(path[0])], path[1:]) if path[0] in fields else []
    arguments = typing.get_args(kind)
    return _types_at(arguments[-1 if typing.get_origin(kind) is dict else 0], path[1:]) if arguments else []


_NAME = r'(?:[\w\-]+|"[^"\n]*"|\'[^\'\n]*\')'
_LONG_KEY = re.compile(rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME}){{{MOST_KEY_PARTS}}}")
_HEADER = re.compile(rf"^[ \t]*(\[\[?)[ \t]*({_NAME}(?:\.{_NAME})*)[ \t]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{},=]|[^\s\[\]{},=#"\']+',
    re.DOTALL,
)


def line_number(text: str, key_path: Sequence[Key]) -> int | None:
    """Line number of a key, or of the nearest enclosing table or array; None if there is none."""
    start, end, rest, seen = 0, len(text), list(key_path), 0
    counts: dict[str, int] = {}
    headers = list(_HEADER.finditer(text))
    if headers:
        end = headers[0].start()
    for index, header in enumerate(headers):
        keys: list[Key] = [name.strip("\"'") for name in re.findall(_NAME, header[2])]
        if header[1] == "[[":
            counts[header[2]] = counts.get(header[2], -1) + 1
            keys.append(counts[header[2]])
        if len(keys) > seen and keys == list(key_path[: len(keys)]):
            seen, rest, start = len(keys), list(key_path[len(keys) :]), header.end()
            end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
    position = _value_position(text, start, end, rest)
    if position is None:
        return text.count("\n", 0, start) + 1 if seen else None
    return text.count("\n", 0, position) + 1


def _value_position(text: str, start: int, end: int, path: Sequence[Key]) -> int | None:
    """Character position of the key or item at `path` between two positions; None if absent."""
    tokens = [m for m in _TOKEN.finditer(text, start, end) if not m[0].startswith("#")]
    result, at, closed = None, 0, len(tokens)
    for key in path:
        index, depth, begin = -1 if isinstance(key, str) else 0, 0, None
        for i in range(at, closed):
            token = tokens[i][0]
            if depth == 0 and begin is None:
                if isinstance(key, str):
                    follows = tokens[i + 1][0] if i + 1 < closed else ""
                    if token.strip("\"'") == key and follows == "=":
                        result, begin = tokens[i].start(), i + 2
                elif index == key and token not in ",]":
                    result, begin = tokens[i].start(), i
            if token in "[{":
                depth += 1
            elif token in "]}":
                depth -= 1
            elif token == "," and depth == 0 and isinstance(key, int):
                index += 1
        if begin is None:
            return result
        # the inside of the array or table that begins here, if there is one
        depth, at = 0, begin + 1
        for i in range(begin, closed):
            depth += (tokens[i][0] in "[{") - (tokens[i][0] in "]}")
            if depth == 0:
                closed = i
                break
    return result


_DECODING = threading.Lock()


BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Formats a key as TOML, quoted if necessary."""
    return name if BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Formats a value as TOML; tables are written inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= 10**5:
        return f"{value:_}"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one character that JSON leaves as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return str(value)


def convert(value: Any, kind: type[T], *, strict: bool = True) -> T:
    """Converts a value with `msgspec.convert`, one thread at a time."""
    with _DECODING:
        return msgspec.convert(value, kind, strict=strict)


def from_json(data: bytes, kind: type[T]) -> T:
    """Decodes JSON to a type; deep nesting and oversized integers also raise `msgspec.DecodeError`."""
    with _DECODING:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError:
            raise
        except RecursionError as error:
            raise msgspec.DecodeError("JSON is nested too deeply") from error
        except ValueError as error:
            raise msgspec.DecodeError(f"JSON is malformed: {error}") from error


LONGEST_NAME = 256
LONGEST_OP_NAME = 2048  # C++ signatures of kernels; lists of names


def name_fault(text: str, longest: int = LONGEST_NAME) -> str:
    """Explains why a text cannot be a name; empty string if it can."""
    if len(text) > longest:
        return f"a name of {len(text):,} characters ({text[:20]!r}...); at most {longest} are read"
    if not text.isprintable():
        char = next(char for char in text if not char.isprintable())
        return f"the name {text[:60]!r} holds the character {char!a}; a name is one line of printable text"
    return ""


def check_name(text: str, location: str, longest: int = LONGEST_NAME) -> str:
    """Returns a valid name unchanged; raises BadInput, prefixed by `location`, for an invalid one."""
    if fault := name_fault(text, longest):
        raise BadInput(f"{location}: {fault}")
    return text


def check_names(names: Iterable[str], location: str, longest: int = LONGEST_NAME) -> None:
    """Raises BadInput, prefixed by `location`, if any of the names is invalid."""
    for name in names:
        check_name(name, location, longest)


def find_faulty_name(
    value: Any, prose: frozenset[str], longest: int = LONGEST_NAME
) -> tuple[list[str | int], str] | None:
    """Path and fault of the first invalid name in nested tables; None if all are valid.

    Texts under `prose` keys are no names.
    """
    if isinstance(value, str):
        return ([], fault) if (fault := name_fault(value, longest)) else None
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
        if result := find_faulty_name(inner, prose, longest):
            return [key, *result[0]], result[1]
    return None
