"""Published scaling of data-parallel training against predictions.

From the smallest run of a series (mostly one device) we predict the step time of its larger ones: its step,
less what exchange it has itself, is the computation; `AllReduce` is lowered on the machines that the row
describes and simulated. Three settings are not in any row: how much steps of equal devices vary, as a share
of the step and in seconds of the host, and how wide gradients are where training computes in 16 bits. They
are chosen on all other sources and applied to the one left out. Linear scaling stands beside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from planner.device.computation import BACKWARD, FORWARD, OTHER, Computation, Parameter
from planner.device.precision import BF16, FP32
from planner.parallel.data import Site
from planner.parallel.data.ddp import AllReduce
from planner.simulator import simulate
from planner.validation.scaling_rows import ScalingRun

LAYERS = 32
ONE_BUCKET = 10**12
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What no row states."""

    jitter: float
    jitter_s: float
    width: int  # bytes of a gradient where training computes in 16 bits or fewer


@dataclass(frozen=True, slots=True)
class ScalingResult:
    base: ScalingRun
    run: ScalingRun
    predicted_s: float

    @property
    def error(self) -> float:
        return abs(self.predicted_s / self.run.step_s - 1)

    @property
    def linear(self) -> float:
        """The error of scaling without loss."""
        return abs(self.base.step_s / self.base.passes * self.run.passes / self.run.step_s - 1)


def computation_of(run: ScalingRun, pass_s: float, settings: Settings) -> Computation:
    """Micro-batches that exchange nothing, then one: equal layers, a third of the time forward."""
    n = LAYERS
    forward, backward = pass_s * FORWARD_SHARE / n, pass_s * (1 - FORWARD_SHARE) / n
    once_s = np.array([(run.passes - 1) * pass_s] + [forward] * n + [backward] * n)
    narrow = (run.gradient_bytes or settings.width) == 2
    each = max(round(run.tensors / n), 1)
    elements = max(round(run.parameters / n / each), 1)
    return Computation(
        model="published",
        batch=1,
        names=("earlier", *(f"forward{at}" for at in range(n)), *(f"backward{at}" for at in range(n))),
        role=np.array([OTHER] + [FORWARD] * n + [BACKWARD] * n, np.uint8),
        layer=np.full(2 * n + 1, -1, np.int32),
        layers=(),
        dep_start=np.array([0, *range(2 * n + 1)], np.int32),
        dep_index=np.arange(2 * n, dtype=np.int32),
        durations_s=once_s[None, :],
        parameters=tuple(
            Parameter(f"w{at}.{part}", elements, (1 + at,), 2 * n - at)
            for at in range(n)
            for part in range(each)
        ),
        optimizer_s=0.0,
        precision=BF16 if narrow else FP32,
        once_s=once_s,
        stands_for=(float(run.passes),),
    )


@cache
def step_s(run: ScalingRun, pass_s: float, settings: Settings) -> float:
    """The predicted step of a run whose micro-batch takes so long on a device alone."""
    if run.devices == 1:
        return pass_s * run.passes
    if run.gradient_bytes and settings.width != run.gradient_bytes:
        return step_s(run, pass_s, replace(settings, width=run.gradient_bytes))
    exchange = AllReduce(jitter=settings.jitter, jitter_s=settings.jitter_s, cycle_s=run.cycle_s)
    if not run.overlaps:
        exchange = replace(exchange, bucket_bytes=ONE_BUCKET, first_bucket_bytes=ONE_BUCKET)
    case = exchange.lower(computation_of(run, pass_s, settings), Site(run.machine, run.devices))
    found = simulate(case.profile, case.cluster, case.policy, joins=case.joins, max_steps=300)
    return run.devices / found.samples_per_s


def predict(base: ScalingRun, run: ScalingRun, settings: Settings) -> float:
    """The step of `run`, by the computation that the step of `base` leaves room for."""
    pass_s = base.step_s / base.passes
    if base.devices > 1:
        pass_s -= (step_s(base, pass_s, settings) - base.step_s) / base.passes
    return step_s(run, max(pass_s, base.step_s / base.passes / 2), settings)
