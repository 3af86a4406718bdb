"""`planner record -- python train.py`: a user's own command with the recorder inside every Python it starts.

A folder with a `sitecustomize` module goes to the front of PYTHONPATH, so that it also reaches what torchrun
or a shell script starts. It waits until torch's optimizers are imported and begins then; a process without
torch is left alone. Of several ranks only the first records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.errors import BadInput

INJECTED = Path(__file__).parent / "injected"
PATH, STEPS, MODEL, BATCH = (f"PLANNER_RECORD_{name}" for name in ("PATH", "STEPS", "MODEL", "BATCH"))


def record_command(
    command: Sequence[str], path: Path, *, steps: int, model: str = "", batch: int | None = None
) -> int:
    """Run a command to its end and give its exit status; its first rank's loop is recorded into `path`."""
    if not command:
        raise BadInput(
            "give the command to record after --, as: planner record -o step.json.gz -- python train.py"
        )
    env = dict(os.environ)
    root = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(part for part in (str(INJECTED), env.get("PYTHONPATH"), root) if part)
    env[PATH], env[STEPS] = str(path.resolve()), str(steps)
    env[MODEL], env[BATCH] = model, "" if batch is None else str(batch)
    try:
        return subprocess.run([*_with_this_python(command)], env=env, check=False).returncode
    except FileNotFoundError:
        raise BadInput(f"{command[0]}: no such command") from None
    except PermissionError:
        raise BadInput(f"{command[0]}: not a command that can be run; as `python {command[0]}`?") from None


def _with_this_python(command: Sequence[str]) -> Sequence[str]:
    """`python` means the one that planner runs in, which is where the recorder is."""
    return (sys.executable, *command[1:]) if command[0] in ("python", "python3") else command


def begin() -> None:
    """Called in the user's process once torch's optimizers are there: record until it ends."""
    import atexit

    from planner.recorder.trace import record

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
    atexit.register(_finish, recording)


def _finish(recording: object) -> None:
    """At the end of the user's program: write, or say in a line why not."""
    from planner.errors import PlannerError

    try:
        recording.__exit__(None, None, None)  # type: ignore[attr-defined]
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
