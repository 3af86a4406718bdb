"""Launch files of frameworks: read by the real package where it is installed, and what they hold."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.errors import BadInput
from planner.launch import TARGETS, Launch, Recipe, export_text, target_for
from planner.launch.hugging_face import accelerate_environment

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/robustness"))
exports = pytest.importorskip("exports")  # which needs jsonschema
yaml = pytest.importorskip("yaml")
NAMED = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("plan", exports.PLANS)
@pytest.mark.parametrize("name", NAMED)
def test_each_format_is_read_by_its_package(name: str, plan: str, tmp_path: Path) -> None:
    """Opt-in: packages that are not installed are skipped; stored schemas always hold."""
    if not exports.is_available(NAMED[name]):
        pytest.skip(f"{exports.READERS[name][0]} is not installed")
    verdict = exports.verdict(NAMED[name], exports.PLANS[plan], tmp_path)
    assert verdict.split(":")[0] in {"reads", "schema", "refused"}


def test_every_target_has_a_reader_or_a_schema() -> None:
    assert set(exports.READERS) == set(NAMED)


def test_refusal_names_the_formats_that_can_say_the_plan() -> None:
    with pytest.raises(
        BadInput, match=r"no setting for tensor 8, pipeline 2.*\.megatron\.sh, \.torchtitan\.sh$"
    ):
        export_text("p.accelerate.yaml", exports.PLANS["tensor and pipeline"])


def read(suffix: str, plan: str) -> Any:
    text = export_text(f"p{suffix}", exports.PLANS[plan])
    return json.loads(text) if suffix.endswith("json") else yaml.safe_load(text)


def test_accelerate_shards_inside_machines_for_hybrid_fsdp() -> None:
    document = read(".accelerate.yaml", "hybrid FSDP")
    assert document["distributed_type"] == "FSDP"
    assert document["parallelism_config"] == {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 8,
    }


def test_accelerate_uses_deepspeed_for_zero_1_and_2() -> None:
    for stage in (1, 2):
        document = read(".accelerate.yaml", f"ZeRO-{stage}")
        assert document["distributed_type"] == "DEEPSPEED"
        assert document["deepspeed_config"]["zero_stage"] == stage
        assert document["deepspeed_config"]["gradient_accumulation_steps"] == 4


def test_deepspeed_states_all_three_batch_sizes() -> None:
    document = read(".deepspeed.json", "FSDP")
    assert document["zero_optimization"]["stage"] == 3
    assert document["train_batch_size"] == 2 * 4 * 16
    assert document["bf16"]["enabled"] is True


def test_megatron_gets_every_degree() -> None:
    words = exports.arguments_of(export_text("p.megatron.sh", exports.PLANS["tensor and pipeline"]))
    assert {
        "--nnodes=4",
        "--nproc-per-node=8",
        "--tensor-model-parallel-size=8",
        "--pipeline-model-parallel-size=2",
        "--num-virtual-stages-per-pipeline-rank=2",
        "--sequence-parallel",
        "--global-batch-size=16",
    } <= set(words)


def test_torchtitan_replicates_ddp_and_shards_fsdp() -> None:
    for plan, copies, shards in (
        ("DDP", 8, 1),
        ("FSDP", 1, 16),
        ("hybrid FSDP", 2, 8),
        ("pipeline, DDP", 8, 1),
    ):
        options = exports.options_of(
            exports.arguments_of(export_text("p.torchtitan.sh", exports.PLANS[plan]))
        )
        assert options["--parallelism.data_parallel_replicate_degree"] == copies, plan
        assert options["--parallelism.data_parallel_shard_degree"] == shards, plan


def test_adapters_are_the_plans() -> None:
    trl, axolotl, tune = (
        read(suffix, "QLoRA, one GPU") for suffix in (".trl.yaml", ".axolotl.yaml", ".torchtune.yaml")
    )
    assert (trl["lora_r"], trl["load_in_4bit"], trl["bnb_4bit_quant_type"]) == (16, True, "nf4")
    assert (axolotl["adapter"], axolotl["lora_r"], axolotl["load_in_4bit"]) == ("qlora", 16, True)
    assert (tune["model"]["_component_"], tune["model"]["lora_rank"]) == (
        "torchtune.models.llama3.qlora_llama3_8b",
        16,
    )
    attention = read(".axolotl.yaml", "LoRA, DDP, attention")
    assert attention["lora_target_modules"] == ["q_proj", "k_proj", "v_proj", "o_proj"]


def test_setting_without_a_key_becomes_a_comment() -> None:
    text = export_text("p.accelerate.yaml", exports.PLANS["DDP"])
    assert "# Not in this file: batch sizes;" in text
    assert "# Not in this file: recompute;" in text
    assert "# Not in this file: DDP;" in export_text("p.torchtune.yaml", exports.PLANS["DDP"])


def test_number_below_one_is_a_number_in_yaml() -> None:
    assert read(".axolotl.yaml", "FSDP")["learning_rate"] == 2e-5


TRAIN = """
import os
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(4, 2))
accelerator.backward(model(torch.ones(2, 4)).sum())
seen = [accelerator.num_processes, accelerator.device.type, type(model).__name__]
seen += [accelerator.gradient_accumulation_steps, accelerator.mixed_precision]
with open(f"rank{accelerator.process_index}", "w") as file:
    file.write(" ".join(map(str, seen)))
