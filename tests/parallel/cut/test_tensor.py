"""The tensor cut: shares that add up, sums where Megatron has them, refusals that say what would work."""

from __future__ import annotations

import pytest

from planner.errors import BadInput
from planner.model import Model
from planner.model.catalog import load_model
from planner.model.layers import kind_of
from planner.parallel.cut.tensor import SharedModel, degrees, refusal, shared


def kinds_cut(shared_model: SharedModel, whole: Model) -> dict[str, str]:
    """For each layer by name, how it is cut: `whole`, `cut` or `positions`."""
    out = {}
    for mine, layer in zip(shared_model.model.layers, whole.layers, strict=True):
        if mine == layer:
            out[layer.name] = "whole"
        elif kind_of(layer).sequence_parallel and mine.tensors == layer.tensors:
            out[layer.name] = "positions"
        else:
            out[layer.name] = "cut"
    return out


TRANSFORMERS = ("gpt2", "bert-large", "llama3-8b", "mixtral-8x7b", "t5-base", "vit-b16")


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("degree", [2, 4])
def test_the_shares_of_all_devices_are_the_model(name: str, degree: int) -> None:
    whole = load_model(name)
    mine = shared(whole, degree).model
    # what is not shared (norms, positions, biases of sums, pooling) is on every device: a small rest
    assert 1 / degree <= mine.parameters / whole.parameters < 1 / degree + 0.015
    assert 1 / degree <= mine.macs / whole.macs < 1 / degree + 0.01


def test_a_block_of_llama_is_cut_as_megatron_cuts_it() -> None:
    whole = load_model("llama3-8b")
    cut = shared(whole, 8)
    how = kinds_cut(cut, whole)
    block = "model.layers.3."
    assert {name.removeprefix(block): kind for name, kind in how.items() if name.startswith(block)} == {
        "input_layernorm": "positions",
        "self_attn.q_proj": "cut",
        "self_attn.k_proj": "cut",
        "self_attn.v_proj": "cut",
        "self_attn.q_rotary": "cut",
        "self_attn.k_rotary": "cut",
        "self_attn": "cut",
        "self_attn.o_proj": "cut",
        "attended": "positions",
        "post_attention_layernorm": "positions",
        "mlp.gate_proj": "cut",
        "mlp.act_fn": "cut",
        "mlp.up_proj": "cut",
        "mlp.gated": "cut",
        "mlp.down_proj": "cut",
        "out": "positions",
    }
    per_block = [one for one in cut.sums if one.layer.startswith(block)]
    assert [one.layer.removeprefix(block) for one in per_block] == ["self_attn.o_proj", "mlp.down_proj"]
    assert {one.elements for one in per_block} == {8192 * 4096}
    assert len(cut.sums) == 2 * 32 + 1  # and that of the embedding


def test_a_share_has_the_width_of_its_columns_and_the_rows_of_its_sums() -> None:
    whole = load_model("llama3-8b")
    layers = {layer.name.removeprefix("model.layers.0."): layer for layer in shared(whole, 4).model.layers}
    assert layers["self_attn.q_proj"].output_shape == (8192, 1024)
    assert layers["self_attn.q_proj"].input_elements == 8192 * 4096  # the whole input
    assert layers["self_attn.o_proj"].output_shape == (8192, 4096)
    assert layers["self_attn.o_proj"].input_elements == 8192 * 1024
    attention = layers["self_attn"].detail
    assert (attention.heads, attention.kv_heads) == (8, 2)  # type: ignore[union-attr]
    assert layers["input_layernorm"].output_shape == (2048, 4096)
    without = shared(whole, 4, sequence=False).model
    assert next(one for one in without.layers if one.kind == "rms_norm").output_shape == (8192, 4096)


def test_more_devices_than_key_heads_share_them() -> None:
    attention = next(one.detail for one in shared(load_model("llama3-8b"), 16).model.layers if one.detail)
    assert (attention.heads, attention.kv_heads) == (2, 1)  # type: ignore[union-attr]


def test_degree_one_changes_nothing() -> None:
    whole = load_model("gpt2")
    assert shared(whole, 1).model is whole


def test_what_does_not_divide_is_refused_with_what_does() -> None:
    with pytest.raises(BadInput, match=r"degree of 8 does not divide the 12 heads of gpt2; .* is 6"):
        shared(load_model("gpt2"), 8)
    assert "no attention" in refusal(load_model("resnet50"), 2)
    assert degrees(load_model("gpt2"), 8) == (1, 2, 4)
    assert degrees(load_model("resnet50"), 8) == (1,)
