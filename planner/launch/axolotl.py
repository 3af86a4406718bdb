"""A configuration of axolotl: full, LoRA and QLoRA fine-tuning with DDP, ZeRO and FSDP2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.launch._base import NAMES, FrameworkTarget, Launch, Recipe
from planner.launch._text import to_yaml
from planner.launch.trl import ATTENTION, OPTIMIZERS, unresolved_settings

KNOWN = OPTIMIZERS | NAMES["optimizers"]["axolotl"]


class Axolotl(FrameworkTarget):
    name: ClassVar[str] = "axolotl"
    suffixes: ClassVar[tuple[str, ...]] = (".axolotl.yaml", ".axolotl.yml")
    usage: ClassVar[str] = (
        "name your data under datasets and start `axolotl train FILE` (with several machines, `axolotl train "
        "FILE --launcher torchrun -- --nnodes ...` on each)"
    )
    methods: ClassVar[frozenset[str]] = frozenset({"full", "lora", "qlora"})
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "tf32", "bf16", "fp16"})
    sets: ClassVar[frozenset[str]] = frozenset({"batch", "recompute", "optimizer", "method"})
    language_models_only: ClassVar[bool] = True
    runs_on_cpus: ClassVar[bool] = False

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        yield from super().omission_notes(launch)
        yield from unresolved_settings(launch.recipe, KNOWN)
        if launch.recipe.strategy in {"zero1", "zero2"}:
            yield "DeepSpeed's own file; `axolotl fetch deepspeed_configs` writes it"

    def render(self, launch: Launch) -> str:
        recipe = launch.recipe
        document: dict[str, Any] = {
            "base_model": recipe.checkpoint or recipe.model,
            "datasets": [{"path": "data", "type": "alpaca"}],
            "output_dir": "out",
            "sequence_len": recipe.sequence_length,
            "sample_packing": True,
            "micro_batch_size": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.accumulate,
            "num_epochs": recipe.epochs or 1.0,
            "learning_rate": 2e-5 if recipe.method == "full" else 2e-4,
            "optimizer": KNOWN.get(recipe.optimizer or "", "adamw_torch"),
            "bf16": recipe.is_bf16,
            "fp16": recipe.precision == "fp16",
            "tf32": recipe.precision == "tf32",
            "gradient_checkpointing": recipe.recompute != "none",
        }
        if recipe.strategy in {"zero1", "zero2"}:
            document["deepspeed"] = f"deepspeed_configs/{recipe.strategy}.json"
        elif recipe.strategy in {"fsdp", "hsdp"}:
            document |= {
                "fsdp_version": 2,
                "fsdp_config": {
                    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                    "reshard_after_forward": True,
                    "state_dict_type": "FULL_STATE_DICT",
                    "offload_params": False,
                },
            }
        if recipe.strategy == "hsdp":
            document["dp_replicate_size"] = launch.machines
            document["dp_shard_size"] = launch.processes_per_machine
        return self.header_comments(launch) + to_yaml(document | _adapter_settings(recipe))


def _adapter_settings(recipe: Recipe) -> dict[str, Any]:
    """LoRA and quantization settings under axolotl's keys; empty for full fine-tuning."""
    if recipe.method == "full":
        return {}
    rank = recipe.rank or 16
    document: dict[str, Any] = {
        "adapter": recipe.method if recipe.base in {"bf16", "nf4", None} else "lora",
        "load_in_4bit": recipe.base == "nf4",
        "load_in_8bit": recipe.base == "int8",
        "lora_r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": recipe.dropout or 0.0,
    }
    if recipe.base == "int4":
        document["gptq"] = True
    if recipe.targets == "attention":
        return document | {"lora_target_modules": ATTENTION}
    return document | {"lora_target_linear": True}
