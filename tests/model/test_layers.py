"""What layers ask of a device and keep, worked out by hand and held against torch's own counter."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model import AttentionShape, Experts, Layer, Tensor
from planner.model.catalog import load_model, model_names
from planner.model.layers import KINDS, kernel_kind, layer_activations, layer_workload, workloads
from planner.model.layers.sequences import score_pair_count

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/fit"))
DATA = Path(__file__).parents[1] / "data" / "models"


def rows(name):
    with open(DATA / name, newline="") as file:
        return list(csv.DictReader(file))


def nominal(name, blocks=""):
    model = load_model(name)
    counted = {block.name for block in model.blocks[: int(blocks or len(model.blocks))]} | {None}
    asked = [
        one
        for layer, one in zip(model.layers, workloads(model, flash=False), strict=True)
        if layer.block in counted
    ]
    return sum(work.forward.nominal_flops for work in asked), sum(
        work.backward.nominal_flops for work in asked
    )


@pytest.mark.parametrize("row", rows("flops.csv"), ids=lambda row: row["model"])
def test_flops_are_those_that_torch_counts(row):
    assert nominal(row["model"], row["blocks"]) == (int(row["forward_flops"]), int(row["backward_flops"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert-base", "llama3-8b", "vit-b16", "resnet50-v1.5"])
def test_flops_kept_are_those_of_the_counter(name):
    pytest.importorskip("transformers")
    from model_references import flops_of

    row = next(row for row in rows("flops.csv") if row["model"] == name)
    assert flops_of(name) == (int(row["forward_flops"]), int(row["backward_flops"]))


@pytest.mark.parametrize("row", rows("torchvision.csv"), ids=lambda row: row["model"])
def test_networks_of_torchvision(row):
    model = load_model(row["model"])
    assert model.parameters == int(row["parameters"])
    assert round(model.macs / 1e9, 3) == float(row["gmacs"])


def test_every_kind_in_the_catalog_is_in_the_table():
    kinds = {layer.kind for name in model_names() for layer in load_model(name)}
    assert kinds <= KINDS.keys()


def test_matmuls_do_the_flops_of_their_pass():
    for name in ("llama3-8b", "mixtral-8x7b", "bert-base", "efficientnet-b0"):
        for layer, asked in zip(load_model(name), workloads(load_model(name)), strict=True):
            for direction in (asked.forward, asked.backward):
                if direction.matmuls:
                    assert sum(m.flops for m in direction.matmuls) == pytest.approx(direction.flops), (
                        layer.name
                    )


LINEAR = Layer("l", "linear", ("x",), (10, 6), (Tensor("w", (6, 4)),), 240, input_elements=40)


def test_linear_layer():
    asked = layer_workload(LINEAR)
    assert asked.kernel == "matmul"
    assert (asked.forward.flops, asked.backward.flops) == (480, 960)
    assert (asked.forward.read_elements, asked.forward.written_elements) == (40, 60)
    assert (asked.forward.weight_elements, asked.backward.weight_elements) == (24, 48)
    (product,) = asked.forward.matmuls
    assert (product.rows, product.columns, product.depth, product.grows) == (10, 6, 4, "rows")
    weights, inputs = asked.backward.matmuls
    assert (weights.rows, weights.columns, weights.depth, weights.grows) == (4, 6, 10, "depth")
    assert (inputs.rows, inputs.columns, inputs.depth, inputs.grows) == (10, 4, 6, "rows")
    assert layer_workload(LINEAR, reads_data=True).backward.flops == 480


def attention(**more):
    part = AttentionShape(heads=2, kv_heads=1, head_size=4, keys=8, **more)
    return Layer("a", "attention", ("q", "k", "v"), (8, 8), macs=1024, input_elements=128, detail=part)


def test_attention_with_and_without_flash():
    flash, plain = layer_workload(attention()), layer_workload(attention(flash=False))
    assert flash.forward.flops == plain.forward.flops == 2048
    assert (flash.backward.flops, plain.backward.flops) == (5120, 4096)
    assert flash.forward.moved_elements == 128 + 64
    assert plain.forward.moved_elements == 128 + 64 + 4 * 2 * 64  # scores written, normalised and read
    assert layer_activations(attention()).bytes(2) == 4 * 2 * 8
    assert layer_activations(attention(flash=False)).bytes(2) == 2 * 2 * 64
    assert layer_activations(attention(flash=False, dropout=True)).bytes(2) == (2 + 2 + 1) * 2 * 64
    assert layer_activations(attention(), flash=False) == layer_activations(attention(flash=False))


def test_causal_mask_spares_half_and_the_count_does_not_say_so():
    asked = layer_workload(attention(causal=True)).forward
    assert (asked.flops, asked.nominal_flops) == (2048 * 36 / 64, 2048)


@given(st.integers(1, 40), st.integers(1, 50), st.booleans())
def test_pairs_are_those_that_a_mask_leaves(length, window, causal):
    part = AttentionShape(1, 1, 1, length, causal=causal, window=window)
    if causal:
        seen = sum(1 for i in range(length) for j in range(length) if 0 <= i - j < window)
    else:
        seen = length * min(length, window)
    assert score_pair_count(part, length) == seen


def test_experts_compute_for_those_that_are_asked_and_hold_all():
    part = Experts(experts=8, top_k=2, inner=16)
    layer = Layer("m", "moe", ("x",), (10, 4), (Tensor("w", (8, 3, 16, 4)),), 10 * 4 * (8 + 96), detail=part)
    asked = layer_workload(layer)
    assert asked.forward.flops == 2 * layer.macs
    assert asked.forward.weight_elements == 8 * 3 * 16 * 4
    mixtral = load_model("mixtral-8x7b")
    used = sum(layer.macs for layer in mixtral if layer.kind in ("linear", "moe")) / mixtral.sequence_length
    assert round(used / 1e9, 1) == 12.7  # of 46.7 billion parameters, "13B active" but for the embedding


@pytest.mark.parametrize(
    ("kernel", "stride", "groups", "kind"),
    [
        ((1, 1), (1, 1), 1, "conv1x1"),
        ((3, 3), (1, 1), 1, "conv3x3"),
        ((3, 3), (2, 2), 1, "conv"),
        ((1, 11), (1, 1), 1, "conv_long"),
        ((3, 3), (1, 1), 4, "grouped"),
        ((3, 3), (1, 1), 8, "depthwise"),
    ],
)
def test_kernels_of_convolutions(kernel, stride, groups, kind):
    layer = Layer("c", "conv", ("x",), (4, 4, 8), kernel=kernel, stride=stride, groups=groups)
    assert kernel_kind(layer) == kind
    assert kernel_kind(replace(layer, kind="depthwise")) == "depthwise"