accelerator.wait_for_everyone()
os._exit(0)  # without the destructors of gloo's threads, which abort now and then
"""


def start(command: list[str], folder: Path) -> None:
    here = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{here}:{os.environ['PATH']}", "PORT": "29433", "OMP_NUM_THREADS": "1"}
    env["ACCELERATE_USE_CPU"] = "true"
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=240, capture_output=True)


CPUS = Launch("mine", "lab", 1, 2, recipe=Recipe(strategy="ddp", on_cpu=True, accumulate=4))


@pytest.mark.slow
def test_accelerate_and_torchrun_start_two_processes_on_cpus(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(TRAIN)
    for suffix, command in (
        (".accelerate.yaml", ["accelerate", "launch", "--config_file", "p.accelerate.yaml", "train.py"]),
        (".sh", ["bash", "p.sh", "train.py"]),
    ):
        (tmp_path / f"p{suffix}").write_text(export_text(f"p{suffix}", CPUS))
        start(command, tmp_path)
        for rank in (0, 1):
            written = (tmp_path / f"rank{rank}").read_text()
            # Of accelerate's file the accumulation belongs to the script's own arguments.
            expected = f"2 cpu DistributedDataParallel {4 if suffix == '.sh' else 1} bf16"
            assert written == expected, suffix
            (tmp_path / f"rank{rank}").unlink()


@pytest.mark.parametrize("plan", ["FSDP", "hybrid FSDP", "ZeRO-2", "offload, one GPU"])
def test_accelerate_reads_the_variables_of_scripts(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("accelerate.utils")
    launch = exports.PLANS[plan]
    for name, value in accelerate_environment(launch).items():
        monkeypatch.setenv(name, value)
    if "FSDP" in plan:
        monkeypatch.setenv("WORLD_SIZE", "16")
        settings = utils.FullyShardedDataParallelPlugin()
        assert (settings.fsdp_version, settings.reshard_after_forward) == (2, True)
        assert settings.activation_checkpointing is (plan == "FSDP")
        assert str(settings.state_dict_type).endswith("SHARDED_STATE_DICT")
    else:
        settings = utils.DeepSpeedPlugin()
        assert settings.zero_stage == (2 if plan == "ZeRO-2" else 3)
        assert settings.offload_param_device == ("none" if plan == "ZeRO-2" else "cpu")
        assert settings.gradient_accumulation_steps == 4
    if plan == "hybrid FSDP":
        mesh = importlib.import_module("accelerate.parallelism_config").ParallelismConfig()
        assert (mesh.dp_replicate_size, mesh.dp_shard_size) == (2, 8)


def test_ending_decides_between_formats_in_yaml() -> None:
    assert [
        target_for(f"p{suffix}").name for suffix in (".yaml", ".trl.yaml", ".axolotl.yml", ".k8s.yaml")
    ] == [
        "SkyPilot",
        "TRL",
        "axolotl",
        "Kubernetes",
    ]
