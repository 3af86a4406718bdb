"""A model file from its values: TOML with a layer on each line, as one writes it by hand."""

from __future__ import annotations

import json
import re
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_FIRST = ("description", "source")


def toml_of(values: dict[str, Any]) -> str:
    """The text of a model file that holds these values."""
    plain = {k: v for k, v in values.items() if k != "layers" and not isinstance(v, dict)}
    lines = [f"{_key(k)} = {_value(plain.pop(k))}" for k in _FIRST if k in plain]
    lines += [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    lines += ["", *_layers(values["layers"])]
    for name, table in values.items():
        if name == "blocks":
            for block, inside in table.items():
                lines += ["", f"[blocks.{_key(block)}]"]
                lines += [f"{_key(k)} = {_value(v)}" for k, v in inside.items() if k != "layers"]
                lines += _layers(inside["layers"])
        elif isinstance(table, dict):
            lines += ["", f"[{_key(name)}]", *(f"{_key(k)} = {_value(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _layers(items: list[dict[str, Any]]) -> list[str]:
    return ["layers = [", *(f"  {_value(item)}," for item in items), "]"]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value >= 10**5:
        return f"{value:_}"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one character that JSON leaves as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value)
