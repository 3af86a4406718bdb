"""What training holds in memory, worked out by hand and against published peaks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.device.memory import (
    AGAIN,
    COLLECTIVES_BYTES,
    FRAGMENTATION,
    Shares,
    activations,
    holding,
    parameters,
)
from planner.device.precision import BF16, FP16, FP32
from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.layers import Kept

GIB = 2**30


def test_states_by_precision_and_optimizer():
    model = load_model("gpt2")
    n = model.parameters
    for precision, optimizer, states in (
        (FP32, "sgd", (4, 4, 0)),
        (FP32, "momentum", (4, 4, 4)),
        (FP32, "adam", (4, 4, 8)),
        (BF16, "adam", (2, 2, 12)),
    ):
        held = holding(model, 1, precision, optimizer=optimizer)
        assert (held.parameters_bytes, held.gradients_bytes, held.optimizer_bytes) == tuple(
            n * b for b in states
        )
    held = holding(model, 1, BF16, autocast=True)
    assert held.states_bytes == n * (4 + 2 + 4 + 8)
    assert holding(model, 1, BF16, gradient_bytes=6).gradients_bytes == 6 * n


def test_a_block_keeps_what_korthikanti_counts():
    """Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h) bytes of a layer in 16 bits, with masks of
    one byte; flash attention leaves out the second part but for one number a position."""
    model = load_model("gpt2")
    s, h, heads = 1024, 768, 12
    layers = {layer.name for layer in model.blocks[5].layers}
    for flash, scores in ((False, 5 * heads * s * s), (True, 4 * heads * s)):
        by_kind = activations(model, "none", flash, False, frozenset(layers)).by_kind
        total = sum(part.bytes(2) for part in by_kind.values())
        # they keep what dropout was given as well (2 s h); norms keep two numbers a position
        inputs_from_before = 2 * s * h
        counted = 34 * s * h - 2 * s * h + scores + 2 * 2 * 4 * s
        assert total == pytest.approx(counted, abs=inputs_from_before + 1)


def test_recompute_keeps_less():
    model = load_model("llama3-8b")
    none, selective, full = (holding(model, 2, BF16, recompute=how) for how in ("none", "selective", "full"))
    assert full.activations_bytes < selective.activations_bytes <= none.activations_bytes
    s, h = model.sequence_length, 4096
    assert full.by_kind["embedding"] + full.by_kind["add"] == pytest.approx(33 * 2 * s * h * 2, rel=0.05)
    assert full.by_kind[AGAIN] == pytest.approx(none.activations_bytes / 32, rel=0.2)
    plain = load_model("bert-base")
    kept = [
        holding(plain, 2, BF16, recompute=how, flash=flash).activations_bytes
        for how, flash in (("none", True), ("selective", False), ("none", False))
    ]
    assert kept[0] == pytest.approx(kept[1], rel=0.01)
    assert kept[2] > 1.7 * kept[1]


def test_shares_and_stages_add_up():
    model = load_model("gpt2")
    whole = holding(model, 1, BF16)
    parts = [frozenset(layer.name for layer in model.layers[i::2]) for i in (0, 1)]
    tied = 50257 * 768  # both ends of a cut hold the table that they share, if they fall apart
    assert sum(parameters(model, part) for part in parts) - model.parameters in (0, tied)
    share = holding(model, 1, BF16, shares=Shares(1 / 8, 1 / 8, 1 / 8, buffers_bytes=5.0), devices=8)
    single = 4 * model.parameters  # of the part that is updated, gradients in single precision beside
    assert share.states_bytes == pytest.approx((whole.states_bytes + single) / 8)
    assert whole.scaled(1, Shares(1 / 8, 1 / 8, 1 / 8), 8).states_bytes == pytest.approx(share.states_bytes)
    assert share.framework_bytes > whole.framework_bytes
    assert share.buffers_bytes == 5.0
    cut = holding(model, 1, BF16, shares=Shares(cuts=2), devices=8)
    groups = (cut.framework_bytes - whole.framework_bytes) / COLLECTIVES_BYTES
    assert groups == pytest.approx(3)  # replicas, devices that share layers, stages
    assert cut.fragmentation_bytes > whole.fragmentation_bytes
    assert (
        holding(model, 1, BF16, shares=Shares(in_flight=3)).activations_bytes == 3 * whole.activations_bytes
    )


@settings(max_examples=30)
@given(
    st.integers(1, 64),
    st.sampled_from(["gpt2", "resnet50-v1.5", "mixtral-8x7b", "vgg11", "t5-base"]),
    st.sampled_from(["none", "selective", "full"]),
)
def test_memory_is_affine_in_the_batch(batch, name, how):
    model = load_model(name)
    one, many = (holding(model, n, FP16, recompute=how) for n in (1, batch))
    assert many.fixed_bytes == one.fixed_bytes
    per_sample = one.total_bytes - one.fixed_bytes
    assert many.total_bytes == pytest.approx(one.fixed_bytes + batch * per_sample)
    parts = many.states_bytes + many.activations_bytes + many.working_bytes + many.buffers_bytes
    assert many.total_bytes == pytest.approx(parts * FRAGMENTATION + many.framework_bytes)
    assert many.total_bytes == pytest.approx(parts + many.fragmentation_bytes + many.framework_bytes)


@pytest.mark.parametrize(
    ("name", "batch", "precision", "optimizer", "gib"),
    [  # milabench, PyTorch 2.6, peaks by nvidia-smi (config/scaling)
        ("bert-base", 32, FP32, "adam", 20.17),
        ("bert-base", 48, FP16, "adam", 22.35),
        ("resnet152", 128, BF16, "adam", 13.34),
        ("resnet50-v1.5", 456, FP16, "momentum", 22.32),
    ],
)
def test_published_peaks(name, batch, precision, optimizer, gib):
    held = holding(load_model(name), batch, precision, optimizer=optimizer, autocast=True)
    assert held.total_bytes / GIB == pytest.approx(gib, rel=0.06)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"optimizer": "adamw"}, "allowed: sgd, momentum, adam"),
        ({"recompute": "some"}, "allowed: none, selective, full"),
    ],
)
def test_bad_settings(how, said):
    with pytest.raises(BadInput, match=said):
        holding(load_model("gpt2"), how.pop("batch", 1), BF16, **how)


def test_nothing_is_kept_for_a_text_itself():
    assert "input" not in activations(load_model("gpt2")).by_kind
    assert activations(load_model("vgg11")).by_kind["input"] == Kept(elements=224 * 224 * 3)


@given(
    batch=st.integers(1, 64),
    recompute=st.sampled_from(["none", "selective", "full"]),
    shares=st.builds(
        Shares,
        parameters=st.floats(0, 1),
        gradients=st.floats(0, 1),
        optimizer=st.floats(0, 1),
        in_flight=st.floats(1, 16),
        buffers_bytes=st.floats(0, 1e9),
    ),
    devices=st.integers(1, 9),
)
@settings(max_examples=30, deadline=None)
def test_one_sample_tells_what_a_batch_holds(batch, recompute, shares, devices):
    model = load_model("gpt2")
    whole = holding(model, batch, BF16, recompute=recompute, shares=shares, devices=devices)
    one = holding(model, 1, BF16, recompute=recompute)
    assert one.scaled(batch, shares, devices).by_kind == pytest.approx(whole.by_kind)
    assert one.scaled(batch, shares, devices).total_bytes == pytest.approx(whole.total_bytes)
    assert one.total_for(batch, shares, devices) == pytest.approx(whole.total_bytes)
