"""The step of a published run of a large model as the package predicts it, and as rules of thumb do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from planner.device.computation import Computation, Variation
from planner.device.computation.transform import accumulated
from planner.device.rates.constants import Error, constants, error_of
from planner.device.rates.device import basis_of
from planner.device.rates.kernels import network_of
from planner.device.rates.times import framework_named
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.joint import slowest_factor, usual_sigma
from planner.parallel.data.owned import Owned
from planner.parallel.mesh import data_parallel_group
from planner.parallel.replica import replica_computation
from planner.parallel.site import Site
from planner.simulator.simulate import Effort, predict
from planner.validation.figures import table
from planner.validation.large_machines import machine_of
from planner.validation.large_runs import LargeRun
from planner.validation.training import framework_of

RULE_SHARE = 0.4  # of the peak, in the rule of thumb
SINGLE = 1
ALIKE = Effort(max_steps=20, first_runs=2)
OWNERS_BUCKET_BYTES = 2**30  # InternEvo's reduce_bucket_size, 512 Mi elements of two bytes


@dataclass(frozen=True, slots=True)
class LargeStep:
    """Seconds of a step, with the error of the rates that it rests on; `slower` is by how much the slowest
    replica is behind the mean of all, which the seconds have in them."""

    seconds: float
    error: Error
    slower: float = 1.0


def framework(run: LargeRun) -> str:
    """The framework whose factors a run has."""
    return framework_of(
        {"framework": run.framework, "source_id": run.source, "arch": "llm", "device": run.device}
    )


def exchange_of(run: LargeRun, site: Site) -> AllReduce | Owned | Sharded:
    """The exchange of a run on the site of its replicas."""
    if not run.stage:
        return AllReduce(copied=False)  # Megatron's gradients are made in the buffers that are sent
    gradients = framework_named(framework(run)).gradients.get(run.precision.compute, "auto")
    exchange: Owned | Sharded
    if run.owners and run.stage == 1:
        exchange = Owned(bucket_bytes=OWNERS_BUCKET_BYTES, gradients=gradients)
    else:
        exchange = Sharded(stage=run.stage, each_pass=run.stage == 3, gradients=gradients)
    inside = replace(exchange, within="machine")
    return inside if run.within_machine and not inside.refusal(site) else exchange


def site_of(run: LargeRun) -> Site | None:
    """The machines of a run, and how a replica is spread over them; None where the catalogue has no such
    machine."""
    hardware = machine_of(run)
    if hardware is None:
        return None
    return Site(hardware, run.devices, mesh=run.mesh)


def micro_batch_of(run: LargeRun, site: Site) -> Computation:
    """What a device of the slowest stage computes in one micro-batch, at the mean of steps."""
    return replica_computation(
        run.model,
        run.micro_batch,
        site,
        run.precision,
        recompute=run.recompute,
        framework=framework(run),
        variation=Variation(0.0, 0.0),
        steps=SINGLE,
    )


def predicted(run: LargeRun) -> LargeStep | None:
    """What the package predicts; None where the catalogue has no such machine. The simulation of a plan with
    steps that are all alike, which a few of them tell, and the wait for the slowest replica that one of
    unlike steps draws: within half a percent of that, without its noise."""
    site = site_of(run)
    if site is None:
        return None
    computation = accumulated(micro_batch_of(run, site), run.accumulate)
    replicas = data_parallel_group(site)
    if replicas.workers == 1:
        seconds = float(computation.durations_s.sum()) + computation.optimizer_s
    else:
        case = replace(exchange_of(run, replicas), jitter=0.0).lower(computation, replicas)
        seconds = computation.batch * replicas.workers / predict(case, ALIKE).samples_per_s
    slower = slowest_factor(usual_sigma(seconds, run.accumulate), run.replicas, run.mesh.stages)
    network = network_of(run.model)
    basis = basis_of(site.hardware.device, run.precision, network, constants())
    return LargeStep(seconds * slower, error_of(basis, network), slower)


@cache
def left_out() -> dict[str, float]:
    """What leaving a run's source out of the fit adds to log(predicted), by the run's id."""
    return {
        row["id"]: float(row["source"]) - float(row["seen"])
        for row in table("rates_left_out.csv")
        if row["source"]
    }


def rule_of_thumb_s(run: LargeRun) -> float | None:
    """6 (8 where the forward pass is computed twice) x parameters x tokens over 0.4 of the peak."""
    hardware = machine_of(run)
    if hardware is None:
        return None
    peak = hardware.device.flops.get(run.precision.compute)
    if peak is None:
        return None
    passes = 8 if run.recompute == "full" else 6
    return passes * run.model.parameters * run.tokens_per_step / (RULE_SHARE * peak * run.devices)
