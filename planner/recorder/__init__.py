"""Recording training steps with one line: `with planner.record("step.json.gz"):` around a PyTorch loop.

`trace` follows the loop, runs torch's profiler and writes the trace; `planner.device.recorded.importers`
reads it like any other. `planner record -- python train.py` starts the user's own command: a folder with a
`sitecustomize` module goes to the front of PYTHONPATH, so it also reaches the children of torchrun or a
shell script. Recording begins once torch's optimizers are imported; a process without torch is left alone.
Only rank 0 records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.errors import BadInput
from planner.recorder.trace import record

__all__ = ["record"]


INJECTED = Path(__file__).parent / "injected"
PATH, STEPS, MODEL, BATCH = (f"PLANNER_RECORD_{name}" for name in ("PATH", "STEPS", "MODEL", "BATCH"))


def record_command(
    command: Sequence[str], path: Path, *, steps: int, model: str = "", batch: int | None = None
) -> int:
    """Runs a command, records the training loop of its rank 0 into `path`, and returns its exit status."""
    if not command:
        raise BadInput(
            "give the command to record after --, as: planner record -o step.json.gz -- python train.py"
        )
    env = dict(os.environ)
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(part for part in (str(INJECTED), env.get("PYTHONPATH"), root) if part)
    env[PATH], env[STEPS] = str(path.resolve()), str(steps)
    env[MODEL], env[BATCH] = model, "" if batch is None else str(batch)
    program = sys.executable if command[0] in ("python", "python3") else command[0]
    try:
        return subprocess.run([program, *command[1:]], env=env, check=False).returncode
    except FileNotFoundError:
        raise BadInput(f"{command[0]}: no such command") from None
    except PermissionError:
        raise BadInput(f"{command[0]}: not a command that can be run; as `python {command[0]}`?") from None


def begin_recording() -> None:
    """Records this process until it exits, as the PLANNER_RECORD variables say."""
    import atexit

    path = os.environ.pop(PATH, "")
    if not path or os.environ.get("RANK", "0") != "0":
        return
    batch = os.environ.get(BATCH)
    recording = record(
        path,
        steps=int(os.environ.get(STEPS, "10")),
        model=os.environ.get(MODEL, ""),
        batch=int(batch) if batch else None,
    )
    recording.__enter__()
    atexit.register(_finish_recording, recording)


def _finish_recording(recording: object) -> None:
    """Writes the trace when the user's program exits, or prints why there is none."""
    from planner.errors import PlannerError

    try:
        recording.__exit__(None, None, None)  # type: ignore[attr-defined]
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
