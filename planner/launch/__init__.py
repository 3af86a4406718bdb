"""Launch files that start a chosen plan, one class per format; `CLASSES` is the registry.

A target formats a `Launch`; nothing here depends on search or prediction. Answers and the command line may
import this package.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import PurePath

from planner.errors import BadInput
from planner.files.tomlfile import convert
from planner.launch._base import FrameworkTarget, Launch, Recipe, Target
from planner.launch.hugging_face import Accelerate, Axolotl, DeepSpeed, Trl
from planner.launch.pytorch import Megatron, TorchTitan, TorchTune
from planner.launch.torchrun import Kubernetes, SkyPilot, Slurm, TorchRun

__all__ = ["TARGETS", "Launch", "Recipe", "Target", "export_text", "target_for"]

CLASSES: dict[str, type[Target]] = {
    "skypilot": SkyPilot,
    "torchrun": TorchRun,
    "kubernetes": Kubernetes,
    "slurm": Slurm,
    "accelerate": Accelerate,
    "deepspeed": DeepSpeed,
    "megatron": Megatron,
    "torchtitan": TorchTitan,
    "trl": Trl,
    "torchtune": TorchTune,
    "axolotl": Axolotl,
}
FIELDS = tomllib.loads((files("planner.launch") / "targets.toml").read_text("utf-8"))
TARGETS = tuple(convert(FIELDS[name], kind) for name, kind in CLASSES.items())


def target_for(path: str | PurePath) -> Target:
    """Returns the launch format that a path's file ending selects; the longest ending wins."""
    name = PurePath(path).name.lower()
    fitting = [
        (len(suffix), target) for target in TARGETS for suffix in target.suffixes if name.endswith(suffix)
    ]
    if not fitting:
        known = ", ".join(f"{target.suffixes[0]} ({target.name})" for target in TARGETS)
        raise BadInput(f"--export {PurePath(path).name}: unknown file type; write one of {known}")
    return max(fitting, key=lambda item: item[0])[1]


def export_text(path: str | PurePath, launch: Launch) -> str:
    """Text of the launch file in the format of a path; raises BadInput if the format cannot express it."""
    target = target_for(path)
    if refusal := target.unsupported_reason(launch):
        others = [other.suffixes[0] for other in TARGETS if not other.unsupported_reason(launch)]
        if isinstance(target, FrameworkTarget) and others:
            refusal += f"; endings that can say this plan: {', '.join(others)}"
        raise BadInput(f"--export {PurePath(path).name}: {refusal}")
    return target.render(launch)
