"""A shell script around torchrun, to be started on every machine."""

from __future__ import annotations

import shlex
from typing import ClassVar

from planner.launch._base import Launch, Target, comment_lines


class TorchRun(Target):
    name: ClassVar[str] = "torchrun"
    suffixes: ClassVar[tuple[str, ...]] = (".sh",)
    says: ClassVar[str] = "start `HEAD=first-machine bash FILE train.py` on every machine"

    def text(self, launch: Launch) -> str:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in launch.settings.items())
        rented = f"{launch.machines} x {launch.machine}"
        return (
            "#!/usr/bin/env bash\n"
            f"# {launch.name} on {rented}: run this on each machine, with HEAD set to the first one.\n"
            f"{comment_lines(launch)}"
            "set -euo pipefail\n"
            f"{exports}"
            ': "${HEAD:=localhost}" "${PORT:=29400}"\n'
            f"exec torchrun --nnodes={launch.machines} --nproc-per-node={launch.processes_per_machine} \\\n"
            f"  --rdzv-id={shlex.quote(launch.name)} --rdzv-backend=c10d "
            '--rdzv-endpoint="$HEAD:$PORT" \\\n'
            '  "${@:-train.py}"\n'
        )
