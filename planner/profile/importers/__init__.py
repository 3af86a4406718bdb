"""Importers: profiles from the traces of TensorFlow and PyTorch, read without either.

The kind of a file is found by looking into it. Each file is one step, except that one PyTorch trace may hold
several. May import the profile type and the nouns; nothing here knows of the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.profile._profile import Profile
from planner.profile.reading import read_bytes

__all__ = ["import_profile"]

KINDS = "a TensorFlow RunMetadata protobuf, a TensorFlow timeline or a PyTorch profiler trace"


def import_profile(
    paths: Sequence[Path | str],
    *,
    batch: int,
    model: str = "",
    hardware: str = "",
    bandwidth_bytes_per_s: float | None = None,
) -> Profile:
    """A profile of one worker from trace files, which must all be of one kind and of one training job."""
    if not paths:
        raise BadInput("give at least one trace file to import")
    if batch < 1:
        raise BadInput(f"batch is {batch}; it is the number of samples of one step on one worker, at least 1")
    about: dict[str, Any] = {
        "batch": batch,
        "model": model or Path(paths[0]).name.split(".")[0],
        "hardware": hardware,
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "basis": "measured",
    }
    kinds = {}
    for path in paths:
        kinds[_kind(read_bytes(path), str(path))] = path
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise BadInput(f"{first} is {one} and {second} is {other}; import files of one kind")
    kind = next(iter(kinds))
    files = ", ".join(Path(path).name for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
    about["source"] = f"{kind}: {files}"
    return _tensorflow(kind, paths, **about)


def _kind(data: bytes, where: str) -> str:
    head = data[:4096].lstrip()
    if head[:1] not in (b"{", b"["):
        return "RunMetadata"
    return "timeline"


def _tensorflow(kind: str, paths: Sequence[Path | str], **about: Any) -> Profile:
    from planner.profile.importers import runmetadata, tensorflow

    recordings = []
    graph = True
    for path in paths:
        recordings.append(runmetadata.read(read_bytes(path), str(path), graph=graph))
        graph = not recordings[-1].complete and graph
    return tensorflow.build(recordings, **about)
