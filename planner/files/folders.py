"""Folders of files: the catalogue's, the user's in PLANNER_PATH, and the one that planner keeps data in."""

from __future__ import annotations

import os
from pathlib import Path

from planner.files.regular_file import expanded
from planner.memoize import memoize


def home() -> Path:
    """PLANNER_HOME if it is set, else `planner` where the system keeps a user's data. It need not exist."""
    named, data = os.environ.get("PLANNER_HOME"), os.environ.get("XDG_DATA_HOME")
    return _folder(named) if named else _folder(data or "~/.local/share") / "planner"


def _folder(path: str) -> Path:
    return _expanded(path, os.environ.get("HOME"))


@memoize
def _expanded(path: str, _home: str | None) -> Path:
    """A path with `~` expanded, cached for a home folder: machines look for their prices one by one."""
    return expanded(path)


_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folder(kind: str) -> Path:
    """The catalogue's own `models`, `hardware` or `configs`: inside the package in an installed wheel, at the
    top of a checkout."""
    inside = _PACKAGE / "catalog_data" / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def user_folders() -> tuple[Path, ...]:
    """The folders of PLANNER_PATH, in order."""
    return tuple(_folder(part) for part in os.environ.get("PLANNER_PATH", "").split(os.pathsep) if part)


def looks_like_path(name: str) -> bool:
    """Whether a name given where a catalogue name is expected is a file: it has a slash, or ends in .toml or,
    for one machine of several, in .toml:NAME."""
    return name.endswith(".toml") or ".toml:" in name or "/" in name or os.sep in name
