"""Plain values without a validation library, so that a command starts at once.

Typer 0.29 imports pydantic, 0.15 s of CPU, to convert the first value of any parameter, even a default. Text,
numbers, paths and enums need nothing of it. What is not converted here (lists, other types, every value that
is wrong) goes to typer as before, which also words the error.

This stands on private attributes: `_runtime_param` and `type_descriptor` of a parameter. So it is done only
for the releases of typer that it was tested with; with others typer does everything itself.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import typer

PATCHED = ("0.29",)  # releases of typer; those before need no pydantic, those after were not tried
_LATER = object()
_PATH_CHECKS = ("exists", "resolve_path", "writable", "path_type", "allow_dash")


def speed_up(command: Any) -> None:
    """Give the parameters of a command, and of its subcommands, the short way."""
    if patched():
        _speed_up(command)


def patched() -> bool:
    """Whether the installed typer is one that is helped here."""
    return typer.__version__.rpartition(".")[0] in PATCHED


def _speed_up(command: Any) -> None:
    for param in command.params:
        _shorten(param)
    make_help = command.get_help_option

    def get_help_option(ctx: Any) -> Any:  # the option --help is made when the command runs
        return _shorten(make_help(ctx))

    command.get_help_option = get_help_option
    for inner in getattr(command, "commands", {}).values():
        _speed_up(inner)


def _shorten(param: Any) -> Any:
    if hasattr(param, "_runtime_param") and hasattr(param, "type_descriptor"):
        param._runtime_param = _Plain(param)
    return param


class _Plain:
    """Stands where typer keeps the converter of a parameter."""

    def __init__(self, param: Any) -> None:
        self.kind = param.type_descriptor.annotation
        self.info = param.type_descriptor.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        done = _LATER
        if not (param.multiple or param.nargs != 1 or getattr(self.info, "parser", None)):
            done = None if value is None else self._converted(value)
        if done is _LATER:
            param._runtime_param = None  # typer builds its own
            done = param.get_runtime_param().coerce(value, param=param, ctx=ctx)
        return done

    def _converted(self, value: Any) -> Any:
        kind, info = self.kind, self.info
        if not isinstance(kind, type):
            return _LATER
        if kind is str and isinstance(value, str):
            return value
        if kind is Path and isinstance(value, str | Path):
            checked = any(getattr(info, check, None) for check in _PATH_CHECKS)
            whole = getattr(info, "file_okay", True) and getattr(info, "dir_okay", True)
            return Path(value) if whole and not checked else _LATER
        if issubclass(kind, Enum):
            return next((member for member in kind if value in (member, member.value)), _LATER)
        if kind in (int, float) and not isinstance(value, bool):
            return _number(kind, value, getattr(info, "min", None), getattr(info, "max", None))
        return _LATER


def _number(kind: Any, value: Any, low: float | None, high: float | None) -> Any:
    try:
        number = kind(value)
    except ValueError:
        return _LATER
    if isinstance(value, float) and number != value:  # an int of 1.5
        return _LATER
    inside = (low is None or number >= low) and (high is None or number <= high)
    return number if inside else _LATER
