"""A configuration of Hugging Face accelerate: DDP, FSDP2 and DeepSpeed's ZeRO-1 and 2 for any script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from planner.launch._base import (
    SET_PRECISION,
    STRATEGIES,
    FrameworkTarget,
    Launch,
    accelerate_settings,
    omitted_settings,
)
from planner.launch._text import to_yaml
from planner.launch.deepspeed import STAGES


class Accelerate(FrameworkTarget):
    name: ClassVar[str] = "accelerate"
    suffixes: ClassVar[tuple[str, ...]] = (".accelerate.yaml", ".accelerate.yml")
    usage: ClassVar[str] = (
        "start `accelerate launch --config_file FILE train.py` on every machine; with several, add "
        "--machine_rank and --main_process_ip"
    )
    methods: ClassVar[frozenset[str]] = frozenset({"full", "lora", "qlora", "head"})

    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "bf16", "fp16", "fp8"})

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        yield from omitted_settings(launch, accelerate_settings(launch.recipe))
        if launch.recipe.precision == "tf32":
            yield f"tf32; {SET_PRECISION['tf32']}"
        if launch.recipe.on_cpu and launch.processes > 1:
            yield "CPUs; set ACCELERATE_USE_CPU=true, as the launcher keeps use_cpu from its processes"

    def render(self, launch: Launch) -> str:
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
        document["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_cpu_ram_efficient_loading": True,
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
    """Environment variables that `accelerate launch` would set for its processes. Strategies beside tensor or
    pipeline parallelism, or unknown to accelerate, are left to the script."""
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
