"""The computation of a step: the compute part of what synthesis gives, without any network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.device.activations import Recompute, recompute_flags
from planner.device.computation import BACKWARD, FORWARD, RECOMPUTE
from planner.device.computation.synthesis import calibrated_computation, synthesize_computation
from planner.device.precision import FP16
from planner.device.rates.times import find_framework, step_times
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.synthesis import NO_PARSING, profile_for
from planner.simulator.step import WORKER

V100 = load_hardware("p3.2xlarge")


@pytest.mark.parametrize("model", ["vgg11", "inception3", "resnet50"])
def test_ops_are_those_that_the_worker_computes(model):
    model = load_model(model)
    step = profile_for(model, 32, V100, parsing=NO_PARSING)
    worker = np.flatnonzero(step.resource == WORKER)
    computation = synthesize_computation(model, 32, V100)
    assert computation.names == tuple(step.names[op] for op in worker)
    kept = {int(op): at for at, op in enumerate(worker)}
    for at, op in enumerate(worker):
        assert computation.deps[at] == tuple(kept[dep] for dep in step.deps(int(op)).tolist() if dep in kept)
    times = step_times(model, 32, V100.kernels)
    assert computation.once_s.sum() + computation.optimizer_s == pytest.approx(times.step_s)
    assert computation.durations_s.mean(axis=0) == pytest.approx(computation.once_s, rel=0.05)


def test_parameters_know_who_reads_them_and_what_makes_their_gradient():
    model = load_model("vgg11")
    computation = synthesize_computation(model, 8, V100)
    assert [parameter.name for parameter in computation.parameters] == [
        tensor.name for tensor in model.tensors
    ]
    assert computation.elements * 4 == model.bytes
    kernel = next(
        parameter for parameter in computation.parameters if parameter.name == "conv1/conv2d/kernel"
    )
    assert [computation.names[op] for op in kernel.readers] == ["conv1/forward"]
    assert computation.names[kernel.ready] == "conv1/backward"
    assert computation.role[kernel.ready] == BACKWARD
    assert computation.role[kernel.readers[0]] == FORWARD
    assert computation.blocks[kernel.block] == "convs1"
    assert computation.layers[computation.layer[kernel.ready]] == "conv1"


def test_inference_has_no_gradients():
    computation = synthesize_computation(load_model("alexnet"), 8, V100, training=False)
    assert (computation.role == FORWARD).all()
    assert all(parameter.ready is None for parameter in computation.parameters)


def test_ops_that_an_exchange_adds_vary_with_the_step():
    computation = synthesize_computation(load_model("alexnet"), 8, V100)
    more = computation.vary_durations([*computation.once_s, 1.0])
    assert more.shape == (computation.steps, computation.ops + 1)
    assert (computation.vary_durations(computation.once_s) == computation.durations_s).all()


def test_invalid_computation_is_refused():
    computation = synthesize_computation(load_model("alexnet"), 8, V100)
    with pytest.raises(BadInput, match="must come after"):
        replace(computation, deps=((1,), *computation.deps[1:]))
    with pytest.raises(BadInput, match="steps x"):
        replace(computation, durations_s=computation.durations_s[:, 1:])


@pytest.mark.parametrize("mode", ["per-op", "full"])
def test_recompute_runs_forward_ops_again_before_their_backward_ops(mode: Recompute) -> None:
    model = load_model("vit-b16")
    plain = calibrated_computation(model, 8, V100, FP16)
    again = calibrated_computation(model, 8, V100, FP16, recompute=mode)
    flags = recompute_flags(model, mode, find_framework().stops_early)
    assert again.work is not None
    assert again.once_s is not None
    assert plain.once_s is not None
    added = {again.names[i]: again.once_s[i] for i in np.flatnonzero(again.work == RECOMPUTE)}
    forward = dict(zip(plain.names, plain.once_s, strict=True))
    expected = {layer.name for layer, flag in zip(model, flags, strict=True) if flag}
    assert added == {
        f"{name}/recompute": forward[f"{name}/forward"] for name in expected if f"{name}/backward" in forward
    }
    assert again.once_s.sum() == pytest.approx(plain.once_s.sum() + sum(added.values()))
    assert 0.05 < sum(added.values()) / plain.once_s.sum() < 0.35
