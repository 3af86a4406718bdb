"""A TrainJob of Kubeflow Trainer v2, which replaces PyTorchJob."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.launch._base import Launch, ScriptTarget
from planner.launch._text import dns_label, to_yaml
from planner.launch.accelerate import accelerate_environment


class Kubernetes(ScriptTarget):
    name: ClassVar[str] = "Kubernetes"
    suffixes: ClassVar[tuple[str, ...]] = (".k8s.yaml", ".k8s.yml")
    usage: ClassVar[str] = (
        "start it with `kubectl apply -f FILE` where Kubeflow Trainer v2 and nodes of this kind are"
    )

    def render(self, launch: Launch) -> str:
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
