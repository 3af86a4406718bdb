"""The memory footprint, worked out by hand, and beside published peaks and batches that were run."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.device.activations import saved_activations
from planner.device.memory import (
    COMMUNICATOR_BYTES,
    FRAGMENTATION,
    LEAST_FRAGMENTATION,
    Shares,
    footprint,
    framework_bytes,
    stored_tensors,
    usable_bytes,
)
from planner.device.precision import BF16, FP16, FP32
from planner.errors import BadInput
from planner.hardware import Device
from planner.model import Layer, Model, Tensor
from planner.model.catalog import load_model
from planner.model.layers.base import ElementCounts

GIB = 2**30
PUBLISHED = list(csv.DictReader((Path(__file__).parents[1] / "data/hardware/published_batches.csv").open()))
MODES = ("none", "attention", "full")
ACCUMULATED = Shares(accumulates=True)


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


def gpu(row: dict[str, str]) -> Device:
    kind = "gpu" if row["device_kind"] == "gpu" else "cpu"
    return Device(row["device"], kind, {"fp32": 1e12}, float(row["memory_gib"]) * GIB)


def test_saved_activations_by_hand() -> None:
    saved = saved_activations(tiny())
    # the input (for conv), conv (for norm), relu (its own derivative), pool (for fc); not norm, add and fc
    assert {kind: size.elements for kind, size in saved.by_kind.items()} == {
        "input": 192,
        "conv": 256,
        "relu": 256,
        "global_pool": 4,
    }
    # the worst moment is the add's: its output and both its inputs; what the fc and the pool saved is freed
    (moment,) = saved.moments
    assert moment.workspace == ElementCounts(elements=3 * 256)
    assert moment.recomputed == ElementCounts()
    assert sum(size.elements for size in moment.by_kind.values()) == 192 + 256 + 256


def test_footprint_parts_by_hand() -> None:
    memory = footprint(tiny(), FP32, optimizer="adam").peak(10)
    assert memory.parameters_bytes == memory.gradients_bytes == 4 * (108 + 40)
    assert memory.optimizer_bytes == 2 * memory.parameters_bytes
    assert memory.activations_bytes == 10 * 4 * 704
    used = 4 * 592 + 40 * (704 + 768)
    assert memory.total_bytes == pytest.approx(used * FRAGMENTATION + framework_bytes("gpu"))
    assert memory.required_bytes == memory.total_bytes  # convolutions need workspaces
    half = footprint(tiny(), FP16, optimizer="momentum").peak(10)
    assert half.activations_bytes == memory.activations_bytes / 2
    assert half.parameters_bytes == memory.parameters_bytes / 2
    # the master copy in single precision belongs to the optimizer, beside its momentum
    assert half.optimizer_bytes == 2 * memory.parameters_bytes
    sharded = footprint(tiny(), FP32).peak(10, Shares(parameters=0.25, gradients=0.5, optimizer=0.0))
    assert sharded.parameters_bytes == memory.parameters_bytes / 4
    assert sharded.gradients_bytes == memory.parameters_bytes / 2
    assert sharded.optimizer_bytes == 0


def test_saved_activations_of_an_unknown_kind_are_input_and_output() -> None:
    layers = (Layer("input", "input", (), (5,)), Layer("odd", "odd", ("input",), (7,)))
    saved = saved_activations(Model("odd", layers))
    assert sum(size.elements for size in saved.by_kind.values()) == 12


def test_states_by_precision_and_optimizer() -> None:
    model = load_model("gpt2")
    n = model.parameters
    for precision, optimizer, states in (
        (FP32, "sgd", (4, 4, 0)),
        (FP32, "momentum", (4, 4, 4)),
        (FP32, "adam", (4, 4, 8)),
        (BF16, "adam", (2, 2, 12)),
    ):
        memory = footprint(model, precision, optimizer=optimizer).peak(1, ACCUMULATED)  # type: ignore[arg-type]
        assert (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes) == tuple(
            n * b for b in states
        )
    assert footprint(model, BF16, autocast=True).peak(1, ACCUMULATED).states_bytes == n * (4 + 2 + 4 + 8)
    assert footprint(model, BF16, gradient_bytes=6).peak(1, ACCUMULATED).gradients_bytes == 6 * n


def test_saved_activations_of_a_block_are_those_of_korthikanti() -> None:
    """Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h) bytes of a layer in 16 bits, with masks of
    one byte; flash attention leaves out the second part but for one number a position."""
    model = load_model("gpt2")
    s, h, heads = 1024, 768, 12
    layers = {layer.name for layer in model.blocks[5].layers}
    for flash, scores in ((False, 5 * heads * s * s), (True, 4 * heads * s)):
        by_kind = saved_activations(model, "none", flash, False, frozenset(layers)).by_kind
        total = sum(part.bytes(2) for part in by_kind.values())
        # they keep what dropout was given as well (2 s h); norms keep two numbers a position
        inputs_from_before = 2 * s * h
        counted = 34 * s * h - 2 * s * h + scores + 2 * 2 * 4 * s
        assert total == pytest.approx(counted, abs=inputs_from_before + 1)


def test_recompute_saves_memory() -> None:
    model = load_model("llama3-8b")
    none, attention, full = (footprint(model, BF16, recompute=mode).saved_bytes for mode in MODES)
    assert full < attention <= none * 1.001
    s, h, vocabulary = model.sequence_length, 4096, 128256
    assert s
    saved = footprint(model, BF16, recompute="full").saved_by_kind
    # 32 blocks and the norm behind them, each with its input
    assert saved["embedding"] + saved["add"] == pytest.approx(33 * s * h * 2)
    before, loss = saved_activations(model, "full").moments
    assert loss.at_loss
    assert not before.at_loss
    logits = 4 * s * vocabulary  # in single precision: logarithms of probabilities, and two gradients
    assert loss.by_kind["cross_entropy"].bytes(2) == loss.workspace.bytes(2) / 2 == logits
    assert loss.recomputed == ElementCounts()
    assert "cross_entropy" not in before.by_kind
    # at its worst moment a block has freed what its last layers saved
    assert 0.7 < before.recomputed.bytes(2) / ((none - logits) / 32) < 1
    bert = load_model("bert-base")
    flash, attention, none = (
        footprint(bert, BF16, recompute=mode, flash=flash).saved_bytes
        for mode, flash in (("none", True), ("attention", False), ("none", False))
    )
    core = saved_activations(bert, "attention", flash=False).moments[0].recomputed.bytes(2)
    assert attention <= flash
    assert none - attention == pytest.approx(12 * core, rel=0.01)
    assert none > 1.7 * flash


def test_peak_is_taken_over_moments_that_never_coexist() -> None:
    """FSDP of Llama-3-8B over 8 devices: with long sequences the loss is the worst moment, before there are
    gradients; with short ones the optimizer's step, or a block's backward pass."""
    model = load_model("llama3-8b")
    n = model.parameters
    share = Shares(1 / 8, 1 / 8, 1 / 8, communicators=1)
    long = footprint(model, BF16, recompute="per-op").peak(2, share)
    assert long.gradients_bytes == 0
    assert long.states_bytes == pytest.approx(14 * n / 8)
    assert long.required_bytes / GIB < 77.2  # an H100 of 80 GB has 77.26 to give
    short = footprint(model, BF16, recompute="full", loss="fused").peak(1, share)
    assert short.states_bytes == pytest.approx(16 * n / 8)
    summed = footprint(model, BF16, recompute="per-op").peak(2, replace(share, accumulates=True))
    assert summed.gradients_bytes == 2 * n / 8
    alone = footprint(model, BF16, recompute="full", loss="fused").peak(1, Shares(optimizer=1 / 8))
    assert alone.activations_bytes == 0  # its fp32 gradients take more than a sample's activations
    assert alone.states_bytes == pytest.approx((2 + 2 + (12 + 4) / 8) * n)


def test_losses_differ_in_what_they_keep_of_the_logits() -> None:
    model = load_model("gpt2")
    logits = 1024 * 50257
    expected = {"eager": 12, "held": 14, "in-place": 6, "fused": 2}
    for loss, width in expected.items():
        memory = footprint(model, BF16, loss=loss)
        at_loss = memory.moments[1]
        rest = saved_activations(model).moments[1].by_kind
        others = sum(size.bytes(2) for kind, size in rest.items() if kind != "cross_entropy")
        total = at_loss.activations_bytes + at_loss.workspace_bytes - others
        assert total == pytest.approx(width * logits, rel=0.02)


def test_per_op_recompute_saves_every_second_product_and_attention() -> None:
    """Of a block of Llama-3-8B with 8,192 tokens: its input, the outputs of the query, value, gate and down
    projections (the first, third, fifth and seventh product), and that of attention."""
    model = load_model("llama3-8b")
    s, h, inner, kv = 8192, 4096, 14336, 1024
    first = model.blocks[1]
    layers = frozenset(layer.name for layer in first.layers)
    saved = saved_activations(model, "per-op", only=layers).by_kind
    total = sum(size.bytes(2) for size in saved.values())
    assert total == 2 * s * (h + h + kv + inner + h + h)
    full, per_op, none = (
        footprint(model, BF16, recompute=mode).peak(2) for mode in ("full", "per-op", "none")
    )
    assert full.activations_bytes < per_op.activations_bytes < 0.5 * none.activations_bytes


def test_shares_and_stages_add_up() -> None:
    model = load_model("gpt2")
    memory = footprint(model, BF16)
    whole = memory.peak(1)
    parts = [frozenset(layer.name for layer in model.layers[i::2]) for i in (0, 1)]
    tied = 50257 * 768  # both ends of a pipeline store the table that they share, if they fall apart
    stored = [tensor.elements for part in parts for each in stored_tensors(model, part) for tensor in each]
    assert sum(stored) - model.parameters in (0, tied)
    share = memory.peak(1, Shares(1 / 8, 1 / 8, 1 / 8, buffers_bytes=5.0, communicators=1))
    assert share.states_bytes == pytest.approx(whole.states_bytes / 8)
    assert share.framework_bytes == whole.framework_bytes + COMMUNICATOR_BYTES
    assert share.buffers_bytes == 5.0
    short = footprint(model, BF16, recompute="full", loss="fused", flash=True)
    converted = max(memory.peak(1, Shares(optimizer=1 / 8)).states_bytes for memory in (memory, short))
    # of the part that is updated, gradients in single precision beside
    assert short.bytes_by_moment(Shares(optimizer=1 / 8))[-1][0] == pytest.approx(
        (4 + 16 / 8) * model.parameters * LEAST_FRAGMENTATION + framework_bytes("gpu")
    )
    assert converted <= (4 + 16 / 8) * model.parameters
    assert memory.peak(1, Shares(communicators=3)).framework_bytes == (
        whole.framework_bytes + 3 * COMMUNICATOR_BYTES
    )
    assert memory.peak(1, Shares(communicators=3), "cpu").framework_bytes == framework_bytes("cpu")
    extra = memory.peak(1, Shares(in_flight=3)).activations_bytes - whole.activations_bytes
    assert extra == pytest.approx(2 * memory.saved_bytes)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 64),
    st.sampled_from(["gpt2", "resnet50-v1.5", "mixtral-8x7b", "vgg11", "t5-base"]),
    st.sampled_from(MODES),
    st.builds(
        Shares,
        parameters=st.floats(0, 1),
        gradients=st.floats(0, 1),
        optimizer=st.floats(0, 1),
        activations=st.floats(0.1, 1),
        in_flight=st.floats(1, 16),
        buffers_bytes=st.floats(0, 1e9),
        communicators=st.integers(0, 3),
        accumulates=st.booleans(),
    ),
    st.sampled_from(["gpu", "cpu"]),
)
def test_affine_equals_the_sum_of_the_parts(batch, name, mode, shares, kind) -> None:  # type: ignore[no-untyped-def]
    memory = footprint(load_model(name), FP16, recompute=mode)
    peak = memory.peak(batch, shares, kind)
    parts = peak.states_bytes + peak.activations_bytes + peak.workspace_bytes + peak.buffers_bytes
    assert peak.total_bytes == pytest.approx(parts + peak.fragmentation_bytes + peak.framework_bytes)
    has_sequences = load_model(name).sequence_length is not None
    waste = LEAST_FRAGMENTATION if has_sequences else FRAGMENTATION
    required = parts * waste + peak.framework_bytes
    assert peak.required_bytes == pytest.approx(required)
    moments = [fixed + batch * per_sample for fixed, per_sample in memory.bytes_by_moment(shares, kind)]
    assert max(moments) == pytest.approx(required)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["alexnet", "vgg11", "inception3", "resnet50"]),
    st.floats(2, 200),
    st.sampled_from(["gpu", "cpu"]),
    st.sampled_from([FP32, FP16]),
)
def test_largest_batch_is_exact(name, gib, kind, precision) -> None:  # type: ignore[no-untyped-def]
    memory, device = footprint(load_model(name), precision), Device("any", kind, {"fp32": 1e12}, gib * GIB)
    largest = memory.largest_batch(device)
    if largest:
        assert memory.peak(largest, device_kind=kind).required_bytes <= usable_bytes(device)
    assert memory.peak(largest + 1, device_kind=kind).required_bytes > usable_bytes(device)


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: f"{r['model']}-{r['precision']}-{r['device']}")
def test_batch_that_was_run_fits(row: dict[str, str]) -> None:
    precision = FP16 if row["precision"] == "fp16" else FP32
    assert footprint(load_model(row["model"]), precision).largest_batch(gpu(row)) >= int(row["batch"])


def test_published_batches_come_close_to_the_limit() -> None:
    """The estimate has teeth: batches chosen to fill a device fill most of what we grant, and twice the
    largest published ones are refused."""
    full = {("inception3", "V100-SXM2-16GB", "fp32"): 0.91, ("resnet50", "A10", "fp32"): 0.88}
    full |= {("resnet50", "A100-PCIe-40GB", "fp16"): 0.82, ("resnet50", "M60", "fp32"): 0.89}
    seen = set()
    for row in PUBLISHED:
        key = (row["model"], row["device"], row["precision"])
        if key in full:
            seen.add(key)
            memory = footprint(load_model(row["model"]), FP16 if row["precision"] == "fp16" else FP32)
            device, batch = gpu(row), int(row["batch"])
            share = memory.peak(batch).required_bytes / usable_bytes(device)
            assert share == pytest.approx(full[key], abs=0.01)
            assert memory.largest_batch(device) < 2 * batch
    assert seen == full.keys()


@pytest.mark.parametrize(
    ("name", "batch", "precision", "optimizer", "gib"),
    [  # milabench, PyTorch 2.6, peaks by nvidia-smi (config/scaling)
        ("bert-base", 32, FP32, "adam", 20.17),
        ("bert-base", 48, FP16, "adam", 22.35),
        ("resnet152", 128, BF16, "adam", 13.34),
        ("resnet50-v1.5", 456, FP16, "momentum", 22.32),
    ],
)
def test_published_peaks(name, batch, precision, optimizer, gib) -> None:  # type: ignore[no-untyped-def]
    memory = footprint(load_model(name), precision, optimizer=optimizer, autocast=True).peak(batch)
    assert memory.total_bytes / GIB == pytest.approx(gib, rel=0.06)


def test_bad_settings_are_refused() -> None:
    model = load_model("gpt2")
    with pytest.raises(BadInput, match="batch is 0"):
        footprint(model, BF16).peak(0)
    with pytest.raises(BadInput, match="one of sgd, momentum, adam"):
        footprint(model, BF16, optimizer="lamb")
    with pytest.raises(BadInput, match="allowed: none, attention, per-op, full"):
        footprint(model, BF16, recompute="some")  # type: ignore[arg-type]


def test_saved_activations_leave_out_the_tokens() -> None:
    assert "input" not in saved_activations(load_model("gpt2")).by_kind
    assert saved_activations(load_model("vgg11")).by_kind["input"] == ElementCounts(elements=224 * 224 * 3)
