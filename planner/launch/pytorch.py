"""Programs of their own: arguments of Megatron-LM and torchtitan, and configurations of torchtune's
recipes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, ClassVar

from planner.launch._base import NAMES, FrameworkTarget, Launch, comment_lines, quote_shell_word, to_yaml
from planner.launch.torchrun import TorchRunArguments

# Arguments of degrees, and of mesh settings above 1.
DEGREES = {"tensor": "--tensor-model-parallel-size={}", "pipeline": "--pipeline-model-parallel-size={}"}
ABOVE_ONE = {"tensor": "--sequence-parallel", "interleave": "--num-virtual-stages-per-pipeline-rank={}"}
SHARDING = {"zero2": "optim_grads", "fsdp": "optim_grads_params"}
MEGATRON_RECOMPUTE = {
    "none": [],
    "attention": ["--recompute-activations"],
    "per-op": ["--recompute-activations"],
    "full": ["--recompute-granularity=full", "--recompute-method=uniform", "--recompute-num-layers=1"],
}


class Megatron(TorchRunArguments):
    name: ClassVar[str] = "Megatron-LM"
    suffixes: ClassVar[tuple[str, ...]] = (".megatron.sh",)
    usage: ClassVar[str] = (
        "start `HEAD=first-machine MEGATRON=folder bash FILE ...` on every machine, with the arguments of "
        "the model, its data and its tokenizer"
    )
    strategies: ClassVar[frozenset[str]] = frozenset({"single", "ddp", "zero1", "zero2", "fsdp"})
    axes: ClassVar[frozenset[str]] = frozenset(DEGREES | ABOVE_ONE)
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "bf16", "fp16", "fp8"})
    sets: ClassVar[frozenset[str]] = frozenset({"processes", "batch", "recompute", "attention"})
    language_models_only: ClassVar[bool] = True
    runs_on_cpus: ClassVar[bool] = False

    def render(self, launch: Launch) -> str:
        recipe = launch.recipe
        arguments = [
            *(text.format(recipe.mesh.get(name, 1)) for name, text in DEGREES.items()),
            *(text.format(recipe.mesh[name]) for name, text in ABOVE_ONE.items() if name in recipe.mesh),
            f"--micro-batch-size={recipe.micro_batch:d}",
            f"--global-batch-size={recipe.global_batch:d}",
            f"--seq-length={recipe.sequence_length or 1:d}",
        ]
        if recipe.precision in {"bf16", "fp16"}:
            arguments.append(f"--{recipe.precision}")
        elif recipe.precision == "fp8":
            arguments += ["--bf16", "--fp8-format=hybrid"]
        if recipe.strategy not in {"single", "ddp"}:
            arguments.append("--use-distributed-optimizer")
        if recipe.strategy in SHARDING:
            sharding = SHARDING[recipe.strategy]
            arguments += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy={sharding}"]
        elif recipe.strategy != "single":
            arguments.append("--overlap-grad-reduce")
        arguments += MEGATRON_RECOMPUTE[recipe.recompute]
        return self.program_script(launch, '"${MEGATRON:-Megatron-LM}/pretrain_gpt.py"', arguments)


TITAN_RECOMPUTE = {"none": "none", "attention": "selective", "per-op": "selective", "full": "full"}


class TorchTitan(TorchRunArguments):
    name: ClassVar[str] = "torchtitan"
    suffixes: ClassVar[tuple[str, ...]] = (".torchtitan.sh",)
    usage: ClassVar[str] = "start `HEAD=first-machine bash FILE` on every machine"
    strategies: ClassVar[frozenset[str]] = frozenset({"single", "ddp", "zero2", "fsdp", "hsdp"})
    axes: ClassVar[frozenset[str]] = frozenset({"tensor", "pipeline", "interleave"})
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "bf16"})
    sets: ClassVar[frozenset[str]] = frozenset({"processes", "batch", "recompute", "per-op"})
    language_models_only: ClassVar[bool] = True
    runs_on_cpus: ClassVar[bool] = False

    def render(self, launch: Launch) -> str:
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
        recompute = f"activation-checkpoint:{TITAN_RECOMPUTE[recipe.recompute]}"
        return self.program_script(launch, program, [*arguments, *more, recompute])


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
