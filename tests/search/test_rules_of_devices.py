"""Rules about devices, links and machines, one by one, as mutants asked for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from planner.answers.launching import launch_of
from planner.answers.questions import parse_request
from planner.answers.recommend import recommend_for
from planner.hardware import Fabric
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.collectives.libraries import _fabric_rate
from planner.parallel.data.ddp import AllReduce
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.feasibility import peak_memory
from planner.search.request import Request, model_of
from planner.servers.parameter_servers import ParameterServers, largest_server_bytes


def test_first_stage_of_a_pipeline_holds_its_layers_and_several_batches() -> None:
    """A quarter of the weights each, and with eight micro-batches more of them under way than with one."""
    request = Request(model="gpt2-xl", hardware=("p4d.24xlarge",))
    model = model_of(request)
    cases = Cases(request, model)
    whole = Plan("gpt2-xl", 1, "p4d.24xlarge", 8, AllReduce(), workers_per_machine=8, accumulate=8)
    parts = replace(whole, mesh=Mesh.of(pipeline=4))
    first, part = (peak_memory(plan, model, cases.site(plan)) for plan in (whole, parts))
    assert 0.2 < part.parameters_bytes / first.parameters_bytes < 0.35
    few = replace(parts, accumulate=1)
    assert peak_memory(few, model, cases.site(few)).activations_bytes < 0.5 * part.activations_bytes


FABRIC = Fabric("NVLink", "switch", 300e9, "published", "made up")  # type: ignore[arg-type]


def test_all_reduce_that_was_measured_counts_for_all_devices_only() -> None:
    measured = replace(FABRIC, allreduce_bytes_per_s=100e9)
    assert _fabric_rate(measured, 8, 8) == 100e9
    assert _fabric_rate(measured, 4, 8) == _fabric_rate(FABRIC, 4, 8)
    assert _fabric_rate(FABRIC, 8, 8) == _fabric_rate(FABRIC, 4, 8)


def test_traffic_beyond_a_pair_takes_the_slower_link() -> None:
    pairs = replace(FABRIC, topology="pairs", between_bytes_per_s=10e9)
    assert _fabric_rate(pairs, 4, 4) <= 10e9
    assert _fabric_rate(pairs, 2, 4) > 10e9
    mesh = replace(FABRIC, topology="mesh")
    assert _fabric_rate(mesh, 2, 8) < _fabric_rate(mesh, 4, 8) < _fabric_rate(mesh, 8, 8)


def test_server_that_holds_most_decides_about_memory() -> None:
    model = load_model("vgg16")
    largest = max(tensor.bytes for tensor in model.tensors)
    for servers in (1, 2, 3):
        largest_bytes = largest_server_bytes(model, servers, "greedy")
        assert max(largest, model.bytes / servers) <= largest_bytes <= model.bytes
    assert largest_server_bytes(model, 2, "greedy") > model.bytes / 2


@pytest.mark.parametrize("goal", ["fastest", "cheapest"])
def test_comparison_shows_the_best_plan_of_each_machine_by_the_goal(goal: str) -> None:
    words = {
        "server_hardware": "own",
        "workers": "1,2,4",
        "servers": "1",
        "exchange": "servers",
        "workers_per_replica": "1",
        "interval_width": 0.05,
    }
    machines = ("p3.2xlarge", "g5.xlarge")
    compare = planner.compare("alexnet", hardware=",".join(machines), objective=goal, **words)
    assert {row.plan.machine for row in compare.rows} == set(machines)
    for row in compare.rows:
        asked = parse_request(model="alexnet", hardware=row.plan.machine, objective=goal, **words)  # type: ignore[arg-type]
        everything = recommend_for(asked, exhaustive=True, advice=False).everything
        if goal == "fastest":
            assert row.samples_per_s >= 0.9 * max(scored.samples_per_s for scored in everything)
        else:
            best = min(scored.usd_per_million_samples for scored in everything)
            assert row.usd_per_million_samples <= 1.1 * best


def test_launch_starts_machines_where_they_are_rented() -> None:
    def launch(machine: str) -> object:
        request = Request(model="alexnet", hardware=(machine,))
        cases = Cases(request, model_of(request))
        plan = Plan("alexnet", 64, machine, 1, ParameterServers(1, machine))
        return launch_of(cases.score_plan(plan, cases.predict(plan)), request)

    rented = launch("g5.xlarge")
    assert (rented.provider, rented.region) == ("aws", load_hardware("g5.xlarge").price.region)  # type: ignore[attr-defined]
    own = launch("private-opteron")
    assert (own.provider, own.region, own.spot) == (None, None, False)  # type: ignore[attr-defined]
