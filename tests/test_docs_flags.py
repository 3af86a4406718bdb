"""docs/flags.md lists every flag of the answers, and none that does not exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import typer

from planner.cli._app import COMMANDS, module_of

PAGE = (Path(__file__).parents[1] / "docs" / "flags.md").read_text()


def flags_of(name: str) -> set[str]:
    module = importlib.import_module(module_of(name))
    if not hasattr(module, "command"):
        return set()
    one = typer.Typer(add_completion=False)
    one.command()(module.command)
    params = typer.main.get_command(one).params
    return {flag for param in params for flag in (*param.opts, *param.secondary_opts) if flag[:2] == "--"}


def test_the_page_and_the_commands_have_the_same_flags() -> None:
    there = {flag for name in COMMANDS for flag in flags_of(name)} - {"--help"}
    told = {
        flag for cell in re.findall(r"^\| `([^`]+)`", PAGE, re.M) for flag in re.findall(r"--[\w-]+", cell)
    }
    assert told == there
    assert {"--gpu", "--provider", "--all", "--explain", "--export", "--fail-over"} <= told


def test_the_page_names_the_commands_of_every_flag() -> None:
    there: dict[str, set[str]] = {}
    for name in COMMANDS:
        for flag in flags_of(name) - {"--help"}:
            there.setdefault(flag, set()).add(name)
    told: dict[str, set[str]] = {}
    for cell, commands in re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", PAGE, re.M):
        for flag in re.findall(r"--[\w-]+", cell):
            told.setdefault(flag, set()).update(commands.split(", "))
    assert told == there


def test_the_help_and_the_pages_name_every_exchange() -> None:
    from planner.cli._answers import ExchangeOption
    from planner.parallel.data import EXCHANGES

    (option,) = ExchangeOption.__metadata__
    exchanges = (Path(__file__).parents[1] / "docs" / "exchanges.md").read_text()
    for kind in EXCHANGES:
        assert kind in option.help
        assert f"| `{kind}` |" in exchanges
