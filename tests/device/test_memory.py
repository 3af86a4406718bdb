"""Memory: what is kept for the backward pass, and that every published batch is judged to fit."""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.device.batch_memory import (
    RUNTIME_BYTES,
    USABLE,
    Held,
    kept_elements,
    largest_batch,
    memory_fit,
    server_memory_bytes,
    server_misfit,
    worker_memory,
    working_elements,
)
from planner.device.precision import FP16, FP32
from planner.errors import BadInput
from planner.hardware import Device
from planner.hardware.catalog import load_hardware
from planner.model import Layer, Model, Tensor
from planner.model.catalog import load_model

PUBLISHED = list(csv.DictReader((Path(__file__).parents[1] / "data/hardware/published_batches.csv").open()))


def tiny() -> Model:
    """input 8x8x3, conv to 8x8x4, batch norm, ReLU, added to the conv's output, pooled, fully connected."""
    weights = Tensor("conv/kernel", (3, 3, 3, 4))
    return Model(
        "tiny",
        (
            Layer("input", "input", (), (8, 8, 3)),
            Layer("conv", "conv", ("input",), (8, 8, 4), (weights,), macs=8 * 8 * 108),
            Layer("norm", "batch_norm", ("conv",), (8, 8, 4)),
            Layer("relu", "relu", ("norm",), (8, 8, 4)),
            Layer("add", "add", ("relu", "conv"), (8, 8, 4)),
            Layer("pool", "global_pool", ("add",), (4,)),
            Layer("fc", "fc", ("pool",), (10,), (Tensor("fc/weights", (4, 10)),), macs=40),
        ),
    )


def test_what_is_kept_by_hand() -> None:
    # the input (for conv), conv (for norm), relu (its own derivative), pool (for fc); not norm, add and fc
    assert kept_elements(tiny()) == 192 + 256 + 256 + 4
    # the add's output and both its inputs
    assert working_elements(tiny()) == 3 * 256


def test_the_parts_by_hand() -> None:
    need = worker_memory(tiny(), 10, optimizer="adam", held=Held())
    assert need.parameters_bytes == need.gradients_bytes == 4 * (108 + 40)
    assert need.optimizer_bytes == 2 * need.parameters_bytes
    assert need.activations_bytes == 10 * 4 * 708
    assert need.total_bytes == 4 * 592 + 40 * (708 + 768) + RUNTIME_BYTES["gpu"]
    assert worker_memory(tiny(), 10, optimizer="adam").optimizer_bytes == 0
    half = worker_memory(tiny(), 10, held=Held(), precision=FP16)
    assert half.activations_bytes == need.activations_bytes / 2
    assert half.parameters_bytes == need.parameters_bytes / 2
    # the master copy in single precision belongs to the optimizer, beside its momentum
    assert half.optimizer_bytes == 2 * need.parameters_bytes
    shared = worker_memory(tiny(), 10, held=Held(parameters=0.25, gradients=0.5, optimizer=0.0))
    assert shared.parameters_bytes == need.parameters_bytes / 4
    assert shared.gradients_bytes == need.parameters_bytes / 2


def test_an_unknown_kind_keeps_both_sides() -> None:
    layers = (Layer("input", "input", (), (5,)), Layer("odd", "odd", ("input",), (7,)))
    assert kept_elements(Model("odd", layers)) == 12


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: f"{r['model']}-{r['precision']}-{r['device']}")
def test_a_batch_that_was_run_fits(row: dict[str, str]) -> None:
    kind = "gpu" if row["device_kind"] == "gpu" else "cpu"
    device = Device(row["device"], kind, {"fp32": 1e12}, float(row["memory_gib"]) * 2**30)
    fit = memory_fit(
        load_model(row["model"]),
        int(row["batch"]),
        device,
        held=Held(),  # one device trains alone and keeps the momentum
        precision=FP16 if row["precision"] == "fp16" else FP32,
    )
    assert fit.fits, fit.reason
    assert fit.largest_batch >= int(row["batch"])


def test_published_batches_come_close_to_the_limit() -> None:
    """The estimate has teeth: batches chosen to fill a device fill most of what we grant, and twice the
    largest published ones are refused."""
    full = {("inception3", "V100-SXM2-16GB", "fp32"): 0.88, ("resnet50", "A10", "fp32"): 0.87}
    full |= {("resnet50", "A100-PCIe-40GB", "fp16"): 0.83, ("resnet50", "M60", "fp32"): 0.81}
    for row in PUBLISHED:
        key = (row["model"], row["device"], row["precision"])
        if key in full:
            device = Device(row["device"], "gpu", {"fp32": 1e12}, float(row["memory_gib"]) * 2**30)
            precision = FP16 if row["precision"] == "fp16" else FP32
            model, batch = load_model(row["model"]), int(row["batch"])
            fit = memory_fit(model, batch, device, held=Held(), precision=precision)
            assert fit.share == pytest.approx(full[key], abs=0.01)
            twice = memory_fit(model, 2 * batch, device, held=Held(), precision=precision)
            assert not twice.fits


def test_the_reason_names_the_largest_batch() -> None:
    p3 = load_hardware("p3.2xlarge")
    fit = memory_fit(load_model("resnet50"), 512, p3)
    assert not fit.fits
    assert "resnet50 at batch 512 needs" in fit.reason
    assert f"the largest batch that fits is {fit.largest_batch}" in fit.reason
    small = Device("small", "gpu", {"fp32": 1e12}, 2**29)
    assert "not even one sample fits" in memory_fit(load_model("vgg11"), 1, small).reason
    assert largest_batch(load_model("vgg11"), small) == 0


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["alexnet", "vgg11", "inception3", "resnet50"]),
    st.floats(2, 200),
    st.sampled_from(["gpu", "cpu"]),
    st.sampled_from([FP32, FP16]),
)
def test_the_largest_batch_is_exact(name: str, gib: float, kind, precision) -> None:  # type: ignore[no-untyped-def]
    model, device = load_model(name), Device("any", kind, {"fp32": 1e12}, gib * 2**30)
    largest = largest_batch(model, device, precision=precision)
    if largest:
        assert memory_fit(model, largest, device, precision=precision).fits
    over = memory_fit(model, largest + 1, device, precision=precision)
    assert not over.fits
    assert over.need.total_bytes > gib * 2**30 * USABLE[kind]


def test_bad_input() -> None:
    with pytest.raises(BadInput, match="at least one"):
        worker_memory(tiny(), 0)
    with pytest.raises(BadInput, match="sgd, momentum, adam"):
        worker_memory(tiny(), 1, optimizer="lamb")  # type: ignore[arg-type]


def test_a_server_holds_state_and_buffers() -> None:
    assert server_memory_bytes(100.0, 3, "adam") - RUNTIME_BYTES["cpu"] == 100 * (1 + 2 + 3)


def test_a_server_too_small_says_so() -> None:
    small = load_hardware("c4.large")
    assert server_misfit(small, 100e6, 4) == ""
    reason = server_misfit(small, load_model("vgg11").bytes, 8)
    assert "c4.large has 3.38 GiB to use" in reason
    assert "506.85 MiB of parameters for 8 workers" in reason
    with pytest.raises(BadInput, match="at least one"):
        server_misfit(small, 1.0, 0)
