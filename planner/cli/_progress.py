"""Progress on stderr: a bar that never runs backwards, with the best so far; without a terminal, now and then
a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from planner.cli._say import say
from planner.progress import Meter

SELDOM_S = 5.0  # between two lines where no terminal shows a bar


class Watch:
    """What a command tells while it works: progress, and what looks best so far."""

    def __init__(self, ends: Mapping[str, float] | None = None) -> None:
        self.meter = Meter(ends)
        self.best = ""

    def __call__(self, stage: str, done: int, of: int) -> None:
        self.meter(stage, done, of)
        self.changed()

    def found(self, words: str) -> None:
        """A first answer, or a better one."""
        self.best = words
        self.changed()

    def changed(self) -> None:
        """Nobody watches."""


class Lines(Watch):
    """For logs: a line every few seconds."""

    def __init__(self, ends: Mapping[str, float] | None = None) -> None:
        super().__init__(ends)
        self.last_s = self.meter.began_s

    def changed(self) -> None:
        now = self.meter.clock()
        if now - self.last_s >= SELDOM_S and self.meter.stage:
            self.last_s = now
            say(self.meter.words + (f"; so far: {self.best}" if self.best else ""))


class LiveBar(Watch):
    """For a terminal: the best so far above a bar."""

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=1.0, completed=self.meter.share, width=40), Text(self.meter.words))
        return Group(*([Text(f"So far: {self.best}")] if self.best else []), row)


@contextmanager
def progress(quiet: bool, ends: Mapping[str, float] | None = None) -> Iterator[Watch]:
    """Who tells how far the work is; `ends` are the stages of it (`planner.progress.Meter`)."""
    if quiet:
        yield Watch(ends)
    elif not sys.stderr.isatty():
        yield Lines(ends)
    else:
        from rich.console import Console
        from rich.live import Live

        bar = LiveBar(ends)
        with Live(bar, console=Console(stderr=True), transient=True, refresh_per_second=8):
            yield bar
