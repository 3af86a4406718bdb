"""Recorded steps: profiles and traces, opened, and rescaled to other devices and batches."""

from __future__ import annotations

from pathlib import Path

from planner.errors import BadInput
from planner.files.regular_file import read_bytes
from planner.simulator.step import Profile
from planner.simulator.step.files import decode, missing_for_training

HEAD_BYTES = 4096


def open_profile(path: Path | str) -> Profile:
    """Load a profile; recordings and traces are imported on the fly."""
    data = read_bytes(path)
    head = data[:HEAD_BYTES].lstrip()
    if head[:1] != b"{" or b'"planner-profile"' in head or not _is_trace(data):
        return decode(data, str(path))
    from planner.device.recorded.importers import import_profile

    return import_profile([path])


def _is_trace(data: bytes) -> bool:
    return b'"traceEvents"' in data and b"aten::" in data


def open_step(path: Path | str) -> Profile:
    """Load a profile and check that it holds a complete training step."""
    profile = open_profile(path)
    if lacks := missing_for_training(profile):
        raise BadInput(f"{path}: no training step: {lacks}; `planner profile show` lists its ops")
    return profile
