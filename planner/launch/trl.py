"""A configuration of TRL's supervised fine-tuning, with PEFT adapters: `trl sft --config FILE`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from planner.launch._base import NAMES, FrameworkTarget, Launch, Recipe
from planner.launch._text import to_yaml

DISTRIBUTED: dict[str, str] = NAMES["accelerate"]
OPTIMIZERS: dict[str, str] = NAMES["optimizers"]["huggingface"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


class Trl(FrameworkTarget):
    name: ClassVar[str] = "TRL"
    suffixes: ClassVar[tuple[str, ...]] = (".trl.yaml", ".trl.yml")
    usage: ClassVar[str] = (
        "start `trl sft --config FILE --dataset_name NAME` on every machine; with several, add "
        "--machine_rank and --main_process_ip"
    )
    strategies: ClassVar[frozenset[str]] = frozenset(DISTRIBUTED)
    methods: ClassVar[frozenset[str]] = frozenset({"full", "lora", "qlora"})
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "tf32", "bf16", "fp16"})
    sets: ClassVar[frozenset[str]] = frozenset(
        {"processes", "batch", "recompute", "optimizer", "method", "offload activations"}
    )
    language_models_only: ClassVar[bool] = True
    runs_on_cpus: ClassVar[bool] = False

    def render(self, launch: Launch) -> str:
        recipe = launch.recipe
        document: dict[str, Any] = {
            "accelerate_config": DISTRIBUTED[recipe.strategy],
            "num_machines": launch.machines,
            "num_processes": launch.processes,
            "model_name_or_path": recipe.checkpoint or recipe.model,
            "output_dir": "out",
            "per_device_train_batch_size": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.accumulate,
            "gradient_checkpointing": recipe.recompute != "none",
            "activation_offloading": "activations" in recipe.offload,
            "bf16": recipe.is_bf16,
            "fp16": recipe.precision == "fp16",
            "tf32": recipe.precision == "tf32",
            "max_length": recipe.sequence_length,
            "packing": True,
            "num_train_epochs": recipe.epochs or 1.0,
        }
        if recipe.optimizer in OPTIMIZERS:
            document["optim"] = OPTIMIZERS[recipe.optimizer]
        return self.header_comments(launch) + to_yaml(document | _adapter_settings(recipe))

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        yield from super().omission_notes(launch)
        yield from unresolved_settings(launch.recipe, OPTIMIZERS)


def unresolved_settings(recipe: Recipe, optimizers: Mapping[str, str]) -> Iterator[str]:
    """Yields notes about settings that fine-tuning needs and the plan leaves open."""
    if recipe.optimizer is not None and recipe.optimizer not in optimizers:
        yield f"the optimizer, {recipe.optimizer}; the default one is used"
    if not recipe.checkpoint:
        yield f"the checkpoint; replace {recipe.model} by its folder or its name on the Hugging Face hub"
    if recipe.base == "int4":
        yield "int4; name a checkpoint that GPTQ has quantized, bf16 weights would be loaded otherwise"


def _adapter_settings(recipe: Recipe) -> dict[str, Any]:
    """LoRA and quantization settings under TRL's keys; empty for full fine-tuning."""
    if recipe.method == "full":
        return {}
    quantized: dict[str, dict[str, Any]] = {
        "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True},
        "int8": {"load_in_8bit": True},
    }
    rank = recipe.rank or 16
    adapters: dict[str, Any] = {
        "use_peft": True,
        "lora_r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": recipe.dropout or 0.0,
        "lora_target_modules": ATTENTION if recipe.targets == "attention" else ["all-linear"],
    }
    return adapters | quantized.get(recipe.base or "", {})
