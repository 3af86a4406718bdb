"""Predicted step of a published run: the plan that its row describes, with mean durations.

A plan's exchange is lowered on its machines and simulated by the functions that `planner simulate` calls. The
one difference replaces sampling: all simulated steps are alike, so a few suffice, and the wait for the
slowest replica is added as the expectation that the simulation samples (`slowest_factor`). Both agree within
half a percent (tests/validation/test_predict.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

from planner.answers.parts import step_breakdown
from planner.device.computation import Computation, median_steps, repeat_passes
from planner.device.computation.synthesis import calibrated_computation
from planner.device.rates import Error, constants, model_error, network_class, prediction_basis
from planner.device.rates.times import computation_s, find_framework
from planner.errors import BadInput
from planner.hardware import Fabric, Hardware
from planner.hardware.catalog import match_hardware
from planner.memoize import memoize
from planner.model import Model
from planner.parallel.data import Site
from planner.parallel.data.collective import GRADIENTS
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.joint import slowest_factor, usual_sigma
from planner.parallel.data.owned import Owned
from planner.parallel.mesh import data_parallel_group
from planner.search.cases import device_computation, is_computed_in_units
from planner.simulator.simulate import Effort, simulate_case
from planner.validation.row import load_figures, read_data_table
from planner.validation.run import CompleteRun, Run

ALIKE = Effort(max_steps=20, first_runs=2)
BUCKET_BYTES = 2**30  # InternEvo's reduce_bucket_size, 512 Mi elements of two bytes
BERTS = ("bert", "distilbert", "electra")
RULE_SHARE = 0.4  # of the peak, in the rule of thumb

# Bytes per second of a machine's NICs together where a run does not state them: those of the maker's own.
USUAL_NETWORK = {"V100": 100e9, "A100": 200e9}
USUAL_SINCE = 400e9
MOST_NICS, LEAST_NIC_BYTES_PER_S = 8, 12.5e9  # one a device, of 100 Gbit/s at least

FABRICS = {name: Fabric(source="", **given) for name, given in load_figures("fabrics").items()}


@dataclass(frozen=True, slots=True)
class RunStep:
    """Predicted seconds per step with their error. `slower` is the factor of the slowest replica over the
    mean, included in the seconds; `exposed` the fraction of the step spent in communication that no
    computation hides."""

    seconds: float
    error: Error
    slower: float = 1.0
    exposed: float = 0.0


def exclusion_reason(run: Run) -> str:
    """Explains why the step time of a run cannot be predicted; empty string if it can."""
    if run.unknown or run.doubtful:
        return run.doubtful or run.unknown[0]
    assert run.device is not None
    assert run.precision is not None
    if run.precision.compute not in run.device.flops:
        return f"{run.device.name} does not compute in {run.precision.compute}"
    if run.devices > 1 and machine_of(run).fabric is None and run.devices_per_machine > 1:
        return "how the devices of its machine are joined is not known"
    return ""


@memoize
def predict_step(run: Run) -> RunStep | str:
    """Predicts the step of a run, or gives the reason why it cannot be predicted."""
    if reason := exclusion_reason(run):
        return reason
    try:
        known = cast(CompleteRun, run)
        return _single_device_step(known) if run.devices == 1 else _distributed_step(known)
    except BadInput as error:
        return f"refused by the package: {error}"


def _model_error(run: CompleteRun, basis: str | None = None) -> Error:
    """Error of predictions for a run's device, precision and kind of network."""
    network = network_class(run.model)
    return model_error(basis or prediction_basis(run.device, run.precision, network, constants()), network)


def _single_device_step(run: CompleteRun) -> RunStep:
    """Predicted step on one device: its micro-batches and the optimizer update."""
    software = run.software
    time = computation_s(
        run.model,
        run.batch,
        run.device,
        run.precision,
        software.tier,
        optimizer=software.optimizer,
        input="files" if software.input == "files" else "synthetic",
        channels_last=software.channels_last,
        flash=software.flash,
    )
    once_s = time.step_s - time.optimizer_s
    if run.recompute != "none":
        site = Site(machine_of(run), 1)
        plain = micro_batch_of(run.read_as(recompute="none"), site)
        once_s += float(micro_batch_of(run, site).durations_s.sum() - plain.durations_s.sum())
    return RunStep(once_s * run.accumulate + time.optimizer_s, _model_error(run))


