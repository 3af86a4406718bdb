"""The page of any answer. An answer names its page in `page_maker`, so that plug-ins bring their own."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from planner.report.page import Page


def page_of(result: Any, command: str = "", *, energy: bool = False) -> Page:
    """The page of an answer; `command` is shown as the way to get it again."""
    module, _, name = result.page_maker.rpartition(".")
    page: Page = getattr(import_module(module), name)(result, energy=energy)
    return replace(page, command=command)


def write_html(result: Any, path: Path | str, command: str = "") -> None:
    """Write the page of an answer as one HTML file."""
    from planner.report.html import write_page

    write_page(page_of(result, command), path)
