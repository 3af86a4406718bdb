"""The order of rooms: what a module imports when it is loaded comes from its own room or from one below."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import planner

ROOT = Path(planner.__file__).parent
ROOMS = (  # from the ground up; rooms of one line stand side by side and may know each other
    ("nouns",),
    ("files",),
    ("model", "hardware"),
    ("simulator",),
    ("device",),
    ("parallel",),
    ("search",),
    ("launch", "calibrate"),
    ("answers", "recorder"),
    ("validation",),
    ("report",),
    ("cli",),
    ("servers",),  # a plug-in: nothing below loads it
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# Modules at the top are nouns of the vocabulary, but for these, which stand on the rooms that they speak of.
ON_TOP = {"__main__": "cli"}


def _modules() -> Iterator[tuple[str, str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts), _room(parts), ast.parse(path.read_text())


def _room(parts: tuple[str, ...]) -> str:
    if len(parts) > 1:
        return parts[0]
    return parts[0] if parts[0] in LEVEL else ON_TOP.get(parts[0], "nouns")


def _loaded(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """What a module imports when it is loaded: no import inside of functions or for types only."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("planner"):
            below = tuple(node.module.split(".")[1:])
            yield from [below] if below else [(name.name,) for name in node.names]


def test_rooms_are_loaded_from_the_ground_up() -> None:
    wrong = [
        f"{name} -> {'.'.join(other)}"
        for name, room, tree in _modules()
        if name != "__init__"
        for other in _loaded(tree)
        if LEVEL[_room(other)] > LEVEL[room]
    ]
    assert wrong == []


def test_every_room_has_its_place_and_says_what_lives_there() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms == set(LEVEL) - {"nouns"}
    for room in rooms:
        said = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
        assert said, f"planner/{room}/__init__.py says nothing"


def test_names_of_classes_are_unique() -> None:
    names = Counter(
        node.name for _, _, tree in _modules() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_no_module_is_longer_than_a_reader_keeps_in_mind() -> None:
    lines = sorted(len(path.read_text().splitlines()) for path in ROOT.rglob("*.py"))
    assert lines[-1] <= 400
    assert lines[len(lines) // 2] <= 165  # fragments with one importer are merged: 43,000 lines in 260 files
