"""A request means what it says: what is named counts, what contradicts itself is refused, unset is unset."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import planner
from planner.answers.questions import parse_request, simulation_for, single_plan
from planner.answers.recommend import recommend_for
from planner.answers.sweep import sweep
from planner.cli._app import app
from planner.errors import BadInput, Infeasible
from planner.model.catalog import load_model
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.space import enumerate_plans
from planner.servers.parameter_servers import ParameterServers
from planner.simulator.step.files import save

TRACES = sorted((Path(__file__).parents[1] / "data" / "tensorflow").glob("alexnet_ps1_step*.pb.gz"))
SLOW = """
[kernels.V100-SXM2-16GB]
rates = { conv1x1 = 7e11, conv3x3 = 7e11, conv = 7e11, fc = 7e11, memory = 8e10 }
overhead_s = 4e-5
[machines.mine]
device = "V100-SXM2-16GB"
nic_baseline_gbit_per_s = 2.5
on_demand_usd_per_hour = 3.06
"""


def refused(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    assert isinstance(done.exception, planner.PlannerError), done.output
    return str(done.exception)


def answered(*args: str) -> dict[str, object]:
    done = CliRunner().invoke(app, [*args, "--format", "json"])
    assert done.exit_code == 0, done.output
    loads: dict[str, object] = json.loads(done.stdout)
    return loads


def asked(**words: object) -> Request:
    return parse_request(**words)


def test_device_of_the_same_name_with_other_rates_is_another_device(tmp_path: Path) -> None:
    """Whichever comes first, each machine has its own times."""
    path = tmp_path / "mine.toml"
    path.write_text(SLOW)
    for words in (f"p3.2xlarge,{path}", f"{path},p3.2xlarge"):
        request = asked(model="resnet50", hardware=words, server_hardware="own", interval_width=0.05)
        cases = Cases(request, load_model("resnet50"))
        fast, slow = (
            cases.computation(Plan("resnet50", 64, name, 1, ParameterServers(1, name)))
            for name in ("p3.2xlarge", "mine")
        )
        assert slow.once_s is not None
        assert fast.once_s is not None
        assert slow.once_s.sum() > 5 * fast.once_s.sum()


def test_servers_that_cannot_hold_their_share_are_refused() -> None:
    words = {"model": "vgg19", "hardware": "p3.2xlarge", "server_hardware": "c5n.large", "servers": "1"}
    with pytest.raises(Infeasible, match=r"64 workers needs 35\.8 GiB, and c5n\.large has 4\.73 GiB"):
        simulation_for(asked(**words, workers=64))
    space = enumerate_plans(asked(**words, workers="1,64"), load_model("vgg19"))
    assert {plan.workers for plan in space.plans} == {1}
    assert space.dropped["for which servers lack memory"] == 1
    assert (
        simulation_for(asked(**words, workers=1, interval_width=0.1)).scored.as_dict()["fits_memory"] is True
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"servers": "1-4"}, "--servers names 4"),
        ({"servers": "1-3"}, "--servers names 3"),
        ({"hardware": "p3.*,c4.*,private-*"}, "--hardware names"),
        ({"server_hardware": "own,cheap"}, r"--server-hardware names \d+ machines"),
        ({"server_hardware": "own,c5n.large"}, "--server-hardware names 2 machines"),
        ({"policy": "tic,tac"}, "--policy names 2"),
        ({"placement": "greedy,mxnet"}, "--placement names 2"),
        ({"workers_per_replica": "1,2"}, "--workers-per-replica names 2"),
        ({"hardware": ""}, "--hardware is empty"),
        ({"server_hardware": ""}, "--server-hardware is empty"),
        ({"policy": " , "}, "--policy is empty"),
    ],
)
def test_default_is_no_sentinel(words: dict[str, str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        single_plan(asked(**{"model": "alexnet", **words}))


def test_one_host_by_any_word() -> None:
    for words, host in (("own", "p3.2xlarge"), ("colocated", None), ("c5n.large", "c5n.large")):
        plan = single_plan(asked(model="alexnet", hardware="p3.2xlarge", server_hardware=words))
        assert isinstance(plan.exchange, ParameterServers)
        assert plan.exchange.host == host


def test_exchange_that_cannot_fill_a_machine_is_said() -> None:
    """One device of eight trains alone where one is asked for or none is named; two do not."""
    request = Request(model="alexnet", hardware=("p4d.24xlarge",), workers=(1,), exchanges=(("alone", {}),))
    assert recommend_for(request).chosen.plan.workers == simulation_for(request).scored.plan.workers == 1
    with pytest.raises(BadInput, match=r"--exchange alone cannot fill p4d\.24xlarge"):
        recommend_for(replace(request, workers=(2,)))


def test_automatic_batch_of_one_plan_is_the_largest_that_fits() -> None:
    request = asked(model="vgg16", hardware="p3.2xlarge", batch="auto")
    batch = single_plan(request).batch
    assert batch in {2**k for k in range(3, 11)}
    Cases(request, model_of(request)).check(single_plan(request))
    with pytest.raises(Infeasible, match="needs"):
        simulation_for(asked(model="vgg16", hardware="p3.2xlarge", batch=2 * batch))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Recorded on a machine that the catalog does not hold."""
    path = tmp_path_factory.mktemp("profiles") / "p.json.gz"
    save(planner.import_profile(TRACES, batch=16, model="alexnet"), path)
    return str(path)


