"""A new exchange is one class and a line in the registry: all commands, JSON, tables and pages take it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from planner.cli._app import app
from planner.device.memory import Shares
from planner.note import Note, Topic
from planner.parallel.data import EXCHANGES, Exchange, Labels, Variant, with_choices
from planner.simulator.cluster import Cluster, Resource, ResourceKind
from planner.simulator.policy import Fifo
from planner.simulator.simulate import Case
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

SCHEMA = Path(__file__).parents[3] / "docs" / "answers.schema.json"


@dataclass(frozen=True, slots=True)
class Broadcast(Exchange):
    """Worker 0 gathers all gradients in one message, updates, and sends all parameters in one."""

    kind: ClassVar[str] = "broadcast"

    pieces: int = 1

    @classmethod
    def candidates(cls, asked, site, model) -> Iterator[Broadcast]:
        options = (cls(pieces) for pieces in (1, 2)) if site.mesh.size == 1 else ()
        return with_choices(options, asked.choices)

    def memory_shares(self, model, precision, site):
        return Shares(optimizer=0.0)

    def variants(self, site):
        yield Variant("pieces", f"{self.pieces + 1} pieces", Broadcast(self.pieces + 1))

    def lower(self, computation, site):
        size = computation.elements * computation.precision.gradient_bytes // self.pieces
        ops = [Op(f"down{i}", DOWNLINK, 0, size, (), i) for i in range(self.pieces)]
        first = tuple(range(self.pieces))
        for op, name in enumerate(computation.names):
            ops.append(Op(name, WORKER, deps=(*first, *(self.pieces + dep for dep in computation.deps(op)))))
        last = len(ops) - 1
        for i in range(self.pieces):
            ops.append(Op(f"up{i}", UPLINK, 0, size, (last,), i))
            ops.append(Op(f"update{i}", PS, 0, deps=(len(ops) - 1,), tensor=i))
        once = [0.0] * self.pieces + list(computation.once_s) + [0.0, 1e-3] * self.pieces
        profile = Profile.build(
            ops,
            computation.varied(once),
            model=computation.model,
            batch=computation.batch,
            tensors=[f"t{i}" for i in range(self.pieces)],
        )
        cluster = Cluster.uniform(site.workers, 1, site.nic_bytes_per_s)
        return Case(profile=profile, cluster=cluster, policy=Fifo(), mode="sync")

    def labels(self, site=None):
        return Labels(
            cell="from worker 0",
            aside=" with a broadcast from worker 0",
            plan=f"gradients gathered at worker 0 in {self.pieces} pieces",
            assumptions=(Note(Topic.TRAINING, "synchronous SGD, parameters broadcast from worker 0."),),
            resources={Resource(ResourceKind.DOWNLINK): "sending parameters from worker 0"},
        )


ARGS = ("--model", "alexnet", "--batch", "32", "--hardware", "p3.2xlarge", "--interval-width", "0.1")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(EXCHANGES, "broadcast", Broadcast)
    monkeypatch.setenv("COLUMNS", "160")  # no cell of a table is wrapped


def planner(*args, data=None):
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if data else done.stdout


def plans_of(answer):
    return answer.get("plans") or answer.get("points") or [answer["plan"]]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("recommend", ("--workers", "1,2", "--budget", "30")),
        ("recommend", ("--workers", "1,2", "--search", "optuna", "--trials", "8")),
        ("compare", ("--workers", "1,2")),
        ("saturation", ("--max-workers", "3")),
        ("simulate", ("--workers", "2")),
    ],
)
def test_every_command_takes_it(command, more, tmp_path):
    page = tmp_path / "page.html"
    args = (command, *ARGS, *more, "--exchange", "broadcast")
    answer = planner(*args, "--format", "json", "--html", str(page), data=True)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)
    plans = [plan for plan in plans_of(answer) if plan["exchange"]["kind"] != "alone"]  # the baseline
    assert plans
    for plan in plans:
        assert plan["exchange"]["kind"] == "broadcast"
        assert plan["servers"] is plan["policy"] is plan["server_usd_per_hour"] is None
        assert plan["samples_per_s"] <= plan["bound_samples_per_s"]
        assert plan["usd_per_hour"] == pytest.approx(3.06 * plan["workers"])
        assert "with a broadcast from worker 0" in plan["cluster"]
    assert any("broadcast from worker 0" in line for line in answer["assumptions"])
    text = planner(*args)
    if command not in ("saturation", "simulate"):
        assert "from worker 0" in text
    assert "broadcast from worker 0" in page.read_text()


def test_it_stands_beside_servers_in_one_answer():
    answer = planner("recommend", *ARGS, "--workers", "1,2", "--budget", "30", "--format", "json", data=True)
    assert answer["version"] == 2
    both = planner(
        "recommend",
        *ARGS,
        "--workers",
        "1,2",
        "--exchange",
        "servers,broadcast",
        "--format",
        "json",
        data=True,
    )
    alone = planner(
        "recommend", *ARGS, "--workers", "1,2", "--exchange", "servers", "--format", "json", data=True
    )
    assert both["considered"] == alone["considered"] + 2 * 2
    assert {plan["exchange"]["kind"] for plan in alone["plans"]} - {"alone"} == {"servers"}


def test_a_choice_can_be_fixed():
    answer = planner(
        "compare", *ARGS, "--workers", "2", "--exchange", "broadcast:pieces=2", "--format", "json", data=True
    )
    assert [plan["exchange"] for plan in answer["plans"]] == [{"kind": "broadcast", "pieces": 2}]


def test_sweeps_store_it(tmp_path):
    (tmp_path / "sweep.toml").write_text(
        'model = "alexnet"\nbatch = 32\nhardware = "p3.2xlarge"\nworkers = [1, 2]\n'
        'exchange = ["broadcast"]\ninterval_width = 0.1\n'
    )
    args = ("sweep", str(tmp_path / "sweep.toml"), "--store", str(tmp_path / "s.db"), "--format", "json")
    first = planner(*args, data=True)
    assert [plan["exchange"]["pieces"] for plan in first["plans"]] == [1, 2, 1, 2]
    assert planner(*args, data=True) == first


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("broadcas", "nearest: broadcast"),
        ("broadcast:parts=2", "pieces"),
        ("", "--exchange is empty"),
    ],
)
def test_what_is_not_known_is_refused(words, says):
    refused = CliRunner().invoke(app, ["simulate", *ARGS, "--exchange", words])
    assert says in str(refused.exception)
