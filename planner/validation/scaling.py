"""Published scaling of data-parallel training, compared with predictions.

The step times of a series' larger runs are predicted from its smallest one (mostly one device): its step
minus its own exchange is the computation, and `AllReduce` is lowered on the machines that the row describes
and simulated. The runs of a pair have the same series, micro-batch, number format and unit of rate. No row
states three settings: the step variation of equal devices as a fraction of the step and in host seconds, and
the gradient width where training computes in 16 bits. They are chosen on all other sources and applied to the
one left out. The baseline is linear scaling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from planner.device.computation import BACKWARD, FORWARD, OTHER, Computation, Parameter, chain_deps
from planner.device.precision import BF16, FP32
from planner.hardware import Device, Fabric, Hardware
from planner.memoize import memoize
from planner.parallel.data import Site
from planner.parallel.data.ddp import AllReduce
from planner.simulator import simulate
from planner.validation.predict import FABRICS
from planner.validation.run import Run

LAYERS = 32
ONE_BUCKET = 10**12
FORWARD_SHARE = 1 / 3
FIRST = "a single device: where its series begins"  # compared with nothing, as others are with it


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that no published row states, chosen on other sources."""

    jitter: float
    jitter_s: float
    width: int  # bytes of a gradient where training computes in 16 bits or fewer


@dataclass(frozen=True, slots=True)
class Pair:
    """A run and the smallest run of its series."""

    base: Run
    run: Run

    @property
    def base_s(self) -> float:
        """Seconds per step of the smaller run."""
        return _step_s(self.base)

    @property
    def run_s(self) -> float:
        """Seconds per step of the larger run."""
        return _step_s(self.run)

    @property
    def linear_s(self) -> float:
        """Seconds per step of the larger run if scaling were linear."""
        return self.base_s / micro_batches_per_step(self.base) * micro_batches_per_step(self.run)


def micro_batches_per_step(run: Run) -> int:
    """Micro-batches between two exchanges of gradients; 1 on a single device."""
    return run.accumulate if run.devices > 1 else 1


def _step_s(run: Run) -> float:
    """Seconds per step, up to a factor that is constant in a series (samples or tokens)."""
    assert run.rate_per_s is not None
    assert run.batch is not None
    return run.batch * micro_batches_per_step(run) * run.devices / run.rate_per_s


