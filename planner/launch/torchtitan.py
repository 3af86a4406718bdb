"""Arguments of torchtitan: FSDP, hybrid FSDP, DDP, tensor and pipeline parallelism."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from planner.launch._base import NAMES, Launch
from planner.launch._text import quote_shell_word
from planner.launch.torchrun import TorchRunArguments

RECOMPUTE = {"none": "none", "attention": "selective", "per-op": "selective", "full": "full"}


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
        recompute = f"activation-checkpoint:{RECOMPUTE[recipe.recompute]}"
        return self.program_script(launch, program, [*arguments, *more, recompute])
