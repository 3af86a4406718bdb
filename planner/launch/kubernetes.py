"""A TrainJob of Kubeflow Trainer v2, which replaces PyTorchJob."""

from __future__ import annotations

import re
from typing import ClassVar

from planner.launch._base import Launch, Target, comment_lines, quoted


class Kubernetes(Target):
    name: ClassVar[str] = "Kubernetes"
    suffixes: ClassVar[tuple[str, ...]] = (".k8s.yaml", ".k8s.yml")
    says: ClassVar[str] = (
        "start it with `kubectl apply -f FILE` where Kubeflow Trainer v2 and nodes of this kind are"
    )

    def text(self, launch: Launch) -> str:
        env = "".join(
            f"      - name: {name}\n        value: {quoted(value)}\n"
            for name, value in launch.settings.items()
        )
        return (
            f"# nodes: {launch.machines} x {launch.machine}\n"
            f"{comment_lines(launch)}"
            "apiVersion: trainer.kubeflow.org/v1alpha1\n"
            "kind: TrainJob\n"
            "metadata:\n"
            f"  name: {quoted(dns_label(launch.name))}\n"
            "spec:\n"
            "  runtimeRef:\n"
            "    name: torch-distributed\n"
            "  trainer:\n"
            f"    numNodes: {launch.machines}\n"
            f"    numProcPerNode: {launch.processes_per_machine}\n"
            '    command: ["torchrun", "train.py"]\n'
            f"{'    env:' + chr(10) + env if env else ''}"
            "    resourcesPerNode:\n"
            "      limits:\n"
            f'        nvidia.com/gpu: "{launch.processes_per_machine}"\n'
        )


def dns_label(name: str) -> str:
    """A name that Kubernetes takes: lower-case letters, digits and hyphens, 63 at most."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "train"
