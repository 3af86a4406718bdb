"""A third axis is one class and one line (`context_axis.py`): every command, JSON and page takes it.

Flags are read when the commands are loaded, so that each test runs in a process that registers the axis
first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = "import context_axis; from planner.cli._app import main; main()"
SETTINGS = ("--model", "llama3-8b", "--hardware", "p5.48xlarge", "--batch", "1", "--quiet")
SHARDED = (*SETTINGS, "--workers", "8", "--exchange", "sharded")


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    here = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", code, *args], env=here, capture_output=True, text=True, check=False
    )


def answer(*args: str) -> dict[str, Any]:
    done = python(COMMAND, *args, "--format", "json")
    assert done.returncode == 0, done.stderr
    loads: dict[str, Any] = json.loads(done.stdout)
    return loads


def test_help_has_the_flag_of_a_new_axis() -> None:
    for command in ("simulate", "recommend", "compare", "saturation"):
        shown = python(COMMAND, command, "--help").stdout
        assert "--context" in shown
        assert "Context-parallel degree" in shown


def test_simulate_counts_computation_communication_and_memory_of_a_new_axis(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    alone = answer("simulate", *SHARDED, "--tensor", "2")
    both = answer("simulate", *SHARDED, "--tensor", "2", "--context", "2", "--html", str(page))
    assert (alone["plan"]["context"], both["plan"]["context"]) == (1, 2)
    assert both["request"]["context"] == [2]
    assert both["plan"]["workers_per_replica"] == 4
    assert "2 replicas of 4" in both["plan"]["cluster"]
    assert any("2 share every layer, 2 share every sequence" in line for line in both["assumptions"])
    assert "FSDP + TP2 + CP2" in page.read_text()
    steps, held = ([entry[key] for entry in (alone, both)] for key in ("step", "memory"))
    assert (
        0.4 < steps[1]["compute_s"] / steps[0]["compute_s"] < 0.7
    )  # kernels are smaller, and less efficient
    assert steps[1]["communication_s"] > steps[0]["communication_s"]
    assert sum(value for name, value in steps[1].items() if name not in ("step_s", "recompute_s")) == (
        pytest.approx(steps[1]["step_s"])
    )
    kinds = [entry["by_kind_bytes"] for entry in held]
    assert kinds[1]["activations"] < 0.6 * kinds[0]["activations"]
    # sharded over half as many replicas
    assert kinds[1]["parameters"] == pytest.approx(2 * kinds[0]["parameters"])
    for entry in (alone, both):
        assert entry["plan"]["samples_per_s"] <= entry["plan"]["bound_samples_per_s"]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("recommend", ("--budget", "120", "--workers", "8,16")),
        ("recommend", ("--workers", "8", "--search", "optuna", "--trials", "4")),
        ("compare", ("--workers", "8")),
        ("saturation", ("--max-workers", "16")),
    ],
)
def test_answers_and_pages_have_the_degree_of_a_new_axis(
    tmp_path: Path, command: str, more: tuple[str, ...]
) -> None:
    page = tmp_path / "page.html"
    asked = (*SETTINGS, *more, "--context", "2", "--exchange", "sharded")
    result = answer(command, *asked, "--html", str(page))
    plans = result.get("plans") or result["points"]
    assert {plan["context"] for plan in plans} == {2}
    assert "CP2" in page.read_text()


def test_sweep_scores_every_degree(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'model = "gpt2"\nhardware = "p4d.24xlarge"\nworkers = [8]\nbatch = 4\nexchange = "sharded"\n'
        "context = [1, 2]\ninterval_width = 0.1\n"
    )
    plans = answer("sweep", str(grid), "--store", str(tmp_path / "sweep.db"), "--quiet")["plans"]
    assert {plan["context"] for plan in plans} == {1, 2}


def test_search_without_degrees_tries_candidates_of_a_new_axis() -> None:
    done = python(
        "import context_axis\n"
        "from planner.search.request import Request\n"
        "from planner.search.space import enumerate_plans\n"
        "from planner.model.catalog import load_model\n"
        "from planner.parallel.plan import plan_from_dict\n"
        "asked = Request(model='llama3-8b', hardware=('p5.48xlarge',), workers=(16,), batches=(1,))\n"
        "plans = enumerate_plans(asked, load_model('llama3-8b')).plans\n"
        "assert all(plan_from_dict(plan.as_dict()) == plan for plan in plans)\n"
        "assert len({plan.key for plan in plans}) == len(plans)\n"
        "print(sorted({plan.mesh.settings['context'] for plan in plans}))\n"
        "print(sorted(plan.mesh.label for plan in plans if plan.mesh.size == 16)[0])\n"
        "print('/t2p2v1cp2' in ' '.join(plan.key for plan in plans))\n"
    )
    assert done.stdout.split("\n")[:3] == ["[1, 2]", "context 2 x pipeline 8", "True"], done.stderr


def test_infeasible_degree_of_a_new_axis_is_refused() -> None:
    refused = python(COMMAND, "simulate", *SHARDED, "--context", "3")
    assert refused.returncode == 2
    assert refused.stderr == "planner: --context 3 does not divide 8192 tokens\n"
