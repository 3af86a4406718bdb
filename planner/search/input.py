"""The input pipeline: how many samples per second the host of a plan's devices decodes.

Eight loader processes decode 2,204 ImageNet images per second (`loader_images_per_s`, fitted to the published
runs that read JPEG files), that is 276 per vCPU. Devices share the vCPUs of their machine evenly. Decoding
and computing overlap, so that a step takes the longer of both, as in `planner.device.rates.times`. Images
that devices decode (DALI), synthetic data, recorded steps, text, CPU machines and machines whose vCPUs nobody
knows are not limited.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from planner.simulator.cluster import Resource

if TYPE_CHECKING:
    from planner.model import Model
    from planner.parallel.plan import Plan
    from planner.search.request import Request
    from planner.simulator.statistics import Prediction

LOADER_PROCESSES = 8  # that the published rate was measured with
LEAST_PIXELS = 64  # height of images that are read as JPEG files; smaller ones fit in memory decoded
INPUT = Resource.link("input")


def reads_images(model: Model) -> bool:
    """Whether samples are images of a size that is stored as JPEG."""
    if not model.layers or model.sequence_length is not None:
        return False
    shape = model.layers[0].output_shape
    return len(shape) == 3 and shape[0] >= LEAST_PIXELS


def samples_per_s_per_vcpu(request: Request, model: Model) -> float:
    """What one vCPU decodes; infinite where nothing is decoded on the host."""
    if request.input in ("dali", "none") or request.profile is not None or not reads_images(model):
        return inf
    if isinstance(request.input, float):
        return request.input
    from planner.device.rates import constants

    return constants().loader_images_per_s / LOADER_PROCESSES


def input_samples_per_s(plan: Plan, request: Request, model: Model) -> float:
    """The most samples per second that the hosts of a plan deliver."""
    per_vcpu = samples_per_s_per_vcpu(request, model)
    machine = request.market.machine(plan.machine)
    if per_vcpu == inf or machine.device.kind != "gpu" or machine.vcpus is None:
        return inf
    return plan.workers * machine.vcpus / machine.device_count * per_vcpu


def limited(prediction: Prediction, limit_samples_per_s: float) -> Prediction:
    """A prediction whose devices wait for their input."""
    share = limit_samples_per_s / prediction.samples_per_s
    if share >= 1:
        return prediction
    return replace(
        prediction,
        samples_per_s=limit_samples_per_s,
        samples_per_s_low=min(prediction.samples_per_s_low, limit_samples_per_s),
        samples_per_s_high=limit_samples_per_s,
        step_s=prediction.step_s / share,
        step_s_quantiles={name: value / share for name, value in prediction.step_s_quantiles.items()},
        utilisation={name: used * share for name, used in prediction.utilisation.items()} | {INPUT: 1.0},
        bottleneck=INPUT,
        worker_samples_per_s=tuple(value * share for value in prediction.worker_samples_per_s),
        input_s=prediction.step_s * (1 / share - 1),
    )
