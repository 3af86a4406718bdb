"""The workers of the partition search are the devices of machines, and as fast as synthesis says."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answers.questions import parse_request, simulation_for
from planner.errors import BadInput, Infeasible
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.output import Format
from planner.servers.partition.layers import worker_constants
from planner.servers.partition.replica import replica_cluster
from planner.servers.partition.search import PartitionRequest, partition
from planner.servers.synthesis import NO_VARIATION, profile_for
from planner.simulator.step import WORKER


@pytest.mark.parametrize("name", ["p4d.24xlarge", "g5.xlarge", "p3.2xlarge", "c4.8xlarge"])
@pytest.mark.parametrize("batch", [16, 70])
def test_one_device_computes_as_long_as_in_a_synthesized_step(name: str, batch: int) -> None:
    model, machine = load_model("resnet50"), load_hardware(name)
    result = partition(model, machine, PartitionRequest(1, read_every=batch, max_workers=1))
    (plan,) = result.plans
    profile = profile_for(model, batch, machine, 1, steps=1, variation=NO_VARIATION)
    layers = [
        i for i, op in enumerate(profile.names) if profile.resource[i] == WORKER and not op.endswith("/parse")
    ]
    assert batch / plan.samples_per_s == pytest.approx(float(profile.durations_s[0, layers].sum()))


@pytest.mark.parametrize(
    ("name", "precision"), [("g5.xlarge", "tf32"), ("p3.2xlarge", "fp32"), ("c4.8xlarge", "fp32")]
)
def test_worker_and_a_server_are_as_fast_as_when_simulated(name: str, precision: str) -> None:
    """What is left between them: reading does not overlap with computing here, and updates take no time."""
    model, machine = load_model("resnet50"), load_hardware(name)
    (plan,) = partition(model, machine, PartitionRequest(2, read_every=32)).plans
    settings = {"workers": "1", "servers": "1", "server_hardware": "own", "batch": "32"}
    asked = parse_request(model="resnet50", hardware=name, precision=precision, **settings)
    simulated = simulation_for(asked).scored.prediction.samples_per_s
    assert 0.95 * simulated <= plan.samples_per_s <= 1.25 * simulated


def test_every_device_of_a_machine_is_a_worker() -> None:
    machine = load_hardware("p4d.24xlarge")
    result = partition(load_model("resnet50"), machine, PartitionRequest(3, max_workers=2))
    shapes = {(plan.workers, plan.replicas, plan.servers) for plan in result.plans}
    assert shapes == {(1, 8, 1), (1, 8, 2), (1, 16, 1), (2, 4, 1), (2, 4, 2), (2, 8, 1)}
    machines = {(plan.workers, plan.replicas, plan.servers): plan.machines for plan in result.plans}
    assert machines[1, 8, 2] == machines[1, 16, 1] == machines[2, 8, 1] == 3
    assert machines[2, 4, 1] == 2
    # exactly five replicas are taken as asked
    asked = partition(load_model("resnet50"), machine, PartitionRequest(2, max_workers=1, replicas=5))
    assert [(plan.replicas, plan.machines) for plan in asked.plans] == [(5, 2)]


def test_devices_share_the_nic_of_their_machine_and_servers_have_one_each() -> None:
    machine = load_hardware("p4d.24xlarge")
    nic = machine.nic_bytes_per_s("baseline")
    constants = worker_constants(machine)
    assert nic is not None
    assert constants.nic_bytes_per_s == nic / 8
    result = partition(load_model("vgg16"), machine, PartitionRequest(2, max_workers=1, read_every=1000))
    (plan,) = result.plans
    # eight replicas read in turn, each through an eighth of the NIC
    model = load_model("vgg16")
    parse_s = 8 * (constants.parse_s_per_byte * model.bytes + constants.parse_s * len(model.tensors)) / 1000
    assert plan.reading_s - parse_s == pytest.approx(8 * model.bytes / (nic / 8) / 1000)
    cluster = replica_cluster(plan, result.constants)
    assert {node.egress_bytes_per_s for node in cluster.nodes} == {nic, nic / 8}


def test_machine_alone_answers_without_servers() -> None:
    (plan,) = partition(load_model("resnet50"), load_hardware("g5.xlarge"), PartitionRequest(1)).plans
    assert (plan.name, plan.machines, plan.reading_s) == ("<1,1,0>", 1, 0.0)
    assert plan.epoch_s == pytest.approx(plan.split.compute_s)
    eight = partition(load_model("vgg16"), load_hardware("p4d.24xlarge"), PartitionRequest(1, max_workers=4))
    assert sorted((plan.workers, plan.replicas, plan.servers) for plan in eight.plans) == [
        (workers, 1, 0) for workers in (1, 2, 3, 4)
    ]


def test_answer_for_a_machine_alone(capsys: pytest.CaptureFixture[str]) -> None:
    from planner.servers.cli import partition as command

    shown = {"format": Format.table, "output": None, "html": None, "quiet": True, "no_color": False}
    usual: dict[str, Any] = {"runner_ups": 7, "network": "baseline", **shown}
    command(model="resnet50", hardware="g5.xlarge", machines=1, simulated=False, **usual)
    text = " ".join(capsys.readouterr().out.split())
    assert "1 replica of 1 worker, no server" in text
    assert "reads from no server" in text
    with pytest.raises(BadInput, match="--simulate needs servers"):
        command(model="resnet50", hardware="g5.xlarge", machines=1, simulated=True, **usual)


def test_calibrated_machine_keeps_its_constants() -> None:
    machine = load_hardware("private-2xe5-2450-10gbe")
    constants = worker_constants(machine)
    assert (constants.muladd_s, constants.server_nic_bytes_per_s) == (0.75e-9, None)
    with pytest.raises(Infeasible, match="C2 binds"):
        partition(load_model("mnist-adam"), machine, PartitionRequest(3, threads=99))