def devices_per_machine(run: Run) -> int:
    """Number of devices per machine that take part."""
    return max(run.devices // run.machines, 1)


def fabric_of(run: Run) -> Fabric | None:
    """Links between the devices of a machine; None if unknown."""
    part = FABRICS.get(f"{run.links.fabric} of {devices_per_machine(run)}") if run.links.meshed else None
    return part or FABRICS.get(run.links.fabric)


def link_label(run: Run) -> str:
    """Group of a run in error tables, by the links between its devices."""
    if run.machines == 1:
        fabric = fabric_of(run)
        if fabric is None:
            return "one machine, not stated"
        return f"one machine, {'PCIe' if fabric.kind == 'pcie' else 'NVLink'}"
    rate = run.links.network_bytes_per_s
    if rate is None:
        return "machines, network not known"
    return f"machines, {rate * 8 / 1e9:.0f} Gbit/s {run.links.basis}"


def machine_of(run: Run) -> Hardware:
    """Machine built from a run's device, links and network."""
    rate = run.links.network_bytes_per_s
    return Hardware(
        f"{run.links.fabric or 'one device'} x {devices_per_machine(run)}",
        run.device or Device("published", "gpu", {"fp32": 1e13}, 16e9),
        device_count=devices_per_machine(run),
        nic_burst_bytes_per_s=rate,
        nic_baseline_bytes_per_s=rate,
        fabric=fabric_of(run),
        rdma=not run.links.sockets,
        flow_bytes_per_s=run.links.flow_bytes_per_s,
    )


def exclusion_reason(run: Run) -> str:
    """Explains why a run cannot be used to study scaling; empty string if it can."""
    if run.layout is None or run.layout.kind != "plain":
        return "not plain data parallelism"
    if run.doubtful.startswith("micro-batch x"):
        return run.doubtful
    for value, name in (
        (run.rate_per_s, "rate"),
        (run.batch, "micro-batch"),
        (run.parameters, "number of parameters"),
    ):
        if value is None:
            return f"no {name} is stated"
    return ""


def pair_runs(runs: Iterable[Run], refused: dict[str, str]) -> list[Pair]:
    """Pairs each run with the smallest run of its series, micro-batch and number format. Unpaired runs are
    added to `refused` with the reason."""
    by_series: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if reason := exclusion_reason(run):
            refused[run.id] = reason
        else:
            by_series[run.series].append(run)
    parts = []
    for series in by_series.values():
        for run in series:
            alike = [
                entry
                for entry in series
                if entry.devices < run.devices
                and (entry.batch, entry.precision) == (run.batch, run.precision)
            ]
            if run.devices == 1:
                refused[run.id] = FIRST
            elif not alike:
                refused[run.id] = "no smaller run of its series"
            elif (
                run.links.fabric not in FABRICS
                if run.machines == 1
                else run.links.network_bytes_per_s is None
            ):
                refused[run.id] = "the network is not stated"
            else:
                parts.append(Pair(min(alike, key=lambda entry: entry.devices), run))
    return parts


def recorded_computation(run: Run, pass_s: float, settings: Settings) -> Computation:
    """Computation of one step with equal layers; only its last micro-batch exchanges gradients."""
    n = LAYERS
    assert run.parameters is not None
    forward, backward = pass_s * FORWARD_SHARE / n, pass_s * (1 - FORWARD_SHARE) / n
    once_s = np.array([(micro_batches_per_step(run) - 1) * pass_s] + [forward] * n + [backward] * n)
    narrow = (run.software.gradient_bytes or settings.width) == 2
    each = max(round(run.tensors / n), 1)
    elements = max(round(run.parameters / n / each), 1)
    return Computation(
        model="published",
        batch=1,
        names=("earlier", *(f"forward{index}" for index in range(n)), *(f"backward{i}" for i in range(n))),
        role=np.array([OTHER] + [FORWARD] * n + [BACKWARD] * n, np.uint8),
        layer=np.full(2 * n + 1, -1, np.int32),
        layers=(),
        deps=chain_deps(2 * n + 1),
        durations_s=once_s[None, :],
        parameters=tuple(
            Parameter(f"w{index}.{part}", elements, (1 + index,), 2 * n - index)
            for index in range(n)
            for part in range(each)
        ),
        optimizer_s=0.0,
        precision=BF16 if narrow else FP32,
        once_s=once_s,
        stands_for=(float(micro_batches_per_step(run)),),
    )


@memoize
def predict_step_s(run: Run, pass_s: float, settings: Settings) -> float:
    """Predicted seconds per step, given the seconds of one micro-batch on a single device."""
    if run.devices == 1:
        return pass_s * micro_batches_per_step(run)
    width = run.software.gradient_bytes
    if width and settings.width != width:
        return predict_step_s(run, pass_s, replace(settings, width=width))
    exchange = AllReduce(
        jitter=settings.jitter,
        jitter_s=settings.jitter_s,
        cycle_s=run.software.cycle_s,
        gradients="bf16" if settings.width == 2 else "fp32",
    )
    if not run.software.overlaps:
        exchange = replace(exchange, bucket_bytes=ONE_BUCKET, first_bucket_bytes=ONE_BUCKET)
    site = Site(machine_of(run), run.devices)
    case = exchange.lower(recorded_computation(run, pass_s, settings), site)
    result = simulate(case.profile, case.cluster, case.policy, joins=case.joins, max_steps=300)
    return run.devices / result.samples_per_s


def predict_pair_s(pair: Pair, settings: Settings) -> float:
    """Predicted seconds per step of the larger run, with computation inferred from the smaller one."""
    base, run = pair.base, pair.run
    pass_s = pair.base_s / micro_batches_per_step(base)
    if base.devices > 1:
        pass_s -= (predict_step_s(base, pass_s, settings) - pair.base_s) / micro_batches_per_step(base)
    return predict_step_s(run, max(pass_s, pair.base_s / micro_batches_per_step(base) / 2), settings)
