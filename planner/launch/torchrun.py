"""Shell scripts around torchrun: one to be started on every machine, and a batch script of Slurm."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import FrameworkTarget, Launch, ScriptTarget
from planner.launch._text import dns_label, quote_shell_word
from planner.launch.accelerate import accelerate_environment


class TorchRun(ScriptTarget):
    name: ClassVar[str] = "torchrun"
    suffixes: ClassVar[tuple[str, ...]] = (".sh",)
    usage: ClassVar[str] = "start `HEAD=first-machine bash FILE train.py` on every machine"

    def render(self, launch: Launch) -> str:
        return shell_script(
            self.header_comments(launch), export_lines(launch), torchrun_command(launch), '"${@:-train.py}"'
        )


class TorchRunArguments(FrameworkTarget):
    """A script that starts a framework's own program with arguments."""

    def program_script(self, launch: Launch, program: str, arguments: list[str]) -> str:
        """Shell script that runs a framework's program by torchrun; `program` is trusted shell text."""
        words = " \\\n  ".join(quote_shell_word(argument) for argument in arguments)
        return shell_script(
            self.header_comments(launch), "", torchrun_command(launch), f'{program} \\\n  {words} \\\n  "$@"'
        )


def export_lines(launch: Launch) -> str:
    """Shell `export` lines for the environment variables of a launch."""
    return "".join(
        f"export {name}={quote_shell_word(value)}\n" for name, value in accelerate_environment(launch).items()
    )


def shell_script(head: str, before: str, command: str, program: str) -> str:
    """Shell script to start on every machine, which runs a launch command with a program."""
    return (
        "#!/usr/bin/env bash\n"
        f"{head}"
        "set -euo pipefail\n"
        f"{before}"
        ': "${HEAD:=localhost}" "${PORT:=29400}"\n'
        f"exec {command} \\\n  {program}\n"
    )


def torchrun_command(launch: Launch) -> str:
    """Command line that starts the processes of one machine by torchrun."""
    return (
        f"torchrun --nnodes={launch.machines:d} --nproc-per-node={launch.processes_per_machine:d} \\\n"
        f"  --rdzv-id={quote_shell_word(launch.name)} --rdzv-backend=c10d "
        '--rdzv-endpoint="$HEAD:$PORT"'
    )


class Slurm(ScriptTarget):
    name: ClassVar[str] = "Slurm"
    suffixes: ClassVar[tuple[str, ...]] = (".sbatch", ".slurm")
    usage: ClassVar[str] = "start it with `sbatch FILE train.py`"

    def render(self, launch: Launch) -> str:
        options = [
            f"--job-name={dns_label(launch.name)}",
            f"--nodes={launch.machines:d}",
            "--ntasks-per-node=1",
            "--exclusive",
        ]
        if not launch.recipe.on_cpu:
            options.append(f"--gpus-per-node={launch.processes_per_machine:d}")
        head = "".join(f"#SBATCH {option}\n" for option in options) + self.header_comments(launch)
        first = 'HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        command = f"srun {torchrun_command(launch)}"
        return shell_script(head, export_lines(launch) + first, command, '"${@:-train.py}"')
