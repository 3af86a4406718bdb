"""A batch script of Slurm, which starts torchrun on every node."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, Target, head_comments
from planner.launch._text import comments, dns_label, shell_export
from planner.launch.torchrun import script, torchrun_line


class Slurm(Target):
    name: ClassVar[str] = "Slurm"
    suffixes: ClassVar[tuple[str, ...]] = (".sbatch", ".slurm")
    says: ClassVar[str] = "start it with `sbatch FILE train.py`"

    def text(self, launch: Launch) -> str:
        options = [
            f"--job-name={dns_label(launch.name)}",
            f"--nodes={launch.machines:d}",
            "--ntasks-per-node=1",
            "--exclusive",
        ]
        if not launch.recipe.on_cpu:
            options.append(f"--gpus-per-node={launch.processes_per_machine:d}")
        exports = "".join(shell_export(name, value) for name, value in launch.settings.items())
        head = "".join(f"#SBATCH {option}\n" for option in options)
        head += comments([f"{launch.name} on {launch.machines} x {launch.machine}: {self.says}"])
        first = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        command = f"srun {torchrun_line(launch)}"
        return script(head + head_comments(launch), exports + first, command, '"${@:-train.py}"')
