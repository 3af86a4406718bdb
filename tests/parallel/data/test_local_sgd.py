"""LocalSGD as one file: several local steps between two all-reduces, right in every command and breakdown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from planner.answers.parts import step_breakdown
from planner.cli._app import app
from planner.device.memory import Shares
from planner.parallel.collectives.libraries import site_peers
from planner.parallel.data import EXCHANGES, Exchange, Labels, collective, filter_by_choices
from planner.parallel.data.joint import BETWEEN_WORKERS, JITTER, JITTER_S, JointSteps
from planner.simulator.cluster import COMPUTATION, Cluster, Node
from planner.simulator.simulate import simulate
from planner.simulator.step import HOST, WORKER, Op, OpRole, Profile

SCHEMA = Path(__file__).parents[3] / "docs" / "answers.schema.json"


@dataclass(frozen=True, slots=True)
class LocalSGD(Exchange):
    """Workers take `period` optimizer steps on their own, then average their parameters (Stich 2019)."""

    kind: ClassVar[str] = "localsgd"

    period: int = 8

    @classmethod
    def candidates(cls, asked, site, model) -> Iterator[LocalSGD]:
        options = (cls(period) for period in (4, 8)) if site.workers > 1 else ()
        return filter_by_choices(options, asked.choices)

    def memory_shares(self, model, precision, site):
        return Shares()

    def lower(self, computation, site):
        library = collective.library("auto", "auto", site)
        steps = JointSteps(computation, site, library, site_peers(site, library), JITTER, JITTER_S)
        last = ()
        for step in range(self.period):
            last = (steps.add_compute(f"step[{step}]", 0, computation.ops - 1, last),)
            last = (steps.add_optimizer(computation.optimizer_s, last, name=f"optimizer[{step}]"),)
        size = float(computation.elements * computation.precision.parameter_bytes)
        steps.add_optimizer(0.0, steps.add_collective("average", "all_reduce", size, last))
        case = steps.case()
        return replace(case, profile=replace(case.profile, batch=self.period * computation.batch))

    def labels(self, site=None):
        return Labels(
            cell="LocalSGD",
            name="LocalSGD",
            aside=" with LocalSGD",
            plan=f"parameters averaged every {self.period} steps",
            resources=BETWEEN_WORKERS,
        )


ARGS = (
    "--model",
    "resnet50",
    "--batch",
    "32",
    "--precision",
    "fp32",
    "--hardware",
    "p3.2xlarge",
    "--interval-width",
    "0.02",
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(EXCHANGES, "localsgd", LocalSGD)


def run(*args):
    done = CliRunner().invoke(app, [*args, "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("period", [4, 8])
def test_step_breakdown_of_local_sgd_agrees_with_utilisation(period):
    answer = run("simulate", *ARGS, "--workers", "4", "--exchange", f"localsgd:period={period}")
    step, prediction = answer["step"], answer["prediction"]
    busy = (step["compute_s"] + step["optimizer_s"]) / step["step_s"]
    assert busy == pytest.approx(prediction["utilisation"]["worker"])
    assert step["communication_s"] / step["step_s"] == pytest.approx(1 - busy)
    assert 0.3 < busy < 0.9
    assert step["step_s"] == pytest.approx(prediction["step_s"])
    ddp = run("simulate", *ARGS, "--workers", "4", "--exchange", "allreduce")["step"]
    assert step["compute_s"] == pytest.approx(period * ddp["compute_s"], rel=0.03)
    assert step["optimizer_s"] == pytest.approx(period * ddp["optimizer_s"], rel=0.03)
    assert step["communication_s"] == pytest.approx(ddp["communication_s"], rel=0.25)  # of one exchange


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("recommend", ("--workers", "2,4", "--budget", "30")),
        ("recommend", ("--workers", "2,4", "--search", "optuna", "--trials", "8")),
        ("compare", ("--workers", "2,4")),
        ("saturation", ("--max-workers", "3")),
        ("simulate", ("--workers", "2")),
    ],
)
def test_commands_and_pages_take_local_sgd_and_stay_below_its_bound(tmp_path, command, more):
    page = tmp_path / "page.html"
    answer = run(command, *ARGS, *more, "--exchange", "localsgd:period=8", "--html", str(page))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)
    plans = answer.get("plans") or answer.get("points") or [answer["plan"]]
    shared = [plan for plan in plans if plan["workers"] > 1]  # one device alone may stand beside
    assert {plan["exchange"]["kind"] for plan in shared} == {"localsgd"}
    assert {plan["exchange"]["period"] for plan in shared} == {8}
    assert all(plan["samples_per_s"] <= plan["bound_samples_per_s"] for plan in plans)
    assert all(plan["servers"] is plan["policy"] is None for plan in shared)
    assert "LocalSGD" in page.read_text()
    assert "every 8 steps" in page.read_text()


def test_recommend_counts_local_sgd_beside_servers():
    sizes = ("--workers", "1,2", "--budget", "30")
    both, served = (
        run("recommend", *ARGS, *sizes, "--exchange", names) for names in ("servers,localsgd", "servers")
    )
    assert both["considered"] == served["considered"] + 2  # periods, on two workers


def test_recommend_ranks_local_sgd_beside_the_built_in_strategies():
    answer = run("recommend", *ARGS, "--workers", "1,4", "--budget", "30")
    best = max(answer["plans"], key=lambda plan: plan["samples_per_s"])
    ddp = run("simulate", *ARGS, "--workers", "4", "--exchange", "allreduce")["plan"]
    assert best["exchange"] == {"kind": "localsgd", "period": 8}
    assert best["samples_per_s"] > ddp["samples_per_s"]


def test_simulate_shows_local_sgd_in_text_html_memory_and_notebook(tmp_path):
    page = tmp_path / "page.html"
    asked = ("simulate", *ARGS, "--workers", "4", "--exchange", "localsgd:period=8")
    answer = run(*asked, "--html", str(page))
    assert answer["memory"]["by_kind_bytes"]["parameters"] == pytest.approx(4 * 25_559_081)
    assert "LocalSGD" in page.read_text()
    assert "parameters averaged every 8 steps" in page.read_text()
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "LocalSGD" in done.stdout


def test_sweep_scores_stores_and_resumes_local_sgd(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'model = "resnet50"\nhardware = "p3.2xlarge"\nworkers = [2, 4]\nbatch = 32\nprecision = "fp32"\n'
        'exchange = "localsgd"\ninterval_width = 0.1\n'
    )
    asked = ("sweep", str(grid), "--store", str(tmp_path / "sweep.db"), "--quiet")
    first, again = run(*asked), run(*asked)
    assert sorted(row["exchange"]["period"] for row in first["plans"]) == [4, 4, 8, 8]
    assert {row["exchange"]["kind"] for row in first["plans"]} == {"localsgd"}
    assert [row["samples_per_s"] for row in again["plans"]] == [
        row["samples_per_s"] for row in first["plans"]
    ]


def test_help_lists_a_strategy_that_is_registered_before_it_is_shown():
    code = (
        "import test_local_sgd as here; from planner.parallel.data import EXCHANGES\n"
        "EXCHANGES['localsgd'] = here.LocalSGD\n"
        "from planner.search.flag_values import request_flags\n"
        "print(next(flag.help for flag in request_flags() if flag.name == 'exchange'))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    words = "alone, allreduce (ddp), sharded (fsdp, zero2), owned (zero1), localsgd, servers or all"
    assert words in shown.stdout, shown.stderr


def test_misspelt_strategy_or_setting_names_local_sgd():
    for words, says in (
        ("localsdg", "localsgd"),
        ("localsgd:perod=8", "period"),
        ("", "--exchange is empty"),
    ):
        refused = CliRunner().invoke(app, ["simulate", *ARGS, "--exchange", words])
        assert says in str(refused.exception)


def test_step_breakdown_attributes_every_role_and_idle_time():
    roles = (OpRole.FORWARD, OpRole.RECOMPUTE, OpRole.BUBBLE, OpRole.INPUT, OpRole.PARSE, OpRole.OPTIMIZER)
    ops = [
        Op(role.name, WORKER, deps=(index - 1,) if index else (), role=role)
        for index, role in enumerate(roles)
    ]
    ops.append(Op("slowed", WORKER, deps=(5,), parts=((OpRole.BACKWARD, 0.75), (OpRole.COMMUNICATION, 0.25))))
    ops.append(Op("host", HOST, deps=(6,)))
    seconds = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 7.0]])
    profile = Profile.build(ops, seconds, model="toy", batch=1, servers=0)
    cluster = Cluster(nodes=(Node(1.0, 1.0),), worker_nodes=(0,), server_nodes=(), worker_speeds=(0.5,))
    prediction = simulate(profile, cluster)
    assert prediction.utilisation[COMPUTATION] == pytest.approx(58 / 65)
    parts = step_breakdown(profile, prediction)
    assert parts.step_s == pytest.approx(65.0)
    assert parts.compute_s == pytest.approx(2 * (1 + 2 + 6))
    assert parts.recompute_s == pytest.approx(4.0)
    assert parts.bubble_s == pytest.approx(6.0)
    assert parts.input_s == pytest.approx(8.0)
    assert parts.optimizer_s == pytest.approx(12.0)
    assert parts.communication_s == pytest.approx(2 * (5 + 2) + 7)
