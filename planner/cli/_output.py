"""Output besides the answer: messages and progress on stderr, and the files asked for."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from planner.errors import escape_unprintable
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.report.page import Page, Table
    from planner.search.scored import ScoredPlan

LOG_EVERY_S = 5.0  # between two lines where stderr is no terminal
EARLY = 0.05  # of the whole, below which the time left cannot be estimated


class Meter:
    """Progress through several stages as one fraction that never falls, with the time left.

    `ends` gives the fraction of the whole at which each stage ends, in order. Other stages run from the
    current fraction to the end. If a stage turns out to have more work, the fraction waits for it.
    """

    def __init__(
        self, ends: Mapping[str, float] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ends = dict(ends or {})
        self.clock = clock
        self.began_s = clock()
        self.stage = ""
        self.share = 0.0
        self._start = 0.0

    def __call__(self, stage: str, done: int, of: int) -> None:
        if stage != self.stage:
            self.stage, self._start = stage, self.share
        end = max(self.ends.get(stage, 1.0), self._start)
        part = min(max(done / of, 0.0), 1.0) if of > 0 else 0.0
        self.share = max(self.share, self._start + (end - self._start) * part)

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds until the end, at the speed so far; None during the first 5%."""
        if self.share < EARLY:
            return None
        return (self.clock() - self.began_s) * (1 - self.share) / self.share

    @property
    def progress_text(self) -> str:
        """Progress as text: `simulating, 40%, about 3 s left`."""
        remaining_s = self.remaining_s
        left = "" if remaining_s is None else f", about {format_seconds(max(1.0, round(remaining_s)))} left"
        return f"{self.stage}, {self.share:.0%}{left}"


def print_message(message: str) -> None:
    """Prints one line on stderr."""
    print(f"planner: {escape_unprintable(' '.join(message.split()))}", file=sys.stderr, flush=True)


class ProgressLog:
    """Records progress and the best plan so far without showing them."""

    def __init__(self, ends: Mapping[str, float] | None = None) -> None:
        self.meter = Meter(ends)
        self.best = ""

    def __call__(self, stage: str, done: int, of: int) -> None:
        self.meter(stage, done, of)
        self.update()

    def on_improvement(self, plan: str) -> None:
        """Keeps the text of a better plan and updates the progress line."""
        self.best = plan
        self.update()

    def update(self) -> None:
        """Shows the current state; subclasses override this empty method."""


class ProgressLines(ProgressLog):
    """Progress for logs: prints a line every few seconds."""

    def __init__(self, ends: Mapping[str, float] | None = None) -> None:
        super().__init__(ends)
        self.last_s = self.meter.began_s

    def update(self) -> None:
        """Prints the progress if the last line is some seconds old."""
        now = self.meter.clock()
        if now - self.last_s >= LOG_EVERY_S and self.meter.stage:
            self.last_s = now
            print_message(self.meter.progress_text + (f"; best so far: {self.best}" if self.best else ""))


class ProgressBar(ProgressLog):
    """Progress for terminals: the best plan so far above a progress bar."""

    def __rich__(self) -> Any:
        from rich import progress_bar
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        bar = progress_bar.ProgressBar(total=1.0, completed=self.meter.share, width=40)
        row = Table.grid(padding=(0, 1))
        row.add_row(bar, Text(self.meter.progress_text))
        return Group(*([Text(f"Best so far: {self.best}")] if self.best else []), row)


@contextmanager
def show_progress(quiet: bool, ends: Mapping[str, float] | None = None) -> Iterator[ProgressLog]:
    """Context manager that yields a progress callback for stderr; `ends` are the stages of `Meter`."""
    if quiet:
        yield ProgressLog(ends)
    elif not sys.stderr.isatty():
        yield ProgressLines(ends)
    else:
        from rich.console import Console
        from rich.live import Live

        bar = ProgressBar(ends)
        with Live(bar, console=Console(stderr=True), transient=True, refresh_per_second=8):
            yield bar


def exit_if_interrupted(partial: bool) -> None:
    """Exits with status 130 if the answer shown is partial because of Ctrl-C."""
    if partial:
        raise typer.Exit(130)


def write_timeline(request: Any, plan: ScoredPlan, path: Path | None, steps: int) -> None:
    """Writes some steps of a plan as a Chrome trace if a file is given."""
    if path is not None:
        from planner.answers.timeline import timeline_of
        from planner.report.chrome import write_chrome

        write_chrome(timeline_of(request, plan.plan, steps=steps), path)
        print_message(f"timeline in {path}; open it at ui.perfetto.dev")


def write_html(shown: Page | Table | Sequence[Table], html: Path | None, title: str = "") -> None:
    """Writes a page, or tables as a page, if a file is given."""
    if html is not None:
        from planner.report.html import tables_page, write_page
        from planner.report.page import Page

        page = shown if isinstance(shown, Page) else tables_page(shown, title)
        write_page(replace(page, command=reproducing_command()), html)
        print_message(f"report in {html}")


def export_plan(scored: ScoredPlan, request: Any, path: Path | None) -> None:
    """Writes the launch file of a plan if a file is given."""
    if path is None:
        return
    from planner.answers.launching import launch_of
    from planner.files.regular_file import write_file
    from planner.launch import export_text, target_for

    write_file(path, export_text(path, launch_of(scored, request)))
    print_message(f"launch in {path}; {target_for(path).usage.replace('FILE', str(path))}")


def exit_if_over_cost(
    usd_per_million_samples: float | None, limit_usd: float | None, name: object = ""
) -> None:
    """Exits with status 3 if a plan costs more per million samples than the limit."""
    cost = usd_per_million_samples
    if limit_usd is not None and cost is not None and cost > limit_usd:
        plan = f"{name}: " if name else ""
        print_message(f"{plan}${cost:.2f} per million samples is over the limit of ${limit_usd:.2f}")
        raise typer.Exit(3)


def reproducing_command() -> str:
    """Command line that reproduces this answer, including PLANNER_* variables."""
    variables = [f"{k}={shlex.quote(v)}" for k, v in sorted(os.environ.items()) if k.startswith("PLANNER_")]
    return " ".join([*variables, shlex.join(["planner", *sys.argv[1:]])])
