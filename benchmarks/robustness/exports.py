"""Every launch format for every kind of plan, read by the package that consumes it.

    python benchmarks/robustness/exports.py --verdicts verdicts.json    # adds the packages installed here
    python benchmarks/robustness/exports.py --table verdicts.json       # docs/output.md

Packages have conflicting requirements, so verdicts of several interpreters are collected in one file. A
verdict is `reads`, `schema` where no package reads the format offline (Kubernetes, Slurm, Megatron-LM: stored
schemas in tests/data/schemas), or the reason why the plan is refused. `tests/launch/test_readers.py` asserts
both.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema

from planner.launch import TARGETS, Launch, Recipe, Target
from planner.launch.hugging_face import STAGES

SCHEMAS = Path(__file__).parents[2] / "tests/data/schemas"
EIGHT = {"machines": 1, "processes_per_machine": 8}
SIXTEEN = {"machines": 2, "processes_per_machine": 8}
ONE = {"machine": "g6.2xlarge"}
LLM = {"model": "llama3-8b", "checkpoint": "meta-llama/Meta-Llama-3-8B", "sequence_length": 2048}
LORA = LLM | {"method": "lora", "rank": 16, "targets": "all-linear", "base": "bf16", "optimizer": "adamw"}
QLORA = LORA | {"method": "qlora", "base": "nf4"}
IMAGES = {"model": "resnet50"}


def launch(recipe: dict[str, Any], strategy: str, where: dict[str, Any], **changed: Any) -> Launch:
    """A launch of a recipe on machines, with 2 x 4 samples per device and step."""
    recipe = recipe | {"strategy": strategy, "micro_batch": 2, "accumulate": 4} | changed
    plan = Launch(
        "job",
        provider="aws",
        region="us-east-1",
        comments=("12.3 samples/s predicted",),
        **{"machines": 1, "processes_per_machine": 1, "machine": "p5.48xlarge"} | where,
    )
    mesh = recipe.get("mesh", {})
    replicas = plan.processes // (mesh.get("tensor", 1) * mesh.get("pipeline", 1))
    return replace(plan, recipe=Recipe(**recipe, global_batch=8 * replicas))


TENSOR, PIPELINE = {"tensor": 8}, {"pipeline": 2}
BOTH = TENSOR | PIPELINE | {"interleave": 2}
CPUS = {"machine": "c5.9xlarge", "machines": 2}
PLANS: dict[str, Launch] = {
    "one GPU": launch(LLM, "single", ONE, optimizer="adamw-8bit"),
    "one GPU, image model": launch(IMAGES, "single", ONE),
    "DDP": launch(LLM, "ddp", EIGHT, recompute="full"),
    "DDP, image model, fp16": launch(IMAGES, "ddp", EIGHT | {"machine": "p3.16xlarge"}, precision="fp16"),
    "DDP on CPUs": launch(LLM, "ddp", CPUS, on_cpu=True, precision="fp32"),
    "ZeRO-1": launch(LLM, "zero1", SIXTEEN),
    "ZeRO-2": launch(LLM, "zero2", SIXTEEN),
    "FSDP": launch(LLM, "fsdp", SIXTEEN, recompute="per-op"),
    "hybrid FSDP": launch(LLM, "hsdp", SIXTEEN),
    "FSDP, fp8": launch(LLM, "fsdp", SIXTEEN, precision="fp8"),
    "tensor, FSDP": launch(LLM, "fsdp", SIXTEEN, mesh=TENSOR, recompute="attention"),
    "pipeline, DDP": launch(LLM, "ddp", SIXTEEN, mesh=PIPELINE),
    "tensor and pipeline": launch(LLM, "ddp", EIGHT | {"machines": 4}, mesh=BOTH),
    "offload, one GPU": launch(LLM, "single", ONE, offload=("optimizer", "parameters")),
    "offload, ZeRO-3": launch(LLM, "fsdp", EIGHT, offload=("optimizer", "activations")),
    "LoRA, one GPU": launch(LORA, "single", ONE),
    "LoRA, DDP, attention": launch(LORA, "ddp", EIGHT, targets="attention"),
    "LoRA, FSDP": launch(LORA, "fsdp", SIXTEEN),
    "QLoRA, one GPU": launch(QLORA, "single", ONE),
    "QLoRA int8, DDP": launch(QLORA, "ddp", EIGHT, base="int8"),
    "head, one GPU": launch(LLM, "single", ONE, method="head"),
    "parameter servers": Launch("job", "p3.2xlarge", 2, 1, "aws", parameter_servers=1),
}


def arguments_of(text: str, program: str = "torchrun") -> list[str]:
    """The arguments a script passes to a program, recorded by a stub."""
    with tempfile.TemporaryDirectory() as folder:
        stubs = {program: 'printf "%s\\0" "$@"', "srun": '"$@"', "scontrol": "echo first"}
        for name, body in stubs.items():
            stub = Path(folder) / name
            stub.write_text(f"#!/bin/sh\n{body}\n")
            stub.chmod(0o755)
        env = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "a", "MODULE": "m", "CONFIG": "c"}
        done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, check=True, cwd=folder)
    return done.stdout.decode().split("\0")[:-1]


def options_of(arguments: list[str]) -> dict[str, Any]:
    """`--name=value` words as a mapping; a bare flag is true, numbers are numbers."""
    options: dict[str, Any] = {}
    for word in arguments:
        name, equals, value = word.partition("=")
        options[name] = True if not equals else int(value) if value.isdigit() else value
    return options


def read_sky(path: Path, plan: Launch) -> None:
    import sky

    task = sky.Task.from_yaml(str(path))
    assert task.num_nodes == plan.machines


def read_torchrun(path: Path, plan: Launch) -> None:
    from torch.distributed.run import config_from_args, parse_args

    config, _, _ = config_from_args(parse_args(arguments_of(path.read_text())))
    assert (config.max_nodes, config.nproc_per_node) == (plan.machines, plan.processes_per_machine)


def read_accelerate(path: Path, plan: Launch) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    args = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    args, config, _ = _validate_launch_command(args)
    assert config.num_processes == plan.processes
    zero = plan.recipe.strategy in {"zero1", "zero2"} or bool(plan.recipe.offload)
    assert args.use_fsdp == (plan.recipe.strategy in {"fsdp", "hsdp"} and not zero)
    assert args.use_deepspeed == zero


def read_deepspeed(path: Path, plan: Launch) -> None:
    from deepspeed.runtime import config as runtime
    from deepspeed.runtime.config import DeepSpeedConfig

    runtime.dist.get_rank = lambda: 0  # asked before the size of the world
    world = SimpleNamespace(get_data_parallel_world_size=lambda: plan.processes)
    config = DeepSpeedConfig(str(path), mpu=world)
    assert config.train_micro_batch_size_per_gpu == plan.recipe.micro_batch
    stage = 3 if "parameters" in plan.recipe.offload else STAGES[plan.recipe.strategy]
    assert config.zero_optimization_stage == stage


def read_torchtitan(path: Path, plan: Launch) -> None:
    from torchtitan.config.manager import ConfigManager

    words = arguments_of(path.read_text())
    config = ConfigManager().parse_args(words[words.index("torchtitan.train") + 1 :])
    assert config.parallelism.tensor_parallel_degree == plan.recipe.mesh.get("tensor", 1)
    assert config.parallelism.pipeline_parallel_degree == plan.recipe.mesh.get("pipeline", 1)
    assert config.training.global_batch_size == plan.recipe.global_batch


def read_trl(path: Path, plan: Launch) -> None:
    from trl.cli.accelerate_config import resolve_accelerate_config_argument
    from trl.scripts.sft import make_parser

    words = ["--config", str(path), "--dataset_name", "data", "--use_cpu", "true"]
    *parsed, left, _ = make_parser().parse_args_and_config(
        words, return_remaining_strings=True, separate_remaining_strings=True
    )
    from accelerate.commands.launch import launch_command_parser

    for name, option in (("use_peft", plan.recipe.method != "full"), ("lora_r", plan.recipe.rank)):
        assert option is None or any(getattr(part, name, None) == option for part in parsed), name
    options = resolve_accelerate_config_argument(left)
    launched = launch_command_parser().parse_args([*options, "sft.py"])
    assert int(launched.num_processes) == plan.processes


def read_torchtune(path: Path, plan: Launch) -> None:
    from omegaconf import OmegaConf
    from torchtune.config import validate

    config = OmegaConf.load(path)
    validate(config)
    assert config.batch_size == plan.recipe.micro_batch
    assert (plan.recipe.method == "full") == ("lora_rank" not in config.model)


def read_axolotl(path: Path, plan: Launch) -> None:
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    config = AxolotlInputConfig(**yaml.safe_load(path.read_text()))
    assert config.micro_batch_size == plan.recipe.micro_batch
    assert config.lora_r == plan.recipe.rank


def read_by_schema(path: Path, plan: Launch) -> None:
    import yaml

    name = path.name.split(".", 1)[1]
    text = path.read_text()
    if name == "k8s.yaml":
        document = yaml.safe_load(text)
    elif name == "sbatch":
        document = options_of(
            [line.split(" ")[1] for line in text.splitlines() if line.startswith("#SBATCH")]
        )
        assert "torchrun" in text
        assert f"--nproc-per-node={plan.processes_per_machine}" in arguments_of(text)
    else:
        words = arguments_of(text)
        document = options_of(words[words.index("Megatron-LM/pretrain_gpt.py") + 1 :])
    stored = {"k8s.yaml": "trainjob", "sbatch": "sbatch", "megatron.sh": "megatron-arguments"}[name]
    jsonschema.validate(document, json.loads((SCHEMAS / f"{stored}.json").read_text()))


# The package that reads a format and how; without a package, a stored schema.
READERS: dict[str, tuple[str, Callable[[Path, Launch], None]]] = {
    "SkyPilot": ("sky", read_sky),
    "torchrun": ("torch", read_torchrun),
    "Kubernetes": ("", read_by_schema),
    "Slurm": ("", read_by_schema),
    "accelerate": ("accelerate", read_accelerate),
    "DeepSpeed": ("deepspeed", read_deepspeed),
    "Megatron-LM": ("", read_by_schema),
    "torchtitan": ("torchtitan", read_torchtitan),
    "TRL": ("trl", read_trl),
    "torchtune": ("torchtune", read_torchtune),
    "axolotl": ("axolotl", read_axolotl),
}


def verdict(target: Target, plan: Launch, folder: Path) -> str:
    """`reads`, `schema`, or the reason for refusing the plan; errors of readers are raised."""
    if reason := target.unsupported_reason(plan):
        return f"refused: {reason}"
    package, read = READERS[target.name]
    path = folder / f"plan{target.suffixes[0]}"
    path.write_text(target.render(plan))
    read(path, plan)
    return "reads" if package else "schema"


def is_available(target: Target) -> bool:
    package = READERS[target.name][0]
    return not package or importlib.util.find_spec(package) is not None


def collect(path: Path) -> int:
    """Add the verdicts of the installed packages; return the number of failures."""
    verdicts = json.loads(path.read_text()) if path.exists() else {}
    failed = 0
    for target in filter(is_available, TARGETS):
        package = READERS[target.name][0]
        version = getattr(importlib.import_module(package), "__version__", "") if package else ""
        rows = verdicts[target.name] = {"package": f"{package} {version}".strip()}
        for name, plan in PLANS.items():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    rows[name] = verdict(target, plan, Path(folder))
                except (Exception, SystemExit) as error:
                    rows[name] = f"FAILS: {type(error).__name__}: {str(error)[:300]}"
                    failed += 1
                    print(f"{target.name}, {name}: {rows[name]}", file=sys.stderr)
    path.write_text(json.dumps(verdicts, indent=1))
    return failed


def table(path: Path) -> str:
    """The verdicts as a table in Markdown: plans by formats."""
    verdicts = json.loads(path.read_text())
    names = [target.name for target in TARGETS if target.name in verdicts]
    lines = [f"| plan | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for plan in PLANS:
        cells = [verdicts[name][plan].split(":")[0].replace("refused", "-") for name in names]
        lines.append(f"| {plan} | {' | '.join(cells)} |")
    readers = ", ".join(verdicts[name]["package"] for name in names if verdicts[name]["package"])
    return "\n".join([*lines, "", f"Read by {readers}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    failed = collect(args.verdicts) if args.verdicts else 0
    if args.table:
        print(table(args.table))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
