"""A configuration of torchtune's fine-tuning recipes, for networks with a builder there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.launch._base import NAMES, FrameworkTarget, Launch
from planner.launch._text import comment_lines, to_yaml

OPTIMIZERS: dict[str, str] = NAMES["optimizers"]["torchtune"]


class TorchTune(FrameworkTarget):
    name: ClassVar[str] = "torchtune"
    suffixes: ClassVar[tuple[str, ...]] = (".torchtune.yaml", ".torchtune.yml")
    usage: ClassVar[str] = "download the checkpoint with `tune download` and start the command below"
    strategies: ClassVar[frozenset[str]] = frozenset({"single", "ddp", "zero2", "fsdp"})
    methods: ClassVar[frozenset[str]] = frozenset({"full", "lora", "qlora"})
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "bf16"})
    sets: ClassVar[frozenset[str]] = frozenset(
        {"batch", "recompute", "optimizer", "method", "processes", "offload activations"}
    )
    language_models_only: ClassVar[bool] = True

    def unsupported_reason(self, launch: Launch) -> str:
        recipe = launch.recipe
        if reason := super().unsupported_reason(launch):
            return reason
        if recipe.model not in NAMES["torchtune"]:
            return f"torchtune has no builder that is known here for {recipe.model}"
        if recipe.base in {"int8", "int4"}:
            return f"torchtune has no setting for base weights in {recipe.base}"
        return ""

    def omission_notes(self, launch: Launch) -> Iterator[str]:
        recipe = launch.recipe
        yield from super().omission_notes(launch)
        if recipe.strategy == "ddp":
            yield "DDP; its distributed recipes shard with FSDP, with more communication and less memory"
        if recipe.optimizer is not None and recipe.optimizer not in OPTIMIZERS:
            yield f"the optimizer, {recipe.optimizer}; AdamW is used"

    def render(self, launch: Launch) -> str:
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
        document = {
            "output_dir": "out",
            "model": model,
            "tokenizer": {
                "_component_": f"torchtune.models.{family}.{family}_tokenizer",
                "path": f"{folder}/{tokenizer}",
                "max_seq_len": recipe.sequence_length,
            },
            "checkpointer": {
                "_component_": "torchtune.training.FullModelHFCheckpointer",
                "checkpoint_dir": folder,
                "checkpoint_files": {"filename_format": "model-{}-of-{}.safetensors", "max_filename": last},
                "output_dir": "out",
                "model_type": kind,
            },
            "resume_from_checkpoint": False,
            "dataset": {"_component_": "torchtune.datasets.alpaca_cleaned_dataset", "packed": True},
            "seed": None,
            "shuffle": True,
            "batch_size": recipe.micro_batch,
            "gradient_accumulation_steps": recipe.accumulate,
            "optimizer": {
                "_component_": OPTIMIZERS.get(recipe.optimizer or "", "torch.optim.AdamW"),
                "lr": 2e-5 if recipe.method == "full" else 2e-4,
            },
            "lr_scheduler": {
                "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
                "num_warmup_steps": 100,
            },
            "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
            "epochs": max(round(recipe.epochs or 1), 1),
            "max_steps_per_epoch": None,
            "clip_grad_norm": None,
            "compile": False,
            "optimizer_in_bwd": False,
            "metric_logger": {
                "_component_": "torchtune.training.metric_logging.DiskLogger",
                "log_dir": "out/logs",
            },
            "log_every_n_steps": 1,
            "log_peak_memory_stats": True,
            "device": "cpu" if recipe.on_cpu else "cuda",
            "dtype": "bf16" if recipe.is_bf16 else "fp32",
            "enable_activation_checkpointing": recipe.recompute != "none",
            "enable_activation_offloading": "activations" in recipe.offload,
        }
        if recipe.strategy == "zero2":
            document["fsdp_reshard_after_forward"] = False
        program = "full_finetune" if recipe.method == "full" else "lora_finetune"
        ranks = f"--nnodes {launch.machines} --nproc_per_node {launch.processes_per_machine}"
        start = f"{program}_single_device" if launch.processes == 1 else f"{ranks} {program}_distributed"
        command = comment_lines([f"tune run {start} --config FILE"])
        return self.header_comments(launch) + command + to_yaml(document)
