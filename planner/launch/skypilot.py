"""A SkyPilot task: what to rent, and the same torchrun line on every node."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, Target, comment_lines, quoted

# Providers as SkyPilot's task schema names them (0.14); others it cannot rent.
INFRA = {
    "aws": "aws",
    "gcp": "gcp",
    "azure": "azure",
    "lambda": "lambda",
    "oci": "oci",
    "runpod": "runpod",
    "nebius": "nebius",
    "verda": "verda",
    "vast": "vast",
}


class SkyPilot(Target):
    name: ClassVar[str] = "SkyPilot"
    suffixes: ClassVar[tuple[str, ...]] = (".sky.yaml", ".sky.yml", ".yaml", ".yml")
    says: ClassVar[str] = "start it with `sky launch FILE`"

    def refusal(self, launch: Launch) -> str:
        if launch.provider is None or launch.provider not in INFRA:
            what = f"{launch.machine} of {launch.provider}" if launch.provider else launch.machine
            return (
                f"SkyPilot cannot rent {what}; write a torchrun script (FILE.sh) or a "
                "Kubernetes manifest (FILE.k8s.yaml) instead"
            )
        return Target.refusal(self, launch)

    def text(self, launch: Launch) -> str:
        infra = INFRA[launch.provider or ""] + (f"/{launch.region}" if launch.region else "")
        envs = "".join(f"  {name}: {quoted(value)}\n" for name, value in launch.settings.items())
        return (
            f"{comment_lines(launch)}"
            f"name: {quoted(launch.name)}\n"
            f"num_nodes: {launch.machines}\n"
            "resources:\n"
            f"  infra: {quoted(infra)}\n"
            f"  instance_type: {quoted(launch.machine)}\n"
            f"  use_spot: {str(launch.spot).lower()}\n"
            # `best` turns EFA, GPUDirect-TCPX or InfiniBand on where the machine has it
            f"  network_tier: {'best' if launch.fast_network else 'standard'}\n"
            f"{'envs:' + chr(10) + envs if envs else ''}"
            "workdir: .\n"
            "run: |\n"
            "  torchrun --nnodes=$SKYPILOT_NUM_NODES \\\n"
            f"    --nproc_per_node={launch.processes_per_machine} \\\n"
            "    --node_rank=$SKYPILOT_NODE_RANK \\\n"
            '    --master_addr=$(echo "$SKYPILOT_NODE_IPS" | head -n1) \\\n'
            "    --master_port=8008 train.py\n"
        )
