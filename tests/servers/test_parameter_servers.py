"""Parameter servers: machines that sum first, what parses, cores that run out; bounds and equality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.device.computation import Computation
from planner.device.computation.synthesis import synthesize_computation
from planner.errors import BadInput
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.parallel.collectives.libraries import Nccl, site_peers
from planner.parallel.data import Job, Site
from planner.search.request import Request
from planner.search.sizes import strategy_settings
from planner.servers.parameter_servers import ParameterServers
from planner.simulator import simulate
from planner.simulator.bounds import throughput_bounds
from planner.simulator.cluster import COMPUTATION, HOSTS, Resource, ResourceKind
from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import Case
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER

P3 = "p3.16xlarge"
MACHINE = ParameterServers(servers=2, host=P3, mode="sync", aggregate="machine")


def site(workers: int, machine: str = P3, **more: object) -> Site:
    return Site(load_hardware(machine), workers, **more)  # type: ignore[arg-type]


def small(machine: str = P3, batch: int = 8) -> Computation:
    model: Model = load_model("alexnet")
    return synthesize_computation(model, batch, load_hardware(machine))


def rate(case: Case, **more: object) -> float:
    result = simulate(case.profile, case.cluster, case.policy, case.mode, precision=0.01, **more)  # type: ignore[arg-type]
    return result.samples_per_s


def names(ask: Request, where: Site) -> list[ParameterServers]:
    return list(ParameterServers.candidates(strategy_settings(ask, "servers"), where, load_model("alexnet")))


def test_traffic_of_a_machine_does_not_grow_with_devices() -> None:
    computation = small()
    sent = {}
    for aggregate in ("device", "machine"):
        case = replace(MACHINE, aggregate=aggregate).lower(computation, site(16))
        result = run(case.profile, case.cluster, case.policy, case.mode, RunOptions(steps=2, until="all"))
        sent[aggregate] = result.link_bytes.sum(axis=1)
    up, down = (int(small().elements) * 4 * 2 for _ in range(2))
    assert sent["machine"].sum() == 2 * (up + down)  # machines x steps
    assert sent["device"].sum() == pytest.approx(8 * sent["machine"].sum())
    assert sent["machine"][:, 2].sum() == 0  # of the fabric only times are known


def test_gradients_are_summed_before_they_leave_and_parameters_shared_when_they_are_parsed() -> None:
    where = site(16)
    step = MACHINE.lower(small(), where).profile
    peers = site_peers(site(8), Nccl())
    index = {name: op for op, name in enumerate(step.names)}
    for name, op in index.items():
        deps = [step.names[dep] for dep in step.deps(op)]
        if step.resource[op] == UPLINK:
            assert deps == [f"{name}/sum"]
            took = step.durations_s[:, index[deps[0]]]
            assert set(took) == {Nccl().seconds("reduce_scatter", float(step.bytes[op]), peers)}
        if name.endswith("/parse"):
            assert step.resource[op] == HOST
            (download,) = step.deps(op).tolist()
            took = step.durations_s[:, index[f"{name}/share"]]
            assert set(took) == {Nccl().seconds("all_gather", float(step.bytes[download]), peers)}
        if step.resource[op] == WORKER:
            assert not any(dep.endswith("/parse") for dep in deps)
    joint = step.scope >= 0
    assert joint.tolist() == (step.resource != WORKER).tolist()
    transfers = int(((step.resource == UPLINK) | (step.resource == DOWNLINK)).sum())
    assert int(((step.resource == PS) & (step.server == 2)).sum()) == transfers


def test_half_full_machine_talks_for_the_devices_that_it_has() -> None:
    case = MACHINE.lower(small(), site(12))
    assert case.cluster.leaders == ((0,) * 8 + (8,) * 4,)
    full, half = (rate(MACHINE.lower(small(), site(workers))) for workers in (16, 12))
    assert half == pytest.approx(full * 12 / 16, rel=0.05)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("host", [P3, None])
@pytest.mark.parametrize("policy", ["multiplexed", "tic", "p3"])
def test_engine_equals_the_reference(mode: str, host: str | None, policy: str) -> None:
    exchange = replace(MACHINE, mode=mode, host=host, policy=policy)
    hardware = replace(load_hardware(P3), device_count=2, vcpus=4)
    case = exchange.lower(small(), Site(hardware, 5, Market(own=(hardware,))))
    options = RunOptions(steps=3, until="all", fairness_sigma=0.17)
    settings = (case.profile, case.cluster, case.policy, case.mode, options)
    engine, reference = run(*settings, path="engine"), run(*settings, path="reference")
    for mine, its in zip(engine.step_ends_s, reference.step_ends_s, strict=True):
        assert mine.tolist() == its.tolist()
    assert engine.host_busy_s.tolist() == pytest.approx(reference.host_busy_s.tolist())


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("workers", [8, 12, 16])
def test_bound_of_machines_holds_and_is_near(mode: str, workers: int) -> None:
    exchange, where = replace(MACHINE, mode=mode), site(workers)
    computation = small(batch=64)
    (quick,) = ParameterServers.bounds([Job(exchange, computation, where)])
    case = exchange.lower(computation, where)
    (general,) = throughput_bounds([case])
    result = rate(case)
    assert result <= min(quick, general) * 1.02
    assert result >= 0.5 * quick
    assert quick == pytest.approx(general, rel=0.4)


def test_one_device_has_nobody_to_sum_with() -> None:
    first, other = (
        replace(MACHINE, aggregate=each).lower(small(), site(1)) for each in ("device", "machine")
    )
    assert first.profile.names == other.profile.names
    assert first.cluster == other.cluster


def test_machines_sum_first_where_they_have_several_devices() -> None:
    ask = Request(model="alexnet", servers=(1, 2), policies=("multiplexed", "prophet"))
    for where in (site(16), site(1)):
        by_name = {name.policy: name.aggregate for name in names(ask, where)}
        assert by_name == {"multiplexed": "machine", "prophet": "device"}
    assert {name.aggregate for name in names(ask, site(4, "p3.2xlarge"))} == {"device"}
    fixed = replace(ask, exchanges=(("servers", {"aggregate": "device"}),))
    assert {name.aggregate for name in names(fixed, site(16))} == {"device"}
    for request, aggregate in (
        (replace(fixed, policies=None, servers=None), "device"),
        (Request(model="alexnet"), "machine"),
    ):
        asked = strategy_settings(request, "servers", single=True)
        named = next(ParameterServers.candidates(asked, site(16), load_model("alexnet")))
        assert named.aggregate == aggregate


def test_keys_of_devices_stay_and_machines_have_their_own() -> None:
    assert replace(MACHINE, aggregate="device").key == "002/p3.16xlarge/greedy/multiplexed/sync"
    assert MACHINE.key == "002/p3.16xlarge/greedy/multiplexed/sync/machine"


def test_unsummable_gradients_are_refused_with_the_remedy() -> None:
    assert "servers:aggregate=device" in str(replace(MACHINE, policy="prophet").infeasibility(site(16)))
    unjoined = replace(load_hardware(P3), fabric=None)
    where = Site(unjoined, 16, Market(own=(unjoined,)))
    assert "add a [fabric]" in str(MACHINE.infeasibility(where))
    assert {name.aggregate for name in names(Request(model="alexnet"), where)} == {"device"}
    fixed = Request(model="alexnet", exchanges=(("servers", {"aggregate": "machine"}),))
    assert names(fixed, where) == []
    with pytest.raises(BadInput, match="device or machine"):
        ParameterServers(aggregate="rack")  # type: ignore[arg-type]


def test_servers_hold_what_each_machine_sends() -> None:
    """A gradient of every sender waits at the server: 64 of VGG-19 need more than 16 GB, 8 do not."""
    model, where = load_model("vgg19"), site(64)
    apart = ParameterServers(servers=1, host="c5.2xlarge", mode="sync")
    assert "for 64 workers needs 35.8 GiB" in str(apart.infeasibility(where, model))
    assert replace(apart, aggregate="machine").infeasibility(where, model) is None


def test_hosts_parse_beside_accelerators_and_cpus_for_themselves() -> None:
    for machine, resource in (("p3.2xlarge", HOST), ("c5.4xlarge", WORKER)):
        step = ParameterServers().lower(small(machine), site(2, machine)).profile
        parses = [op for op, name in enumerate(step.names) if name.endswith("/parse")]
        assert parses
        assert {int(step.resource[op]) for op in parses} == {resource}


def test_parsing_does_not_occupy_the_accelerator() -> None:
    """What a GPU computes stays what it computes alone, however long its host parses."""
    computation = small("p3.2xlarge", batch=64)
    case = ParameterServers(host="p3.2xlarge").lower(computation, site(1, "p3.2xlarge"))
    result = simulate(case.profile, case.cluster, case.policy, case.mode)
    steps_per_s = result.samples_per_s / 64
    assert computation.once_s is not None
    assert result.utilisation[COMPUTATION] == pytest.approx(steps_per_s * computation.once_s.sum(), rel=0.01)
    parsed = (case.profile.durations_s * (case.profile.resource == HOST)).sum(axis=1).mean()
    assert result.utilisation[HOSTS] == pytest.approx(steps_per_s * parsed, rel=0.01)


def test_server_runs_out_of_cores() -> None:
    """A c5.large has one core: with many workers it updates all the time, and no faster."""
    computation = small("p3.2xlarge")
    exchange = ParameterServers(servers=1, host="c5.large")
    where = site(16, "p3.2xlarge", market=Market(bandwidth_bytes_per_s=1e11))
    case = exchange.lower(computation, where)
    assert case.cluster.nodes[case.cluster.server_nodes[0]].cores == 1
    update_s = (case.profile.durations_s * (case.profile.resource == PS)).sum(axis=1).mean()
    result = simulate(case.profile, case.cluster, case.policy, case.mode)
    assert result.samples_per_s == pytest.approx(8 / update_s, rel=0.03)
    assert result.utilisation[Resource(ResourceKind.PS, 0)] == pytest.approx(1.0, abs=0.02)
    (bound,) = ParameterServers.bounds([Job(exchange, computation, where)])
    assert bound == pytest.approx(8 / update_s, rel=1e-9)
    assert throughput_bounds([case])[0] == pytest.approx(bound, rel=1e-9)


def test_server_beside_its_workers_shares_their_cores() -> None:
    """Eight devices whose machine has two cores parse and update there: the server gets what is left."""
    narrow = replace(load_hardware(P3), vcpus=4, name="narrow")
    computation = small(P3)
    exchange = ParameterServers(servers=1, aggregate="device")
    where = Site(narrow, 8, Market(own=(narrow,)))
    case = exchange.lower(computation, where)
    on_cores = np.isin(case.profile.resource, (PS, HOST))
    core_s = (case.profile.durations_s * on_cores).sum(axis=1).mean()
    result = simulate(case.profile, case.cluster, case.policy, case.mode)
    assert result.samples_per_s == pytest.approx(8 * 2 / core_s, rel=0.03)
    (bound,) = ParameterServers.bounds([Job(exchange, computation, where)])
    assert bound == pytest.approx(8 * 2 / core_s, rel=1e-9)
    wide = exchange.lower(computation, site(8))
    assert rate(wide) > 2 * result.samples_per_s


def test_staleness_counts_machines_that_sum_as_one() -> None:
    case = replace(MACHINE, mode="async").lower(small(), site(24))
    result = simulate(case.profile, case.cluster, case.policy, case.mode)
    assert result.staleness_mean == pytest.approx(2.0, abs=0.1)
