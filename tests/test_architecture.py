"""The order of packages (docs/architecture.md): a module is loaded with modules of its own package or
below."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import planner

ROOT = Path(planner.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
PLUG_INS = ("servers",)  # nothing below loads them


def _levels() -> dict[str, int]:
    """The line of each package in the picture, from the ground up; top-level modules are the ground."""
    picture = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    names = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    levels: dict[str, int] = {"nouns": 0}
    for level, line in enumerate(reversed(picture.splitlines()), 1):
        for word in re.findall(r"[a-z]+", line[:50]):  # what follows says what they hold
            if word in names:
                levels.setdefault(word, level)
    return levels | dict.fromkeys(PLUG_INS, 1000)


LEVEL = _levels()
# Modules at the top are nouns of the vocabulary, but for these, which stand on the packages that they speak
# of.
ON_TOP = {"__main__": "cli"}


def _modules() -> Iterator[tuple[str, str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts), _package(parts), ast.parse(path.read_text())


def _package(parts: tuple[str, ...]) -> str:
    if len(parts) > 1:
        return parts[0]
    return parts[0] if parts[0] in LEVEL else ON_TOP.get(parts[0], "nouns")


def _loaded(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """What a module imports when it is loaded: no import inside of functions or for types only."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("planner"):
            below = tuple(node.module.split(".")[1:])
            yield from [below] if below else [(name.name,) for name in node.names]


def test_packages_are_loaded_from_the_ground_up() -> None:
    wrong = [
        f"{name} -> {'.'.join(other)}"
        for name, package, tree in _modules()
        if name != "__init__"
        for other in _loaded(tree)
        if LEVEL[_package(other)] > LEVEL[package]
    ]
    assert wrong == []


def test_every_package_has_its_place_and_says_what_lives_there() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(LEVEL) - {"nouns"}
    for package in packages:
        said = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text()))
        assert said, f"planner/{package}/__init__.py says nothing"


def test_names_of_classes_are_unique() -> None:
    names = Counter(
        node.name for _, _, tree in _modules() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_no_module_is_longer_than_a_reader_keeps_in_mind() -> None:
    lines = sorted(len(path.read_text().splitlines()) for path in ROOT.rglob("*.py"))
    assert lines[-1] <= 400
    # Fragments with one importer are merged: lower these with every merge, towards 43,000 lines in 260 files.
    assert len(lines) <= 239
    assert sum(lines) <= 55_500


def test_every_file_that_the_page_names_exists() -> None:
    checkout, page = PAGE.parents[1], PAGE.read_text()
    named = re.findall(r"`([\w./*]+/[\w./*]*)`", page)
    assert len(named) > 20
    for name in named:
        assert list(checkout.glob(name.rstrip("/"))) or list(ROOT.glob(name.rstrip("/"))), name


def test_page_stays_one_page_with_ten_steps_of_recommend() -> None:
    page = PAGE.read_text()
    assert len(page.split()) < 600
    assert re.findall(r"^(\d+)\. `", page, re.MULTILINE) == [str(step) for step in range(1, 11)]
