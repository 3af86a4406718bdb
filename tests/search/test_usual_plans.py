"""What one plan is where a request leaves it open: its exchange, its machine, the network of collectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.answers.questions import parse_request, simulation_for, single_plan
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.note import Reason
from planner.parallel.collectives.libraries import Gloo, site_peers
from planner.parallel.data.ddp import AllReduce
from planner.parallel.plan import Plan
from planner.report.assumed import notes_of
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.space import enumerate_plans

DATA = Path(__file__).parents[1] / "data"


def plan(*, joined: bool = False, **words: object) -> Plan:
    return single_plan(parse_request(model="resnet50", **words), joined=joined)  # type: ignore[arg-type]


def test_one_device_is_alone_and_several_sum() -> None:
    assert plan().exchange.kind == plan(workers="1").exchange.kind == "alone"
    assert plan(workers="4").exchange.kind == "allreduce"
    assert plan(joined=True).exchange.kind == "allreduce"  # alone does not grow
    assert plan(hardware="p4d.24xlarge", workers="8").exchange.kind == "allreduce"


@pytest.mark.parametrize(
    "words",
    [
        {"servers": "1"},
        {"policy": "tic"},
        {"placement": "mxnet"},
        {"mode": "sync"},
        {"server_hardware": "own"},
        {"exchange": "servers"},
        {"hardware": "c4.8xlarge", "workers": "4", "workers_per_replica": "2", "server_hardware": "own"},
    ],
)
def test_choices_of_servers_mean_servers(words: dict[str, str]) -> None:
    assert plan(**words).exchange.kind == "servers"


def test_usual_machine_can_be_rented() -> None:
    machine = load_hardware(plan().machine)
    assert machine.is_available
    assert machine.still_sold
    assert machine.device_count == 1


def test_steps_recorded_with_servers_go_on_with_them() -> None:
    files = sorted((DATA / "tensorflow").glob("alexnet_ps1_step*.pb.gz"))
    profile = replace(planner.import_profile(files, batch=16), model="alexnet")
    asked = Request(model="alexnet", profile=profile, workers=(3,), bandwidth_bytes_per_s=1.25e7)
    assert single_plan(asked).exchange.kind == "servers"


def test_recorded_ddp_step_is_predicted_for_more_ranks() -> None:
    """A trace of PyTorch's DDP: its own two buckets are summed among as many ranks as are asked for."""
    profile = planner.import_profile([DATA / "pytorch" / "ddp.json.gz"], batch=16)
    seconds = {}
    for workers in (1, 2, 4, 8):
        asked = Request(
            model=profile.model, profile=profile, workers=(workers,), bandwidth_bytes_per_s=1.25e8, seed=1
        )
        asked = replace(asked, exchanges=(("allreduce", {}),))
        cases = Cases(asked, model_of(asked))
        case = cases.case(single_plan(asked))
        sums = [name for name in case.profile.names if name.startswith("allreduce[")]
        assert len(sums) == (0 if workers == 1 else 2)
        assert case.cluster.workers == workers
        library, site = Gloo(), cases.site(single_plan(asked))
        gradients = AllReduce().buckets(cases.computation(single_plan(asked)))
        exposed = sum(
            library.seconds("all_reduce", gradient.bytes, site_peers(site, library)) for gradient in gradients
        )
        rate = simulation_for(asked).scored.samples_per_s
        seconds[workers] = workers * 16 / rate, exposed
    alone = seconds[1][0]
    for workers in (2, 4, 8):
        step_s, exposed = seconds[workers]
        # sums hide behind the backward pass, which they slow down by a quarter at most; ranks differ a little
        assert alone < step_s < 1.25 * alone + exposed
    assert seconds[2][0] < seconds[4][0] < seconds[8][0]


def test_network_of_collectives_is_said_and_counts() -> None:
    words = {"hardware": "p4d.24xlarge", "workers": "16", "exchange": "allreduce", "interval_width": 0.05}
    by_name = {}
    for network in ("tcp", "rdma", None):
        request = parse_request(model="vgg16", network=network, **words)  # type: ignore[arg-type]
        answer = simulation_for(request)
        (said,) = [note.text for note in notes_of(answer.assumptions) if "between machines over" in note.text]
        assert ("TCP, without RDMA" in said) == (network == "tcp")
        by_name[network] = answer.scored.samples_per_s
    assert by_name["rdma"] == by_name[None]
    assert by_name["tcp"] < 0.95 * by_name["rdma"]


def test_rdma_is_refused_where_it_is_not() -> None:
    with pytest.raises(BadInput, match=r"^g5\.xlarge has no RDMA; use --network tcp$"):
        plan(hardware="g5.xlarge", workers="2", network="rdma")
    with pytest.raises(BadInput, match=r"g4dn\.metal is not known to have RDMA; use --network tcp, or set"):
        plan(hardware="g4dn.metal", network="rdma")
    request = parse_request(model="resnet50", hardware="g5.xlarge,p4d.24xlarge", network="rdma")
    space = enumerate_plans(replace(request, workers=(8,)), model_of(request))
    assert {entry.machine for entry in space.plans} == {"p4d.24xlarge"}
    assert space.left_out == {Reason("has", "no RDMA; --network tcp counts them in"): ["g5.xlarge"]}
    with pytest.raises(BadInput, match="no RDMA"):
        enumerate_plans(replace(request, hardware=("g5.xlarge",)), model_of(request))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tcp,rdma", "--network tcp and rdma contradict each other"),
        ("burst,baseline", "--network burst and baseline contradict each other"),
        ("infiniband", "baseline or burst, and tcp or rdma"),
    ],
)
def test_words_of_the_network(words: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(network=words)
    request = parse_request(model="resnet50", network="burst,tcp")
    assert (request.network, request.rdma) == ("burst", False)
    parse_request(model="resnet50", network="tcp", bandwidth="10Gbit")
    with pytest.raises(BadInput, match="--bandwidth and --network burst contradict"):
        parse_request(model="resnet50", network="burst,tcp", bandwidth="10Gbit")
