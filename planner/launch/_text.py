"""Serializers of launch files, which keep every name a value, whatever it contains."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.errors import printable

LONGEST_COMMENT = 500
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


def comment_lines(lines: Sequence[str]) -> str:
    """Formats lines as `#` comments; unprintable characters are escaped, so none ends a line."""
    return "".join(f"# {printable(line)[:LONGEST_COMMENT]}\n" for line in lines)


def to_yaml(document: Mapping[str, Any]) -> str:
    """Serializes mappings, lists, texts, numbers and booleans as one YAML document."""
    return "".join(f"{line}\n" for line in _mapping_lines(document, 0))


def quote_shell_word(text: str) -> str:
    """Quotes a text as one shell word; unprintable characters are escaped."""
    return shlex.quote(printable(text))


def dns_label(name: str) -> str:
    """Converts a name to at most 63 lower-case letters, digits and hyphens for Kubernetes and Slurm."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "train"


def _mapping_lines(values: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yields the YAML lines of a mapping in block style, indented by `depth`."""
    for name, value in values.items():
        plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _YAML_WORDS
        yield from _key_value_lines(f"{'  ' * depth}{name if plain else _quote_text(name)}:", value, depth)


def _key_value_lines(head: str, value: Any, depth: int) -> Iterator[str]:
    """Yields the YAML lines of one key and its value, in the shortest style that can hold it."""
    if isinstance(value, Mapping) and value:
        yield head
        yield from _mapping_lines(value, depth + 1)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) and item for item in value):
        yield head
        for item in value:
            first, *rest = _mapping_lines(item, depth + 2)
            yield f"{'  ' * (depth + 1)}- {first.lstrip(' ')}"
            yield from rest
    elif isinstance(value, str) and _can_be_block(value):
        yield f"{head} |"
        yield from (f"{'  ' * (depth + 1)}{line}" for line in value.rstrip("\n").split("\n"))
    else:
        yield f"{head} {_flow_value(value)}"


def _can_be_block(text: str) -> bool:
    """Whether a text can be written as a literal YAML block (`|`)."""
    lines = text.removesuffix("\n").split("\n")
    return (
        text.endswith("\n")
        and all(line and line.isascii() and line.isprintable() for line in lines)
        and not lines[0].startswith(" ")
    )


def _flow_value(value: Any) -> str:
    """Formats a value as YAML in flow style, on one line."""
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow_value, value))}]"
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{_quote_text(name)}: {_flow_value(inner)}' for name, inner in value.items())}}}"
        )
    if value is None or isinstance(value, bool | int | float):
        # YAML 1.1 reads 2e-05 as text: numbers need a point
        return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))
    raise TypeError(f"{type(value).__name__} has no form in YAML here")


def _quote_text(text: str) -> str:
    """Formats a text as double-quoted YAML; non-ASCII characters are escaped by code point."""
    out = []
    for char in text:
        code = ord(char)
        if char in '"\\':
            out.append(f"\\{char}")
        elif 32 <= code < 127:
            out.append(char)
        else:
            out.append(
                f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
            )
    return f'"{"".join(out)}"'
