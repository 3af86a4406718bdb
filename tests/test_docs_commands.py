"""Every `planner` command of README and the docs parses: its command, its flags and their values exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from planner.cli._app import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOT_COMMANDS = ("validation",)  # generated pages name the checks of papers


def commands(page: Path) -> list[str]:
    """The lines of code blocks that begin with `planner`, continued lines joined, remarks cut off."""
    text = page.read_text().replace("\\\n", " ")
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    lines += [line for block in re.findall(r"```\w*\n(.*?)```", text, re.S) for line in block.splitlines()]
    return [
        re.split(r" {3,}|  +#| # ", line.removeprefix("$ "))[0].strip()
        for line in lines
        if re.match(r"(\$ )?planner [a-z]", line)
    ]


FOUND = [
    pytest.param(command, id=f"{page.name}: {command}")
    for page in PAGES
    if not page.name.startswith(NOT_COMMANDS)
    for command in dict.fromkeys(commands(page))
]


def test_pages_hold_commands() -> None:
    assert len(FOUND) > 60


@pytest.mark.parametrize("text", FOUND)
def test_command_parses(text: str) -> None:
    _, name, *words = [word for word in shlex.split(text) if word != "..."]
    assert name in COMMANDS
    command = load_command(name)
    while words and words[0] in getattr(command, "commands", {}):
        name, *words = words
        command = command.commands[name]
    with command.make_context(name, list(words)):
        pass
