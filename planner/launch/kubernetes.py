"""A TrainJob of Kubeflow Trainer v2, which replaces PyTorchJob."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch, Target, head_comments
from planner.launch._text import comments, dns_label, to_yaml


class Kubernetes(Target):
    name: ClassVar[str] = "Kubernetes"
    suffixes: ClassVar[tuple[str, ...]] = (".k8s.yaml", ".k8s.yml")
    says: ClassVar[str] = (
        "start it with `kubectl apply -f FILE` where Kubeflow Trainer v2 and nodes of this kind are"
    )

    def text(self, launch: Launch) -> str:
        trainer = {
            "numNodes": launch.machines,
            "numProcPerNode": launch.processes_per_machine,
            "command": ["torchrun", "train.py"],
            "env": [{"name": name, "value": value} for name, value in launch.settings.items()],
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": str(launch.processes_per_machine)}},
        }
        if not launch.settings:
            del trainer["env"]
        document = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": dns_label(launch.name)},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
        nodes = comments([f"nodes: {launch.machines} x {launch.machine}"])
        return nodes + head_comments(launch) + to_yaml(document)
