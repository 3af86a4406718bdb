"""Bounds of parameter servers hold for what is run, also where a policy cuts transfers into pieces."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.answers.questions import single_plan
from planner.device.computation.synthesis import synthesize_computation
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import Job, Site
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.servers.parameter_servers import ParameterServers
from planner.simulator.bounds import throughput_bounds


def asked(policy, mode, machine="g4dn.12xlarge", **more):
    request = Request(
        model="alexnet",
        batches=(32,),
        hardware=(machine,),
        workers=(4,),
        server_hardware=("own",),
        policies=(policy,),
        mode=mode,
        exchanges=(("servers", {}),),
        interval_width=0.02,
        max_steps=240,
        **more,
    )
    return single_plan(request), Cases(request, model_of(request))


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("policy", ["p3", "bytescheduler", "prophet", "tic", "multiplexed"])
def test_no_prediction_exceeds_its_bound(policy, mode, servers):
    """A whole tensor waits for its last byte; its pieces do not."""
    plan, cases = asked(policy, mode, servers=(servers,))
    prediction = cases.predict(plan)
    assert prediction.samples_per_s_low <= cases.bound(plan)


@pytest.mark.parametrize("policy", ["p3", "bytescheduler", "prophet"])
def test_served_bound_is_that_of_the_simulated_case(policy):
    plan, cases = asked(policy, "sync", "g4dn.xlarge", servers=(1,))
    raised = 1 + cases.request.interval_width
    assert cases.bound(plan) / raised == pytest.approx(throughput_bounds([cases.case(plan)])[0])


MACHINES = ("p3.2xlarge", "p3.8xlarge", "c5.2xlarge")
HOSTS = (None, "c5.large", "c5n.2xlarge", "p3.2xlarge")


@settings(max_examples=40, deadline=None)
@given(
    machine=st.sampled_from(MACHINES),
    workers=st.integers(1, 12),
    exchange=st.builds(
        ParameterServers,
        servers=st.integers(1, 3),
        host=st.sampled_from(HOSTS),
        placement=st.sampled_from(("greedy", "best_fit", "mxnet")),
        policy=st.sampled_from(("multiplexed", "fifo", "tic", "p3", "bytescheduler")),
        mode=st.sampled_from(("async", "sync")),
    ),
    bandwidth=st.sampled_from((None, 1e7, 1e9)),
)
def test_closed_form_equals_the_evaluator(machine, workers, exchange, bandwidth):
    hardware = load_hardware(machine)
    site = Site(hardware, workers, Market(bandwidth_bytes_per_s=bandwidth))
    assume(exchange.host is not None or exchange.servers <= site.machines)
    computation = synthesize_computation(load_model("alexnet"), 32, hardware, steps=3)
    closed = float(ParameterServers.bounds([Job(exchange, computation, site)])[0])
    evaluated = float(throughput_bounds([exchange.lower(computation, site)])[0])
    assert evaluated <= closed * (1 + 1e-9)
    if exchange.host is not None and exchange.policy in (
        "multiplexed",
        "fifo",
    ):  # whose transfers cost what they cost alone
        assert evaluated == pytest.approx(closed, rel=1e-9)
