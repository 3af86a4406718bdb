"""Programs of their own: arguments of Megatron-LM and torchtitan, and configurations of torchtune's
recipes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from math import prod
from string import Template
from typing import Any

from planner.launch._base import (
    NAMES,
    FrameworkTarget,
    Launch,
    comment_lines,
    flow_value,
    quote_shell_word,
    to_yaml,
)
from planner.launch.torchrun import TorchRunArguments

MEGATRON: dict[str, dict[str, Any]] = NAMES["megatron"]


class Megatron(TorchRunArguments):
    """A script that runs Megatron-LM's pretrain_gpt.py."""

    def render(self, launch: Launch) -> str:
        """Shell script with Megatron-LM's arguments."""
        recipe = launch.recipe
        axes = MEGATRON["axes"].items()
        arguments = [
            f"--tensor-model-parallel-size={recipe.mesh.get('tensor', 1)}",
            f"--pipeline-model-parallel-size={recipe.mesh.get('pipeline', 1)}",
            *(argument.format(recipe.mesh[axis]) for axis, argument in axes if axis in recipe.mesh),
            f"--micro-batch-size={recipe.micro_batch:d}",
            f"--global-batch-size={recipe.global_batch:d}",
            f"--seq-length={recipe.sequence_length or 1:d}",
            *MEGATRON["precision"].get(recipe.precision, ()),
            *MEGATRON["strategy"].get(recipe.strategy, ()),
            *MEGATRON["recompute"].get(recipe.recompute, ()),
        ]
        return self.program_script(launch, '"${MEGATRON:-Megatron-LM}/pretrain_gpt.py"', arguments)


class TorchTitan(TorchRunArguments):
    """A script that runs torchtitan."""

    def render(self, launch: Launch) -> str:
        """Shell script with torchtitan's arguments."""
        recipe = launch.recipe
        degrees = {name: recipe.mesh.get(name, 1) for name in ("tensor", "pipeline")}
        replicas = launch.processes // prod(degrees.values())
        copies = {"ddp": replicas, "hsdp": launch.machines}.get(recipe.strategy, 1)
        parallelism = {
            "data_parallel_replicate_degree": copies,
            "data_parallel_shard_degree": replicas // copies,
            "fsdp_reshard_after_forward": "never" if recipe.strategy == "zero2" else "default",
            **{f"{name}_parallel_degree": degree for name, degree in degrees.items()},
        }
        local, more = recipe.micro_batch, []
        if "pipeline" in recipe.mesh:  # the schedule runs all micro-batches
            local *= recipe.accumulate
            parallelism |= {
                "pipeline_parallel_schedule": "Interleaved1F1B" if "interleave" in recipe.mesh else "1F1B",
                "pipeline_parallel_microbatch_size": recipe.micro_batch,
            }
            more = ["--training.disable_cuda_graphs"]  # not supported with pipelines
        training = {
            "local_batch_size": local,
            "global_batch_size": recipe.global_batch,
            "seq_len": recipe.sequence_length,
            "mixed_precision_param": "bfloat16" if recipe.is_bf16 else "float32",
        }
        module, config = NAMES["torchtitan"].get(recipe.model, ("", ""))
        program = "-m torchtitan.train"
        for option, value in (("module", module), ("config", config)):
            wanted = f"torchtitan's {option} of {recipe.model}"
            wanted = "".join(
                char for char in wanted if char.isalnum() or char in " .-_"
            )  # inside "${NAME:?}"
            known = quote_shell_word(value) if value else f'"${{{option.upper()}:?{wanted}}}"'
            program += f" --{option} {known}"
        arguments = [f"--parallelism.{name}={value}" for name, value in parallelism.items()]
        arguments += [f"--training.{name}={value}" for name, value in training.items()]
        recompute = f"activation-checkpoint:{NAMES['torchtitan_recompute'][recipe.recompute]}"
        return self.program_script(launch, program, [*arguments, *more, recompute])


OPTIMIZERS: dict[str, str] = NAMES["optimizers"]["torchtune"]


class TorchTune(FrameworkTarget):
    """A configuration of a torchtune recipe."""

    def unsupported_reason(self, launch: Launch) -> str:
        """Reason why torchtune cannot run the plan; empty string if it can."""
        recipe = launch.recipe
        if reason := super().unsupported_reason(launch):
            return reason
        if recipe.model not in NAMES["torchtune"]:
            return f"torchtune has no builder that is known here for {recipe.model}"
        if recipe.base in {"int8", "int4"}:
            return f"torchtune has no setting for base weights in {recipe.base}"
        return ""

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        """Yields notes on settings that the recipe ignores."""
        recipe = launch.recipe
        yield from super().omission_notes(launch)
        if recipe.strategy == "ddp":
            yield "DDP; its distributed recipes shard with FSDP, with more communication and less memory"
        if recipe.optimizer is not None and recipe.optimizer not in OPTIMIZERS:
            yield f"the optimizer, {recipe.optimizer}; AdamW is used"

    def render(self, launch: Launch) -> str:
        """YAML text of the configuration for `tune run`."""
        recipe = launch.recipe
        family, builder, kind, last = NAMES["torchtune"][recipe.model]
        folder = recipe.checkpoint.rpartition("/")[2] or recipe.model
        tokenizer = "original/tokenizer.model" if family == "llama3" else "tokenizer.model"
        model: dict[str, Any] = {"_component_": f"torchtune.models.{family}.{builder}"}
        if recipe.method != "full":
            rank = recipe.rank or 16
            model = {
                "_component_": f"torchtune.models.{family}.{recipe.method}_{builder}",
                "lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
                "apply_lora_to_mlp": recipe.targets != "attention",
                "apply_lora_to_output": False,
                "lora_rank": rank,
                "lora_alpha": 2 * rank,
                "lora_dropout": recipe.dropout or 0.0,
            }
        text = Template((files("planner.launch") / "torchtune.yaml").read_text("utf-8")).substitute(
            model=to_yaml({"model": model}).rstrip("\n"),
            tokenizer=flow_value(f"torchtune.models.{family}.{family}_tokenizer"),
            tokenizer_path=flow_value(f"{folder}/{tokenizer}"),
            max_seq_len=flow_value(recipe.sequence_length),
            checkpoint_dir=flow_value(folder),
            max_filename=flow_value(last),
            model_type=flow_value(kind),
            batch_size=recipe.micro_batch,
            gradient_accumulation_steps=recipe.accumulate,
            optimizer=flow_value(OPTIMIZERS.get(recipe.optimizer or "", "torch.optim.AdamW")),
            lr=flow_value(2e-5 if recipe.method == "full" else 2e-4),
            epochs=max(round(recipe.epochs or 1), 1),
            device="cpu" if recipe.on_cpu else "cuda",
            dtype="bf16" if recipe.is_bf16 else "fp32",
            recompute=flow_value(recipe.recompute != "none"),
            offloading=flow_value("activations" in recipe.offload),
        )
        if recipe.strategy == "zero2":
            text += to_yaml({"fsdp_reshard_after_forward": False})
        program = "full_finetune" if recipe.method == "full" else "lora_finetune"
        ranks = f"--nnodes {launch.machines} --nproc_per_node {launch.processes_per_machine}"
        start = f"{program}_single_device" if launch.processes == 1 else f"{ranks} {program}_distributed"
        command = comment_lines([f"tune run {start} --config FILE"])
        return self.header_comments(launch) + command + text
