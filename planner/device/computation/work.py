"""Compute time of layers, by kernel kind: what a device does forward and backward, as rates and an overhead.

One formula for every kernel: overhead + multiply-adds / rate[kind] + bytes / rate[memory]. Kinds are

- `conv1x1`: matrix products in disguise;
- `conv3x3`: square 3x3 and 5x5 filters with stride 1, for which cuDNN has Winograd kernels, so that the rate
  may exceed what the device's peak allows for direct convolution;
- `conv`: every other filter (strided, 7x7, 1x7, ...);
- `fc`: fully connected;
- `memory`: bytes read and written by anything, activations (per sample) and weights (once a step).

Everything is linear in the six numbers (1 / rate of each kind, overhead) and affine in the batch, so a model
is a few constant matrices and a prediction is one product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.hardware import KernelRates
from planner.model import BYTES_PER_ELEMENT, Layer, Model, layers
from planner.model.layers import KINDS as LAYER_KINDS

KINDS = ("conv1x1", "conv3x3", "conv", "fc", "memory")
MEMORY = KINDS.index("memory")
OVERHEAD = len(KINDS)
COSTS = len(KINDS) + 1  # seconds a multiply-add or byte for each kind, then seconds a kernel

# Reads and writes of the whole output, forward and backward, by kernels that only move data.
_PASSES = {
    name: (kind.forward.reads + kind.forward.writes, kind.backward.reads + kind.backward.writes)
    for name, kind in LAYER_KINDS.items()
    if kind.forward is not None and kind.backward is not None
}
# Kernels for which devices have no rate of their own, and those whose rate stands in for it.
_STANDS_IN = {"matmul": "fc", "attention": "fc", "depthwise": "memory"}
# Gradient kernels run slower than the forward kernel of as many multiply-adds. With 1.2, rates fitted to
# training meet published forward-only throughputs of AlexNet and VGG, too, and backward takes 2.0 times as
# long as forward for VGG-16 (published: 2.2).
BACKWARD_SLOWDOWN = 1.2
_INFERENCE_NORM_PASSES = 2  # the statistics are known: normalisation reads its input once
NO_KERNEL = tuple(name for name, kind in LAYER_KINDS.items() if not kind.computes)
UPDATE_PASSES = 3  # plain SGD reads weights and gradients and writes weights

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Work:
    """What the layers of a model ask of a device: layers x costs, a part that grows with the batch and a part
    that does not, forward and backward."""

    forward_per_sample: Matrix
    inference_per_sample: Matrix  # forward where nothing is trained
    forward_fixed: Matrix
    backward_per_sample: Matrix
    backward_fixed: Matrix
    update: Matrix  # one row: applying all gradients, where no server does it

    def forward_s(self, batch: int, costs: Matrix, *, training: bool = True) -> Matrix:
        per_sample = self.forward_per_sample if training else self.inference_per_sample
        return (per_sample * batch + self.forward_fixed) @ costs

    def backward_s(self, batch: int, costs: Matrix) -> Matrix:
        return (self.backward_per_sample * batch + self.backward_fixed) @ costs

    def step(self, batch: int, *, training: bool = True) -> Matrix:
        """One row of costs for a whole step on a single device, the update included."""
        if not training:
            return np.asarray((self.inference_per_sample * batch + self.forward_fixed).sum(axis=0))
        per_sample = self.forward_per_sample + self.backward_per_sample
        return np.asarray(
            (per_sample * batch + self.forward_fixed + self.backward_fixed).sum(axis=0) + self.update
        )


def kernel_kind(layer: Layer) -> str:
    """The kind of the kernel that does a layer's multiply-adds."""
    kernel = layers.kernel_kind(replace(layer, groups=1) if layer.kind == "conv" else layer)
    return _STANDS_IN.get(kernel, kernel)


def _fill(work: Work, i: int, layer: Layer, reads_data: bool) -> None:
    """`reads_data`: the layer reads the training data itself, which needs no gradient."""
    if layer.kind in NO_KERNEL:
        return
    work.forward_fixed[i, OVERHEAD] = 1
    out = layer.output_elements
    kind = KINDS.index(kernel_kind(layer))
    if kind != MEMORY:
        gradients = 1 if reads_data else 2  # of the weights, and of the input
        moved = (layer.input_elements + out) * BYTES_PER_ELEMENT
        for per_sample, fixed, times, slowdown in (
            (work.forward_per_sample, work.forward_fixed, 1, 1.0),
            (work.backward_per_sample, work.backward_fixed, gradients, BACKWARD_SLOWDOWN),
        ):
            per_sample[i, kind] = times * slowdown * layer.macs
            per_sample[i, MEMORY] = times * moved
            fixed[i, MEMORY] = times * layer.bytes
            fixed[i, OVERHEAD] = times
        return
    work.backward_fixed[i, OVERHEAD] = 1
    if layer.kind in _PASSES:
        forward, backward = (passes * out for passes in _PASSES[layer.kind])
    else:  # pooling and anything else that reads its input once and writes its output once
        forward, backward = layer.input_elements + out, 2 * (layer.input_elements + out)
    work.forward_per_sample[i, MEMORY] = forward * BYTES_PER_ELEMENT
    work.backward_per_sample[i, MEMORY] = backward * BYTES_PER_ELEMENT


@lru_cache(maxsize=64)
def work_of(model: Model) -> Work:
    """What the layers of a model ask of a device; cached."""
    shape = (len(model.layers), COSTS)
    update = np.zeros(COSTS)
    zeros = [np.zeros(shape) for _ in range(5)]
    work = Work(zeros[0], zeros[1], zeros[2], zeros[3], zeros[4], update)
    data = {layer.name for layer in model.layers if layer.kind == "input"}
    for i, layer in enumerate(model.layers):
        _fill(work, i, layer, reads_data=not layer.inputs or set(layer.inputs) <= data)
        update[MEMORY] += UPDATE_PASSES * layer.bytes
        update[OVERHEAD] += len(layer.tensors)
    work.inference_per_sample[:] = work.forward_per_sample
    norms = [layer.kind == "batch_norm" for layer in model.layers]
    work.inference_per_sample[norms, MEMORY] *= _INFERENCE_NORM_PASSES / _PASSES["batch_norm"][0]
    return work


def costs_of(rates: KernelRates) -> Matrix:
    """Seconds for a unit of each kind, then the overhead."""
    missing = [kind for kind in KINDS if kind not in rates.rates]
    if missing:
        raise BadInput(f"kernel rates lack {', '.join(missing)}; they need {', '.join(KINDS)}")
    return np.array([*(1 / rates.rates[kind] for kind in KINDS), rates.overhead_s])


def step_s(model: Model, batch: int, rates: KernelRates, *, training: bool = True) -> float:
    """A whole step on one device alone: forward, backward and update, or forward only."""
    return float(work_of(model).step(batch, training=training) @ costs_of(rates))
