"""Recorded steps: profiles and traces, opened, and rescaled to other devices and batches."""

from __future__ import annotations

from pathlib import Path

from planner.errors import BadInput
from planner.files.regular_file import read_bytes
from planner.simulator.step import Profile
from planner.simulator.step.files import decode, missing_for_training

HEAD_BYTES = 4096


def open_profile(path: Path | str) -> Profile:
    """Loads a profile; files that are recordings or traces are imported first."""
    data = read_bytes(path)
    head = data[:HEAD_BYTES].lstrip()
    is_profile = head[:1] != b"{" or b'"planner-profile"' in head
    if is_profile or b'"traceEvents"' not in data or b"aten::" not in data:
        return decode(data, str(path))
    from planner.device.recorded.importers import import_profile

    return import_profile([path])


def open_step(path: Path | str) -> Profile:
    """Loads a profile and checks that it holds a complete training step."""
    profile = open_profile(path)
    if lacks := missing_for_training(profile):
        raise BadInput(f"{path}: no training step: {lacks}; `planner profile show` lists its ops")
    return profile
