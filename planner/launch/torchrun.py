"""torchrun on every machine: shell scripts, Slurm batch scripts, SkyPilot tasks, TrainJobs of Kubeflow
Trainer v2."""

from __future__ import annotations

from typing import Any

from planner.launch._base import FrameworkTarget, Launch, ScriptTarget, dns_label, quote_shell_word, to_yaml
from planner.launch.hugging_face import accelerate_environment


class TorchRun(ScriptTarget):
    """A shell script that runs torchrun on every machine."""

    def render(self, launch: Launch) -> str:
        """Shell script to start on every machine."""
        return shell_script(
            self.header_comments(launch), export_lines(launch), torchrun_command(launch), '"${@:-train.py}"'
        )


class TorchRunArguments(FrameworkTarget):
    """A script that starts a framework's own program with arguments."""

    def program_script(self, launch: Launch, program: str, arguments: list[str]) -> str:
        """Shell script that runs a framework's program by torchrun.

        `program` is trusted shell text.
        """
        words = " \\\n  ".join(quote_shell_word(argument) for argument in arguments)
        return shell_script(
            self.header_comments(launch), "", torchrun_command(launch), f'{program} \\\n  {words} \\\n  "$@"'
        )


def export_lines(launch: Launch) -> str:
    """Shell `export` lines for the environment variables of a launch."""
    return "".join(
        f"export {name}={quote_shell_word(value)}\n" for name, value in accelerate_environment(launch).items()
    )


def shell_script(head: str, setup: str, command: str, program: str) -> str:
    """Shell script that runs a setup and then a launch command with its program."""
    return (
        "#!/usr/bin/env bash\n"
        f"{head}"
        "set -euo pipefail\n"
        f"{setup}"
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
    """A Slurm batch script that runs torchrun on every node."""

    def render(self, launch: Launch) -> str:
        """Batch script for sbatch."""
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


# Providers that SkyPilot's task schema names (0.14); others it cannot rent.
PROVIDERS = frozenset({"aws", "gcp", "azure", "lambda", "oci", "runpod", "nebius", "verda", "vast"})


class SkyPilot(ScriptTarget):
    """A SkyPilot task that rents the machines and runs torchrun."""

    def unsupported_reason(self, launch: Launch) -> str:
        """Reason why SkyPilot cannot rent the machines; empty string if it can."""
        if launch.provider not in PROVIDERS:
            what = f"{launch.machine} of {launch.provider}" if launch.provider else launch.machine
            return (
                f"SkyPilot cannot rent {what}; write a torchrun script (FILE.sh) or a "
                "Kubernetes manifest (FILE.k8s.yaml) instead"
            )
        return super().unsupported_reason(launch)

    def render(self, launch: Launch) -> str:
        """YAML text of the SkyPilot task."""
        region = f"/{launch.region}" if launch.region and launch.region != "any" else ""
        document = {
            "name": launch.name,
            "num_nodes": launch.machines,
            "resources": {
                "infra": f"{launch.provider}{region}",
                "instance_type": launch.machine,
                "use_spot": launch.spot,
                # `best` turns EFA, GPUDirect-TCPX or InfiniBand on where the machine has it
                "network_tier": "best" if launch.fast_network else "standard",
            },
            "envs": accelerate_environment(launch),
            "workdir": ".",
            "run": (
                "torchrun --nnodes=$SKYPILOT_NUM_NODES \\\n"
                f"  --nproc_per_node={launch.processes_per_machine:d} \\\n"
                "  --node_rank=$SKYPILOT_NODE_RANK \\\n"
                '  --master_addr=$(echo "$SKYPILOT_NODE_IPS" | head -n1) \\\n'
                "  --master_port=8008 train.py\n"
            ),
        }
        return self.header_comments(launch) + to_yaml(document)


class Kubernetes(ScriptTarget):
    """A TrainJob of Kubeflow Trainer v2."""

    def render(self, launch: Launch) -> str:
        """YAML text of the TrainJob."""
        trainer: dict[str, Any] = {
            "numNodes": launch.machines,
            "numProcPerNode": launch.processes_per_machine,
            "command": ["torchrun", "train.py"],
            "env": [{"name": name, "value": value} for name, value in accelerate_environment(launch).items()],
        }
        if not launch.recipe.on_cpu:
            limits = {"nvidia.com/gpu": str(launch.processes_per_machine)}
            trainer["resourcesPerNode"] = {"limits": limits}
        document = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": dns_label(launch.name)},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
        return self.header_comments(launch) + to_yaml(document)
