"""`record`: torch's profiler around a loop, for some steps after some warm-up, written as one trace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from planner.errors import BadInput
from planner.recorder.watch import LoopWatch
from planner.simulator.step.recorded import KEY, Facts

UNTRACED_STEPS = 3  # timed before the profiler is on, to tell what tracing costs
WARMUP_STEPS = 3  # traced and thrown away: the profiler's own first steps are slow
STEPS = 10
OLDEST = (2, 4)  # whose hooks and autocast settings are read


@contextmanager
def record(
    path: str | Path, *, steps: int = STEPS, model: str = "", batch: int | None = None
) -> Iterator[None]:
    """Record `steps` steps of the PyTorch training loop inside the block, as a file that all commands take.

    The loop needs no change; it must take at least `steps` + 6 steps, of which the first six warm up. Of
    several ranks only the first records. `batch` is needed where the model's first argument is no tensor.
    """
    torch = _torch()
    if steps < 1:
        raise BadInput(f"steps is {steps}; record at least 1")
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    session = _Session(torch, steps)
    session.begin()
    try:
        yield
    finally:
        session.end()
    session.write(Path(path), model, batch)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise BadInput(
            "recording needs PyTorch in the same environment; install it, or record with another tool "
            "(docs/recording.md)"
        ) from None
    check_version(str(torch.__version__))
    return torch


def check_version(version: str) -> None:
    """Refuse a PyTorch that lacks what the recorder hooks into."""
    try:
        major, minor = (int(word) for word in version.split(".")[:2])
    except ValueError:
        return  # a build of one's own
    if (major, minor) < OLDEST:
        raise BadInput(
            f"recording needs PyTorch {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}; update it, or "
            "profile by hand: docs/recording.md has the lines"
        )


class _Session:
    """The profiler and the watch of one recording."""

    def __init__(self, torch: Any, steps: int) -> None:
        from torch.profiler import ProfilerActivity, profile, schedule

        kinds = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(ProfilerActivity.CUDA)
        self.wanted = steps
        self.taken = 0
        self.trace: bytes | None = None
        self.watch = LoopWatch(self._stepped)
        self.profiler = profile(
            activities=kinds,
            record_shapes=True,
            schedule=schedule(wait=UNTRACED_STEPS, warmup=WARMUP_STEPS, active=steps, repeat=1),
            on_trace_ready=self._keep,
        )

    def begin(self) -> None:
        self.watch.attach()
        self.profiler.start()

    def end(self) -> None:
        self.watch.detach()
        if self.trace is None and self.taken >= UNTRACED_STEPS + WARMUP_STEPS:
            self.profiler.stop()  # a loop shorter than asked for: what there is is kept

    def _stepped(self) -> None:
        self.taken += 1
        if self.trace is None:
            self.profiler.step()

    def _keep(self, profiler: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            self.trace = file.read_bytes()

    def write(self, path: Path, model: str, batch: int | None) -> None:
        facts = self.watch.facts(batch, model, UNTRACED_STEPS)
        if isinstance(facts, str):
            raise BadInput(f"nothing was recorded: {facts}; put the training loop inside the block")
        if self.trace is None:
            least = UNTRACED_STEPS + WARMUP_STEPS + 1
            raise BadInput(
                f"the loop took {self.taken} steps, of which the first {least - 1} warm up; let it take at "
                f"least {least}, and {UNTRACED_STEPS + WARMUP_STEPS + self.wanted} for all that was asked for"
            )
        save(self.trace, facts, path)


def save(trace: bytes, facts: Facts, path: Path) -> None:
    """A trace with its facts, compressed where the name ends in .gz; replaced whole or not at all."""
    import gzip

    from planner.files.regular_file import write_file

    told = msgspec.json.encode({KEY: facts})
    body = trace.lstrip()
    if not body.startswith(b"{"):
        raise BadInput("the profiler's trace is no JSON object; record with PyTorch 2.0 or later")
    rest = body[1:].lstrip()
    whole = told[:-1] + (b"," if not rest.startswith(b"}") else b"") + rest
    write_file(path, gzip.compress(whole, mtime=0) if path.suffix == ".gz" else whole)
