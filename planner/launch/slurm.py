"""A batch script of Slurm, which starts torchrun on every node."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, ScriptTarget
from planner.launch._text import dns_label
from planner.launch.torchrun import exports, script, torchrun_line


class Slurm(ScriptTarget):
    name: ClassVar[str] = "Slurm"
    suffixes: ClassVar[tuple[str, ...]] = (".sbatch", ".slurm")
    usage: ClassVar[str] = "start it with `sbatch FILE train.py`"

    def text(self, launch: Launch) -> str:
        options = [
            f"--job-name={dns_label(launch.name)}",
            f"--nodes={launch.machines:d}",
            "--ntasks-per-node=1",
            "--exclusive",
        ]
        if not launch.recipe.on_cpu:
            options.append(f"--gpus-per-node={launch.processes_per_machine:d}")
        head = "".join(f"#SBATCH {option}\n" for option in options) + self.head(launch)
        first = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        command = f"srun {torchrun_line(launch)}"
        return script(head, exports(launch) + first, command, '"${@:-train.py}"')