def _distributed_step(run: CompleteRun) -> RunStep:
    """Predicted step on several devices, from a simulation with identical steps."""
    site = site_of(run)
    computation = repeat_passes(micro_batch_of(run, site), run.accumulate)
    replicas = data_parallel_group(site)
    exposed = 0.0
    if replicas.workers == 1:
        seconds = float(computation.durations_s.sum()) + computation.optimizer_s
    else:
        exchange = replace(exchange_of(run, replicas), jitter=0.0)
        case = exchange.lower(computation, replicas)
        result = simulate_case(case, ALIKE)
        seconds = computation.batch * replicas.workers / result.samples_per_s
        parts = step_breakdown(case.profile, result)
        exposed = parts.communication_s / max(parts.step_s, 1e-12)
    slower = slowest_factor(usual_sigma(seconds, run.accumulate), run.layout.replicas, run.layout.mesh.stages)
    error = _model_error(run)
    if not is_computed_in_units(run.model, site):
        error = error.add_scaling_error(site.machines, site.workers)
    return RunStep(seconds * slower, error, slower, exposed)


def micro_batch_of(run: CompleteRun, site: Site) -> Computation:
    """Computation of one micro-batch on a device of the slowest pipeline stage, at mean durations."""
    software = run.software
    if not is_computed_in_units(run.model, site):
        made = calibrated_computation(
            run.model,
            run.batch,
            site.hardware,
            run.precision,
            software.tier,
            recompute=run.recompute,
            optimizer=software.optimizer,
            channels_last=software.channels_last,
        )
        return median_steps(made)
    return median_steps(
        device_computation(
            run.model,
            run.batch,
            site,
            run.precision,
            recompute=run.recompute,
            framework=run.software.tier,
            brief=True,
        )
    )


def site_of(run: CompleteRun) -> Site:
    """Site of a run: its machines and its mesh."""
    return Site(machine_of(run), run.devices, mesh=run.layout.mesh)


def exchange_of(run: CompleteRun, site: Site) -> AllReduce | Owned | Sharded:
    """Data-parallel strategy that a run uses: all-reduce, ZeRO-1 or sharded."""
    layout, software = run.layout, run.software
    if not layout.stage:
        if run.arch == "llm":
            # Megatron's gradients are made in the buffers that are sent; NVIDIA's published recipes reduce
            # them in 16 bits (NeMo's grad_reduce_in_fp32=False), DDP by default in fp32
            return AllReduce(copied=False, gradients=_gradient_format(run))
        plain = AllReduce(cycle_s=software.cycle_s)
        if software.gradient_bytes == 2:
            plain = replace(plain, gradients="fp16")
        whole = 10**12  # a single bucket, after the backward pass
        return plain if software.overlaps else replace(plain, bucket_bytes=whole, first_bucket_bytes=whole)
    gradients = _gradient_format(run)
    exchange: Owned | Sharded
    if layout.whole_tensors and layout.stage == 1:
        exchange = Owned(bucket_bytes=BUCKET_BYTES, gradients=gradients)
    else:
        gathers = "after" if software.text.find("DeepSpeed") >= 0 else "next"
        each_pass = layout.stage == 3
        exchange = Sharded(stage=layout.stage, each_pass=each_pass, gradients=gradients, gathers=gathers)
    inside = replace(exchange, within="machine")
    return inside if layout.within_machine and inside.infeasibility(site) is None else exchange


def _gradient_format(run: CompleteRun) -> str:
    """Number format of exchanged gradients: the framework's, else that of the parameters."""
    usual = "fp32" if run.precision.gradient_bytes == GRADIENTS["fp32"] else "bf16"
    return find_framework(run.software.tier).gradients.get(run.precision.compute, usual)


def machine_of(run: Run) -> Hardware:
    """Machine of a run: the largest in the catalog with its device, on the run's network."""
    rate = run.links.network_bytes_per_s
    sockets = run.links.sockets
    return build_machine(
        run.device_name, run.devices_per_machine, rate, run.links.fabric, sockets=sockets, run=run
    )


