"""The input pipeline: samples per second that a host decodes, and how long a step waits for them.

`loader_images_per_s` is fitted to published runs that read JPEG files with eight loader processes. Decoding
overlaps computing, so a step takes the longer of both. Images that devices decode (DALI), synthetic data,
recorded steps, text, CPU machines and unknown numbers of vCPUs are not limited.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.simulator.cluster import Resource

if TYPE_CHECKING:
    from planner.model import Model
    from planner.simulator.statistics import Prediction

LOADER_PROCESSES = 8  # that the published rate was measured with
LEAST_PIXELS = 64  # height of images that are read as JPEG files; smaller ones fit in memory decoded
INPUT = Resource.link("input")


def reads_images(model: Model) -> bool:
    """Whether samples are images large enough to be stored as JPEG files."""
    if not model.layers or model.sequence_length is not None:
        return False
    shape = model.layers[0].output_shape
    return len(shape) == 3 and shape[0] >= LEAST_PIXELS


def decoded_per_s(processes: float) -> float:
    """Images per second decoded by this number of loader processes, one per vCPU."""
    from planner.device.rates import constants

    return constants().loader_images_per_s / LOADER_PROCESSES * processes


def input_wait_s(samples: float, step_s: float, samples_per_s: float) -> float:
    """Seconds that a step waits for its samples after computing."""
    return max(samples / samples_per_s - step_s, 0.0)


def limited_by_input(prediction: Prediction, samples_per_s: float) -> Prediction:
    """The prediction with throughput capped at the rate at which samples arrive."""
    step_samples = prediction.samples_per_s * prediction.step_s
    wait_s = input_wait_s(step_samples, prediction.step_s, samples_per_s)
    if wait_s <= 0:
        return prediction
    share = prediction.step_s / (prediction.step_s + wait_s)
    return replace(
        prediction,
        samples_per_s=samples_per_s,
        samples_per_s_low=min(prediction.samples_per_s_low, samples_per_s),
        samples_per_s_high=samples_per_s,
        step_s=prediction.step_s / share,
        step_s_quantiles={name: value / share for name, value in prediction.step_s_quantiles.items()},
        utilisation={name: used * share for name, used in prediction.utilisation.items()} | {INPUT: 1.0},
        bottleneck=INPUT,
        worker_samples_per_s=tuple(value * share for value in prediction.worker_samples_per_s),
        input_s=wait_s,
    )
