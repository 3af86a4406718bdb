"""Arguments of Megatron-LM's pretrain_gpt.py: tensor, pipeline and data parallelism."""

from __future__ import annotations

from typing import ClassVar

from planner.launch._base import Launch
from planner.launch.torchrun import TorchRunArguments

# Arguments of degrees, and of mesh settings above 1.
DEGREES = {"tensor": "--tensor-model-parallel-size={}", "pipeline": "--pipeline-model-parallel-size={}"}
ABOVE_ONE = {"tensor": "--sequence-parallel", "interleave": "--num-virtual-stages-per-pipeline-rank={}"}
SHARDING = {"zero2": "optim_grads", "fsdp": "optim_grads_params"}
RECOMPUTE = {
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
        arguments += RECOMPUTE[recipe.recompute]
        return self.program_script(launch, '"${MEGATRON:-Megatron-LM}/pretrain_gpt.py"', arguments)
