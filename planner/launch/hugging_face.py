"""Configurations of the Hugging Face stack: accelerate, DeepSpeed, TRL with PEFT, and axolotl on top of
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.errors import escape_unprintable
from planner.launch._base import (
    NAMES,
    SET_PRECISION,
    STRATEGIES,
    FrameworkTarget,
    Launch,
    Recipe,
    accelerate_settings,
    omitted_settings,
    to_yaml,
)

STAGES = {"single": 0, "ddp": 0, "zero1": 1, "zero2": 2, "fsdp": 3}


class DeepSpeed(FrameworkTarget):
    """DeepSpeed's JSON configuration."""

    def render(self, launch: Launch) -> str:
        """JSON text of DeepSpeed's configuration."""
        recipe = launch.recipe
        document: dict[str, Any] = {
            "_comment": [
                escape_unprintable(line.removeprefix("# "))
                for line in self.header_comments(launch).splitlines()
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


class Accelerate(FrameworkTarget):
    """The YAML configuration of `accelerate launch`."""

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        """Yields notes on settings that accelerate's configuration cannot hold."""
        yield from omitted_settings(launch, accelerate_settings(launch.recipe))
        if launch.recipe.precision == "tf32":
            yield f"tf32; {SET_PRECISION['tf32']}"
        if launch.recipe.on_cpu and launch.processes > 1:
            yield "CPUs; set ACCELERATE_USE_CPU=true, as the launcher keeps use_cpu from its processes"

    def render(self, launch: Launch) -> str:
        """YAML text of accelerate's configuration."""
        return self.header_comments(launch) + to_yaml(accelerate_config(launch))


def accelerate_config(launch: Launch) -> dict[str, Any]:
    """Keys and values of accelerate's configuration file for a launch."""
    recipe = launch.recipe
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": _distributed_type(launch),
        "mixed_precision": "no" if recipe.precision in {"fp32", "tf32"} else recipe.precision,
        "num_machines": launch.machines,
        "num_processes": launch.processes,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": recipe.on_cpu,
    }
    if recipe.precision == "fp8":
        document["fp8_config"] = {"backend": "TE", "fp8_format": "HYBRID"}
    if document["distributed_type"] == "DEEPSPEED":
        document["deepspeed_config"] = {
            "zero_stage": 3 if "parameters" in recipe.offload else max(STAGES[recipe.strategy], 1),
            "gradient_accumulation_steps": recipe.accumulate,
            "offload_optimizer_device": "cpu" if "optimizer" in recipe.offload else "none",
            "offload_param_device": "cpu" if "parameters" in recipe.offload else "none",
            "zero3_init_flag": False,
        }
    elif document["distributed_type"] == "FSDP":
        document["fsdp_config"] = NAMES["fsdp_config"]["accelerate"] | {
            "fsdp_offload_params": "parameters" in recipe.offload,
            "fsdp_activation_checkpointing": recipe.recompute != "none",
        }
    if recipe.strategy == "hsdp":
        document["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": launch.machines,
            "parallelism_config_dp_shard_size": launch.processes_per_machine,
        }
    return document


def accelerate_environment(launch: Launch) -> dict[str, str]:
    """Environment variables that `accelerate launch` would set for its processes.

    Strategies beside tensor or pipeline parallelism, or unknown to accelerate, are left to the script.
    """
    recipe = launch.recipe
    if recipe.mesh or recipe.strategy not in STRATEGIES:
        launch = replace(launch, recipe=replace(recipe, strategy="ddp", offload=()))
    document = accelerate_config(launch)
    variables: dict[str, Any] = {
        "ACCELERATE_MIXED_PRECISION": document["mixed_precision"],
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": recipe.accumulate,
    }
    if recipe.on_cpu:
        variables["ACCELERATE_USE_CPU"] = True
    if recipe.precision == "fp8":
        variables |= {"ACCELERATE_FP8_BACKEND": "TE", "ACCELERATE_FP8_FORMAT": "HYBRID"}
    if recipe.precision == "tf32":
        variables["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = 1
    for part, switch in (("fsdp", "FSDP"), ("parallelism", "PARALLELISM_CONFIG")):
        if settings := document.get(f"{part}_config"):
            variables |= {f"ACCELERATE_USE_{switch}": True}
            variables |= {name.upper(): value for name, value in settings.items()}
    if settings := document.get("deepspeed_config"):
        variables["ACCELERATE_USE_DEEPSPEED"] = True
        for name in ("zero_stage", "offload_optimizer_device", "offload_param_device"):
            variables[f"ACCELERATE_DEEPSPEED_{name.upper()}"] = settings[name]
    text = {True: "true", False: "false"}
    return {name: text[value] if isinstance(value, bool) else str(value) for name, value in variables.items()}


def _distributed_type(launch: Launch) -> str:
    """Value of accelerate's `distributed_type` for a launch."""
    strategy = launch.recipe.strategy
    offloads = not {"optimizer", "parameters"}.isdisjoint(launch.recipe.offload)
    if strategy in {"zero1", "zero2"} or (offloads and strategy != "hsdp"):
        return "DEEPSPEED"
    if launch.processes == 1:
        return "NO"
    if strategy in {"fsdp", "hsdp"}:
        return "FSDP"
    return "MULTI_GPU"  # on CPUs too: it starts processes by torchrun, MULTI_CPU by mpirun


DISTRIBUTED: dict[str, str] = NAMES["accelerate"]
OPTIMIZERS: dict[str, str] = NAMES["optimizers"]["huggingface"]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


class Trl(FrameworkTarget):
    """The YAML configuration of a TRL training script."""

    def render(self, launch: Launch) -> str:
        """YAML text of the configuration for `trl sft`."""
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
        return self.header_comments(launch) + to_yaml(document | _peft_adapter(recipe))

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        """Yields notes on settings that the file lacks or the plan leaves open."""
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


def _peft_adapter(recipe: Recipe) -> dict[str, Any]:
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


AXOLOTL_OPTIMIZERS = OPTIMIZERS | NAMES["optimizers"]["axolotl"]


class Axolotl(FrameworkTarget):
    """The YAML configuration of axolotl."""

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        """Yields notes on settings that the file lacks or the plan leaves open."""
        yield from super().omission_notes(launch)
        yield from unresolved_settings(launch.recipe, AXOLOTL_OPTIMIZERS)
        if launch.recipe.strategy in {"zero1", "zero2"}:
            yield "DeepSpeed's own file; `axolotl fetch deepspeed_configs` writes it"

    def render(self, launch: Launch) -> str:
        """YAML text of axolotl's configuration."""
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
            "optimizer": AXOLOTL_OPTIMIZERS.get(recipe.optimizer or "", "adamw_torch"),
            "bf16": recipe.is_bf16,
            "fp16": recipe.precision == "fp16",
            "tf32": recipe.precision == "tf32",
            "gradient_checkpointing": recipe.recompute != "none",
        }
        if recipe.strategy in {"zero1", "zero2"}:
            document["deepspeed"] = f"deepspeed_configs/{recipe.strategy}.json"
        elif recipe.strategy in {"fsdp", "hsdp"}:
            document |= {"fsdp_version": 2, "fsdp_config": NAMES["fsdp_config"]["axolotl"]}
        if recipe.strategy == "hsdp":
            document["dp_replicate_size"] = launch.machines
            document["dp_shard_size"] = launch.processes_per_machine
        return self.header_comments(launch) + to_yaml(document | _axolotl_adapter(recipe))


def _axolotl_adapter(recipe: Recipe) -> dict[str, Any]:
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
