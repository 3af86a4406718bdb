"""Files that start a plan: each valid for what reads it, and a refusal where it cannot say the plan."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadInput
from planner.launch import TARGETS, Launch, Recipe, export_text, target_for
from planner.launch._base import dns_label

yaml = pytest.importorskip("yaml")
SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"

PLAN = Launch(
    name="llama3-8b",
    machine="p5.48xlarge",
    machines=4,
    processes_per_machine=8,
    provider="aws",
    region="us-east-1",
    fast_network=True,
    comments=("predicted: 12.3 samples/s (10.1 to 14.9)", "two\nlines"),
    recipe=Recipe(strategy="fsdp", micro_batch=2, accumulate=4, recompute="full", mesh={}),
)


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def test_skypilot_task_holds_to_its_schema_and_says_the_plan() -> None:
    task = yaml.safe_load(export_text("job.yaml", PLAN))
    jsonschema.validate(task, schema("skypilot-task"))
    assert task["num_nodes"] == 4
    assert task["resources"] == {
        "infra": "aws/us-east-1",
        "instance_type": "p5.48xlarge",
        "use_spot": False,
        "network_tier": "best",
    }
    assert task["envs"]["FSDP_VERSION"] == "2"
    assert "--nproc_per_node=8" in task["run"]


def test_skypilot_gets_no_region_that_a_provider_does_not_name() -> None:
    for provider in ("lambda", "runpod"):
        text = export_text("job.yaml", Launch("net", "gpu_1x_a10", 1, 1, provider=provider, region="any"))
        assert yaml.safe_load(text)["resources"]["infra"] == provider


def test_train_job_holds_to_its_schema_and_says_the_plan() -> None:
    job = yaml.safe_load(export_text("job.k8s.yaml", PLAN))
    jsonschema.validate(job, schema("trainjob"))
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (4, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    assert {"name": "ACCELERATE_MIXED_PRECISION", "value": "bf16"} in trainer["env"]


@pytest.mark.parametrize(("name", "key"), [("skypilot-task", "run_on"), ("trainjob", "replicas")])
def test_schemas_refuse_what_is_not_theirs(name: str, key: str) -> None:
    text = export_text("job.yaml" if name == "skypilot-task" else "job.k8s.yaml", PLAN)
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate({**yaml.safe_load(text), key: 1}, schema(name))


def test_no_variable_is_the_planners_own() -> None:
    for target in TARGETS:
        if not target.unsupported_reason(PLAN):
            assert "PLANNER_" not in target.render(PLAN)


def test_degrees_of_a_mesh_are_left_to_the_script() -> None:
    """Accelerate would shard over all ranks, those of a tensor group included."""
    plan = replace(PLAN, recipe=replace(PLAN.recipe, mesh={"tensor": 8}))
    text = export_text("job.sh", plan)
    assert "# The plan: FSDP (ZeRO-3), tensor 8, bf16; micro-batch 2, gradient accumulation 4.\n" in text
    assert "FSDP_VERSION" not in text
    assert "export FSDP_RESHARD_AFTER_FORWARD=true\n" in export_text("job.sh", PLAN)


def test_cpu_machines_ask_for_no_gpus() -> None:
    plan = replace(PLAN, recipe=Recipe(on_cpu=True))
    assert "gpu" not in export_text("job.k8s.yaml", plan)
    assert "gpus-per-node" not in export_text("job.sbatch", plan)
    assert "export ACCELERATE_USE_CPU=true\n" in export_text("job.sh", plan)


def test_script_is_a_script(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(export_text(script, PLAN))
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert "--nnodes=4 --nproc-per-node=8" in script.read_text()


def test_script_starts_as_many_processes_as_the_plan_has(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script, train = tmp_path / "run.sh", tmp_path / "train.py"
    script.write_text(export_text(script, Launch("mine", "lab", 1, 2, recipe=Recipe(accumulate=4))))
    train.write_text(
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "told = f\"{dist.get_world_size()} {os.environ['ACCELERATE_GRADIENT_ACCUMULATION_STEPS']}\"\n"
        "open(f'rank{dist.get_rank()}', 'w').write(told)\n"
    )
    here = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}", "PORT": "29417"}
    if shutil.which("torchrun", path=env["PATH"]) is None:
        pytest.skip("torch is here, torchrun is not")
    subprocess.run(["bash", str(script), str(train)], cwd=tmp_path, env=env, check=True, timeout=120)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2 4", "2 4"]


def test_servers_are_refused_by_every_target() -> None:
    servers = Launch("vgg11", "p3.2xlarge", 2, 1, provider="aws", parameter_servers=1)
    for target in TARGETS:
        with pytest.raises(BadInput, match=r"cannot start 1 parameter server.*--exchange"):
            export_text("f" + target.suffixes[0], servers)


def test_skypilot_refuses_machines_that_it_cannot_rent() -> None:
    for provider in ("coreweave", None):
        with pytest.raises(BadInput, match="cannot rent"):
            export_text("job.yaml", Launch("m", "box", 1, 1, provider=provider))


def test_ending_decides_and_an_unknown_one_is_refused() -> None:
    assert [target_for(name).name for name in ("a.sh", "a.yaml", "a.sky.yml", "A.K8S.YAML")] == [
        "torchrun",
        "SkyPilot",
        "SkyPilot",
        "Kubernetes",
    ]
    with pytest.raises(BadInput, match=r"\.k8s\.yaml"):
        target_for("job.tf")


@given(st.text(max_size=80), st.text(max_size=20))
def test_no_name_breaks_a_file(name: str, machine: str) -> None:
    launch = Launch(name, machine, 1, 8, "aws", comments=(name,))
    if not (name.isprintable() and machine.isprintable()):
        return  # names come from files whose readers escape what cannot be printed
    task = yaml.safe_load(export_text("a.yaml", launch))
    assert (task["name"], task["resources"]["instance_type"]) == (name, machine)
    job = yaml.safe_load(export_text("a.k8s.yaml", launch))
    assert job["metadata"]["name"] == dns_label(name)
    assert (
        subprocess.run(["bash", "-n"], input=export_text("a.sh", launch).encode(), check=False).returncode
        == 0
    )
