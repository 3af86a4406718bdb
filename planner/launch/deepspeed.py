"""A configuration of DeepSpeed: data parallelism and ZeRO-1 to 3."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from planner.errors import printable
from planner.launch._base import FrameworkTarget, Launch

STAGES = {"single": 0, "ddp": 0, "zero1": 1, "zero2": 2, "fsdp": 3}


class DeepSpeed(FrameworkTarget):
    name: ClassVar[str] = "DeepSpeed"
    suffixes: ClassVar[tuple[str, ...]] = (".deepspeed.json",)
    usage: ClassVar[str] = (
        "pass it to deepspeed.initialize(config=FILE), or as --deepspeed FILE to a script with "
        "Hugging Face's TrainingArguments"
    )
    strategies: ClassVar[frozenset[str]] = frozenset(STAGES)
    methods: ClassVar[frozenset[str]] = frozenset({"full", "lora", "qlora", "head"})

    sets: ClassVar[frozenset[str]] = frozenset({"batch", "offload optimizer", "offload parameters"})

    def render(self, launch: Launch) -> str:
        recipe = launch.recipe
        document: dict[str, Any] = {
            "_comment": [
                printable(line.removeprefix("# ")) for line in self.header_comments(launch).splitlines()
            ],
            "train_micro_batch_size_per_gpu": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.accumulate,
            "train_batch_size": recipe.micro_batch * recipe.accumulate * launch.processes,
            "bf16": {"enabled": recipe.is_bf16},
            "fp16": {"enabled": recipe.precision == "fp16"},
            "zero_optimization": {"stage": STAGES[recipe.strategy]},
        }
        zero = document["zero_optimization"]
        for part, key in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
            if part in recipe.offload:
                zero |= {
                    "stage": max(zero["stage"], 3 if part == "parameters" else 1),
                    key: {"device": "cpu"},
                }
        if zero["stage"]:
            zero |= {"overlap_comm": True, "contiguous_gradients": True}
        return json.dumps(document, indent=2) + "\n"
