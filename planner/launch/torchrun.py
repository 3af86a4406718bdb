"""A shell script around torchrun, to be started on every machine."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, Target, head_comments
from planner.launch._text import comments, shell_export, shell_word


class TorchRun(Target):
    name: ClassVar[str] = "torchrun"
    suffixes: ClassVar[tuple[str, ...]] = (".sh",)
    says: ClassVar[str] = "start `HEAD=first-machine bash FILE train.py` on every machine"

    def text(self, launch: Launch) -> str:
        exports = "".join(shell_export(name, value) for name, value in launch.settings.items())
        rented = f"{launch.machines} x {launch.machine}"
        first = f"{launch.name} on {rented}: run this on each machine, with HEAD set to the first one."
        return (
            "#!/usr/bin/env bash\n"
            f"{comments([first])}"
            f"{head_comments(launch)}"
            "set -euo pipefail\n"
            f"{exports}"
            ': "${HEAD:=localhost}" "${PORT:=29400}"\n'
            f"exec torchrun --nnodes={launch.machines:d} "
            f"--nproc-per-node={launch.processes_per_machine:d} \\\n"
            f"  --rdzv-id={shell_word(launch.name)} --rdzv-backend=c10d "
            '--rdzv-endpoint="$HEAD:$PORT" \\\n'
            '  "${@:-train.py}"\n'
        )
