"""TOML files read into typed structs, with errors that name the file, the line, the key and what is allowed.

Used by every reader of `hardware/`; a table is converted piece by piece so that the message can say which
machine or device of a file is wrong.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from planner.errors import BadInput

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]+)`(?: - at `(?P<at>[^`]+)`)?")
_AT = re.compile(r" - at `\$?\.?(?P<at>[^`]+)`$")


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; an unreadable or broken file is one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not valid TOML: {error}") from None


def convert(table: object, into: type[T], path: Path, where: str) -> T:
    """A table as a struct; `where` is the table's name in the file, as in `machines."p3.2xlarge"`."""
    try:
        return msgspec.convert(table, type=into, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(_explain(str(error), into, path, where)) from None


def _explain(message: str, into: type[Any], path: Path, where: str) -> str:
    if unknown := _UNKNOWN.search(message):
        key = unknown["key"]
        at = (unknown["at"] or "$").removeprefix("$").lstrip(".")
        place = f"{where}.{at}" if at else where
        allowed = [] if at else [f.encode_name for f in msgspec.structs.fields(into)]
        near = difflib.get_close_matches(key, allowed, n=2)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        listing = f"; allowed: {', '.join(allowed)}" if allowed and not near else ""
        return f"{path}{_line(path, where, key)}: [{place}] has an unknown key {key!r}{hint}{listing}"
    at = _AT.search(message)
    key = at["at"] if at else ""
    text = _AT.sub("", message)
    name = f"key {key!r}: " if key else ""
    return f"{path}{_line(path, where, key)}: [{where}] {name}{text[:1].lower()}{text[1:]}"


def _line(path: Path, where: str, key: str) -> str:
    """`:12`, the line of a key below its table's header, as far as a search of the text finds it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    plain = where.replace('"', "")
    start = next(
        (i for i, line in enumerate(lines) if line.strip().strip("[]").replace('"', "") == plain), -1
    )
    if key:
        pattern = re.compile(rf'^\s*"?{re.escape(key.split(".", maxsplit=1)[0])}"?\s*=')
        for i in range(start + 1, len(lines)):
            if pattern.match(lines[i]):
                return f":{i + 1}"
    return f":{start + 1}" if start >= 0 else ""
