"""A SkyPilot task: what to rent, and the same torchrun line on every node."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, ScriptTarget
from planner.launch._text import to_yaml
from planner.launch.accelerate import accelerate_environment

# Providers that SkyPilot's task schema names (0.14); others it cannot rent.
PROVIDERS = frozenset({"aws", "gcp", "azure", "lambda", "oci", "runpod", "nebius", "verda", "vast"})


class SkyPilot(ScriptTarget):
    name: ClassVar[str] = "SkyPilot"
    suffixes: ClassVar[tuple[str, ...]] = (".sky.yaml", ".sky.yml", ".yaml", ".yml")
    usage: ClassVar[str] = "start it with `sky launch FILE`"

    def unsupported_reason(self, launch: Launch) -> str:
        if launch.provider not in PROVIDERS:
            what = f"{launch.machine} of {launch.provider}" if launch.provider else launch.machine
            return (
                f"SkyPilot cannot rent {what}; write a torchrun script (FILE.sh) or a "
                "Kubernetes manifest (FILE.k8s.yaml) instead"
            )
        return super().unsupported_reason(launch)

    def render(self, launch: Launch) -> str:
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
