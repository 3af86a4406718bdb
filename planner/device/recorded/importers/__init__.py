"""Importers: profiles from the traces of TensorFlow and PyTorch, read without either.

The kind of a file is found by looking into it. Each file is one step, except that one PyTorch trace may hold
several. May import the profile type and the nouns; nothing here knows of the simulator.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import BadInput
from planner.files.regular_file import read_bytes
from planner.simulator.step import Profile
from planner.simulator.step.files import check_profile_names, reject_oversized_json

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.device.recorded.importers.events import Trace
    from planner.device.recorded.importers.kineto import Step
    from planner.servers.tensorflow.graph import Recording

__all__ = ["import_computation", "import_profile"]

RUN_METADATA = "TensorFlow RunMetadata"
TIMELINE = "TensorFlow timeline"
PYTORCH = "PyTorch profiler trace"
MAX_TRACE_BYTES = 2 * 2**30
MAX_OBJECTS = 20_000_000  # of a JSON trace; an event is one, and another for its arguments
RECORDING = "docs/recording.md tells how to record one"


def import_profile(
    paths: Sequence[Path | str],
    *,
    batch: int | None = None,
    model: str | None = None,
    hardware: str = "",
    bandwidth_bytes_per_s: float | None = None,
) -> Profile:
    """Imports the profile of one worker from trace files of one kind and one training job. Recordings of
    `planner record` know batch, model and device; other traces need them as arguments."""
    if not paths:
        raise BadInput("give at least one trace file to import")
    if batch is not None and batch < 1:
        raise BadInput(f"batch is {batch}; it is the number of samples of one step on one worker, at least 1")
    about: dict[str, Any] = {
        "batch": batch,
        "model": model,
        "hardware": hardware,
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "basis": "measured",
    }
    with _without_gc():
        return check_profile_names(_import_files(paths, about), str(paths[0]))


def import_computation(paths: Sequence[Path | str], *, batch: int, model: str | None = None) -> Computation:
    """Imports the computation of one worker in a step from PyTorch traces."""
    from planner.device.recorded.importers import kineto, pytorch

    if not paths or batch < 1:
        raise BadInput(f"give at least one trace file and a batch of at least 1 (not {batch})")
    steps: list[Step] = []
    with _without_gc():
        for kind, data, where in _read_files(paths):
            if kind != PYTORCH:
                raise BadInput(f"{where} is {kind}; a computation is read from PyTorch traces")
            steps += kineto.read_trace_and_steps(data, where)[1]
        model = model or _first_stem(paths)
        return pytorch.build_computation(steps, batch=batch, model=model, source=_source_text(PYTORCH, paths))


@contextmanager
def _without_gc() -> Iterator[None]:
    """Context manager that suspends garbage collection, which takes a fifth of the time without finding
    cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_files(paths: Sequence[Path | str]) -> Iterator[tuple[str, bytes, str]]:
    """Yields the kind, contents and name of each trace file; raises BadInput unless all are of one kind."""
    first = ""
    for path in paths:
        data, where = read_bytes(path, MAX_TRACE_BYTES), str(path)
        kind = detect_trace_kind(data, where)
        first = first or kind
        if kind != first:
            raise BadInput(f"{paths[0]} is {first} and {path} is {kind}; import files of one kind")
        if kind != RUN_METADATA:
            reject_oversized_json(data, where, b"{", MAX_OBJECTS, "events and arguments")
        yield kind, data, where


def _source_text(kind: str, paths: Sequence[Path | str]) -> str:
    """Text on the origin of imported steps: kind of the traces, and names of the first files."""
    return f"{kind}: {', '.join(Path(path).name for path in paths[:3])}" + (", ..." if len(paths) > 3 else "")


def _first_stem(paths: Sequence[Path | str]) -> str:
    """Name of the first file without its suffixes, which stands for an unnamed model."""
    return Path(paths[0]).name.split(".")[0]


def _import_files(paths: Sequence[Path | str], about: dict[str, Any]) -> Profile:
    """Imports trace files of one kind as a profile, with the settings in `about`."""
    recordings: list[Recording] = []
    traces: list[tuple[Trace, list[Step]]] = []
    for kind, data, where in _read_files(paths):
        about["source"] = _source_text(kind, paths)
        # The readers are imported where they are used: nobody needs those of both frameworks.
        if kind == PYTORCH:
            from planner.device.recorded.importers import kineto

            traces.append(kineto.read_trace_and_steps(data, where))
        elif kind == TIMELINE:
            raise BadInput(
                f"{where}: RecvTensor records name no tensor, size or source in a timeline that TensorFlow "
                "writes; import the RunMetadata itself (docs/recording.md tells how to record it)"
            )
        else:
            from planner.servers.tensorflow import runmetadata

            graph = not any(recording.complete for recording in recordings)
            recordings.append(runmetadata.read_run_metadata(data, where, graph))
    if traces:
        return _import_pytorch_steps(paths, traces, about)
    from planner.servers.tensorflow import profile as tensorflow
    from planner.servers.transmissions import correct_sent_order

    about["model"] = about["model"] or _first_stem(paths)
    if about["batch"] is None:
        raise BadInput(f"{paths[0]}: TensorFlow does not record the batch; give --batch, that of one worker")
    return correct_sent_order(tensorflow.build_profile(recordings, **about))


def _import_pytorch_steps(
    paths: Sequence[Path | str], traces: Sequence[tuple[Trace, list[Step]]], about: dict[str, Any]
) -> Profile:
    """Builds the profile of one training loop from PyTorch traces, with the recorder's notes."""
    from planner.device.recorded.importers import pytorch
    from planner.device.recorded.importers.events import run_facts

    facts = [
        run_facts(trace, about["batch"], str(path)) for path, (trace, _) in zip(paths, traces, strict=True)
    ]
    first = facts[0]
    for path, other in zip(paths, facts, strict=True):
        for name in ("samples", "device", "precision"):
            if getattr(other, name) != getattr(first, name):
                raise BadInput(
                    f"{paths[0]} and {path} differ in {name}, {getattr(first, name)} and "
                    f"{getattr(other, name)}: they are two recordings; import each by itself, and give both "
                    "to --profile"
                )
    about |= {
        "batch": first.samples,
        "model": about["model"] or first.model or _first_stem(paths),
        "hardware": about["hardware"] or first.device,
        "facts": first,
    }
    return pytorch.build_profile([step for _, steps in traces for step in steps], **about)


def detect_trace_kind(data: bytes, where: str) -> str:
    """Detects the kind of a trace from its contents; raises BadInput if it is none."""
    head = data[:4096].lstrip()
    if head[:1] not in (b"{", b"["):
        return RUN_METADATA
    if b'"planner-profile"' in head:
        raise BadInput(f"{where}: a profile of planner already; give it to --profile as it is")
    if b"aten::" in data or b"autograd::engine" in data:
        return PYTORCH
    if b"/job:" in data or b"RecvTensor" in data:
        return TIMELINE
    if b'"schemaVersion"' in head and b'"traceEvents"' in head:
        raise BadInput(
            f"{where}: a PyTorch trace without an op: the profiler had begun another cycle; record one, with "
            f"repeat=1; {RECORDING}"
        )
    raise BadInput(
        f"{where}: JSON, but neither a PyTorch profiler trace nor a TensorFlow timeline; {RECORDING}"
    )