def build_machine(
    device: str,
    devices: int,
    network_bytes_per_s: float | None = None,
    fabric: str = "",
    *,
    sockets: bool = False,
    run: Run | None = None,
) -> Hardware:
    """Machine with `devices` devices and the given or usual network, which has RDMA if not `sockets`. If no
    catalog machine has the device, `fabric` names the links between devices."""
    base = _largest_machines().get(device)
    if base is None:
        assert run is not None
        assert run.device is not None
        base = Hardware(device, run.device)
    if base.fabric is None:
        base = replace(base, fabric=FABRICS.get(fabric))
    rate = network_bytes_per_s or USUAL_NETWORK.get(device.split("-", maxsplit=1)[0], USUAL_SINCE)
    network: dict[str, Any] = {
        "nic_baseline_bytes_per_s": rate,
        "nic_burst_bytes_per_s": rate,
        "network_curves": {},
    }
    if sockets:
        return replace(
            base,
            device_count=devices,
            provider="",
            rdma=False,
            rdma_bytes_per_s=None,
            nics=1,
            flow_bytes_per_s=None if run is None else run.links.flow_bytes_per_s,
            placement_group_flow_bytes_per_s=None,
            **network,
        )
    return replace(
        base,
        device_count=devices,
        rdma=True,
        rdma_kind="InfiniBand",  # or RoCE; hardly one of them ran on EFA
        rdma_bytes_per_s=rate,
        nics=max(1, min(MOST_NICS, int(rate / LEAST_NIC_BYTES_PER_S))),
        **network,
    )


@memoize
def _largest_machines() -> dict[str, Hardware]:
    """Largest catalog machine with each GPU; ties go to AWS, whose fabrics are measured."""
    by_name: dict[str, Hardware] = {}
    for entry in match_hardware(("*",)):
        best = by_name.get(entry.device.name)
        if entry.device.kind != "gpu":
            continue
        if best is None or (entry.device_count, entry.provider == "aws") > (
            best.device_count,
            best.provider == "aws",
        ):
            by_name[entry.device.name] = entry
    return by_name


@memoize
def _left_out_shifts() -> dict[str, tuple[float, str]]:
    """Change in log(predicted time), and the basis of rates, if the fit omits the run's source; by run."""
    return {
        row["id"]: (float(row["source"]) - float(row["seen"]), row["source_basis"])
        for row in read_data_table("rates_left_out.csv")
        if row["source"]
    }


@dataclass(frozen=True, slots=True)
class RangedStep:
    """Predicted step with its 90% range from `low_s` to `high_s`. `left_s` are the seconds from a fit without
    the run's source; None if no fit used the run."""

    step: RunStep
    left_s: float | None
    low_s: float
    high_s: float


def predict_range(run: Run) -> RangedStep | str:
    """Predicts the step of a run with its range, or gives the reason why it cannot. The range covers every
    reading of important settings that are not published."""
    step = predict_step(run)
    if isinstance(step, str):
        return step
    shift, basis = _left_out_shifts().get(run.fit_id or "", (None, None))
    left_s = None if shift is None else step.seconds * math.exp(shift)
    error = step.error if run.devices > 1 or basis is None else _model_error(cast(CompleteRun, run), basis)
    centres = [step.seconds]
    for other in run.readings:
        if isinstance(found := predict_step(other), RunStep):  # its rate may be read another way, too
            centres.append(found.seconds * (run.step_s or 1.0) / (other.step_s or 1.0))
    ranges = [error.range_around(math.exp(-(shift or 0.0)) / seconds) for seconds in centres]
    low_s, high_s = 1 / max(high for _, high in ranges), 1 / min(low for low, _ in ranges)
    return RangedStep(step, left_s, low_s, high_s)


def rule_of_thumb_s(run: CompleteRun) -> float | None:
    """Seconds per step from 6 FLOPs per parameter and token (8 with full recompute) at 0.4 of the peak.
    Image networks use their multiply-adds instead; None if the device lacks the number format."""
    peak = run.device.flops.get(run.precision.compute)
    if peak is None:
        return None
    passes = 8 if run.recompute == "full" else 6
    each = run.model.macs if run.arch != "llm" else run.model.parameters * (run.model.sequence_length or 1)
    return passes * each * run.samples_per_step / (RULE_SHARE * peak * run.devices)


def network_kind(model: Model) -> str:
    """Kind of network in error tables: CNN, BERT, LLM or other networks."""
    network = network_class(model)
    if network == "transformer":
        return "BERT" if model.name.startswith(BERTS) else "LLM"
    return "CNN" if network == "cnn" else "other networks"