@pytest.mark.parametrize("command", ["simulate", "saturation"])
def test_profile_is_simulated_on_the_machine_it_was_recorded_on(profile: str, command: str) -> None:
    more = {"simulate": ("--workers", "4"), "saturation": ("--max-workers", "2")}[command]
    answer = answered(
        command, "--profile", profile, "--bandwidth", "200Mbit", "--interval-width", "0.1", *more
    )
    plans = answer.get("points") or [answer["plan"]]
    assert isinstance(plans, list)
    for plan in plans:
        assert plan["usd_per_hour"] is plan["usd_per_million_samples"] is plan["fits_memory"] is None
        assert plan["samples_per_s"] > 0
    assert "--bandwidth" in refused(command, "--profile", profile, *more)


def test_profile_says_nothing_of_another_device(profile: str) -> None:
    words = ("--profile", profile, "--hardware", "p3.2xlarge,g4dn.xlarge")
    for command in ("compare", "recommend"):
        assert "holds the times of one device" in refused(command, *words)
    same = (
        "--profile",
        profile,
        "--hardware",
        "p3.2xlarge,p3.8xlarge",
        "--workers",
        "1",
        "--interval-width",
        "0.1",
    )
    assert len(answered("compare", *same)["plans"]) == 2  # type: ignore[arg-type]
    assert "--hardware" in refused("recommend", "--profile", profile, "--bandwidth", "1Gbit")


@pytest.mark.parametrize(("flag", "word"), [("--model", "vgg11"), ("--batch", "8"), ("--batch", "auto")])
def test_profile_is_not_relabelled(profile: str, flag: str, word: str) -> None:
    words = refused("simulate", "--profile", profile, "--hardware", "p3.2xlarge", flag, word)
    assert f"{flag} {word} contradicts --profile" in words


def test_sweeps_take_the_profiles_that_simulate_takes(tmp_path: Path) -> None:
    steps = replace(planner.import_profile(TRACES, batch=16), model="mine", hardware="")
    save(steps, tmp_path / "p.json.gz")
    (tmp_path / "sweep.toml").write_text(
        'profile = "p.json.gz"\nbandwidth = "200Mbit"\nworkers = [1, 2]\n'
        'servers = 1\nserver_hardware = "own"\n'
    )
    result = sweep(tmp_path / "sweep.toml", tmp_path / "s.db", jobs=1)
    assert [row.plan.workers for row in result.rows] == [1, 2]
    assert not result.rows[0].priced
    assert "<table " in result._repr_html_()


def test_sampled_space_is_the_enumerated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines owned and other providers: what enumeration leaves out is never sampled, and the reverse."""
    from planner.answers.sampled import sample_plans
    from planner.search.simulations import Simulations

    request = asked(
        model="alexnet",
        hardware="private-opteron",
        server_hardware="own,c5n.large",
        servers="1,2",
        placement="greedy",
        interval_width=0.2,
        max_steps=20,
    )
    everything = {plan.key for plan in enumerate_plans(request, load_model("alexnet")).plans}
    seen = set()

    def predicted(self: Simulations, plans: object, *_: object) -> list[object]:
        seen.update(plan.key for plan in plans)  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    simulations = Simulations(Cases(request, load_model("alexnet")), executor=None)  # type: ignore[arg-type]
    monkeypatch.setattr("planner.answers.sampled._is_dominated", lambda *_: False)
    monkeypatch.setattr("planner.answers.sampled.ROUND", 400)
    monkeypatch.setattr(Simulations, "predict_all", predicted)
    result = sample_plans(simulations, trials=400)
    assert result.partial
    assert seen <= everything
    assert any("/c5n.large/" in key for key in seen)
    assert len(seen) > 0.6 * len(everything)


def test_budget_below_all_plans_names_the_cheapest() -> None:
    request = asked(
        model="alexnet", hardware="p3.2xlarge,c4.8xlarge", workers="1,2", servers="1", samples=1e9, spend=1
    )
    with pytest.raises(Infeasible, match=r"over --spend; the cheapest is .*, which needs at least \$"):
        recommend_for(request)


def test_enumerate_plans_workers_fewer_than_devices_are_kept_on_one_machine() -> None:
    space = enumerate_plans(asked(model="alexnet", hardware="p3.8xlarge", workers="3"), load_model("alexnet"))
    assert {(plan.workers, plan.machines) for plan in space.plans} == {(3, 1)}
