"""Tables of fitted parse overheads and inferred flow-control windows."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from planner.report.page import Column, Table
from planner.servers.network.overhead import Overhead
from planner.servers.network.window import WindowFit
from planner.units import format_bytes, format_seconds


def overhead_table(fits: dict[str, Overhead]) -> Table:
    """Fitted parse overheads."""
    columns = [
        Column("direction"),
        Column("alpha_s_per_byte", "alpha (us/MB)", lambda v: f"{v * 1e12:.1f}", "right"),
        Column("beta_s", "beta", format_seconds, "right"),
        Column("points"),
        Column("outliers"),
        Column("median_error_s", "median error", format_seconds, "right"),
        Column("median_relative_error", "relative", lambda v: f"{v:.0%}", "right"),
        Column("source"),
    ]
    rows = [{"direction": name, **asdict(fit)} for name, fit in fits.items()]
    return Table(rows, columns, "parse overhead = alpha * bytes + beta")


def window_table(fits: dict[str, WindowFit]) -> Table:
    """Inferred flow-control windows."""
    columns = [
        Column("direction"),
        Column("window_bytes", "WIN", format_bytes, "right"),
        Column("at_least_bytes", "at least", format_bytes, "right"),
        Column("error", "error with it", lambda v: f"{v:.2%}", "right"),
        Column("error_without", "without", lambda v: f"{v:.2%}", "right"),
        Column("preempted_steps", "steps preempted"),
        Column("steps"),
        Column("step_window_low_bytes", "lowest", format_bytes, "right"),
        Column("step_window_high_bytes", "highest", format_bytes, "right"),
        Column("transfers", spare=True),
    ]
    rows = [_window_row(name, fit) for name, fit in fits.items()]
    notes = ["error: mean distance of end times, relative to the time that a step's transfers took together"]
    if any(row["window_bytes"] is None for row in rows):
        notes.append("no preemption is seen where WIN is '-': it is not smaller than the largest transfer")
    if any(row["error"] > 0.05 for row in rows):
        notes.append("the error is large: is the bandwidth right, and was there one worker only?")
    return Table(rows, columns, "HTTP/2 flow-control window", notes)


def _window_row(name: str, fit: WindowFit) -> dict[str, Any]:
    seen = sorted(round(window) for window in fit.step_windows_bytes if window < inf)
    preempts = fit.window_bytes < inf
    return {
        "direction": name,
        "window_bytes": round(fit.window_bytes) if preempts else None,
        "at_least_bytes": None if preempts else fit.largest_bytes,
        "error": fit.error,
        "error_without": fit.error_without,
        "steps": fit.steps,
        "preempted_steps": fit.preempted_steps,
        "step_window_low_bytes": seen[0] if seen else None,
        "step_window_high_bytes": seen[-1] if seen else None,
        "transfers": fit.transfers,
    }
