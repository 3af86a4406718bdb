"""Tensor parallelism: shards that add up, all-reduces where Megatron has them, and what is infeasible."""

from __future__ import annotations

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.model.layers import layer_class
from planner.parallel._base import Shard
from planner.parallel.mesh import meshes
from planner.parallel.plan import Site
from planner.parallel.tensor import TensorParallel


def shardings(mine: Model, whole: Model) -> dict[str, str]:
    """For each layer by name, how it is sharded: `whole`, `features` or `positions`."""
    out = {}
    for part, layer in zip(mine.layers, whole.layers, strict=True):
        if part == layer:
            out[layer.name] = "whole"
        elif layer_class(layer).sequence_parallel and part.tensors == layer.tensors:
            out[layer.name] = "positions"
        else:
            out[layer.name] = "features"
    return out


def shard(model: Model, degree: int) -> Model:
    return TensorParallel(degree).shard(Shard(model)).model


TRANSFORMERS = ("gpt2", "bert-large", "llama3-8b", "mixtral-8x7b", "t5-base", "vit-b16")


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("degree", [2, 4])
def test_shares_of_all_devices_are_the_model(name: str, degree: int) -> None:
    whole = load_model(name)
    mine = shard(whole, degree)
    # what is not shared (norms, positions, biases of sums, pooling) is on every device: a small rest
    assert 1 / degree <= mine.parameters / whole.parameters < 1 / degree + 0.015
    assert 1 / degree <= mine.macs / whole.macs < 1 / degree + 0.01


def test_block_of_llama_is_cut_as_megatron_cuts_it() -> None:
    whole = load_model("llama3-8b")
    reduced = TensorParallel(8).shard(Shard(whole)).communications
    how = shardings(shard(whole, 8), whole)
    block = "model.layers.3."
    assert {name.removeprefix(block): kind for name, kind in how.items() if name.startswith(block)} == {
        "input_layernorm": "positions",
        "self_attn.q_proj": "features",
        "self_attn.k_proj": "features",
        "self_attn.v_proj": "features",
        "self_attn.q_rotary": "features",
        "self_attn.k_rotary": "features",
        "self_attn": "features",
        "self_attn.o_proj": "features",
        "attended": "positions",
        "post_attention_layernorm": "positions",
        "mlp.gate_proj": "features",
        "mlp.act_fn": "features",
        "mlp.up_proj": "features",
        "mlp.gated": "features",
        "mlp.down_proj": "features",
        "out": "positions",
    }
    per_block = [entry for entry in reduced if entry.layer.startswith(block)]
    assert [entry.layer.removeprefix(block) for entry in per_block] == ["self_attn.o_proj", "mlp.down_proj"]
    assert {entry.elements for entry in per_block} == {8192 * 4096}
    assert len(reduced) == 2 * 32 + 1  # and that of the embedding


def test_share_has_the_width_of_its_columns_and_the_rows_of_its_sums() -> None:
    whole = load_model("llama3-8b")
    layers = {layer.name.removeprefix("model.layers.0."): layer for layer in shard(whole, 4).layers}
    assert layers["self_attn.q_proj"].output_shape == (8192, 1024)
    assert layers["self_attn.q_proj"].input_elements == 8192 * 4096  # the whole input
    assert layers["self_attn.o_proj"].output_shape == (8192, 4096)
    assert layers["self_attn.o_proj"].input_elements == 8192 * 1024
    attention = layers["self_attn"].detail
    assert (attention.heads, attention.kv_heads) == (8, 2)  # type: ignore[union-attr]
    assert layers["input_layernorm"].output_shape == (2048, 4096)
    without = TensorParallel(4, sequence_parallel=False).shard(Shard(whole)).model
    assert next(layer for layer in without.layers if layer.kind == "rms_norm").output_shape == (8192, 4096)


def test_more_devices_than_key_heads_share_them() -> None:
    attention = next(layer.detail for layer in shard(load_model("llama3-8b"), 16).layers if layer.detail)
    assert (attention.heads, attention.kv_heads) == (2, 1)  # type: ignore[union-attr]


def test_degree_one_changes_nothing() -> None:
    whole = load_model("gpt2")
    assert shard(whole, 1) is whole


def test_indivisible_degree_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"degree of 8 does not divide the 12 heads of gpt2; .* is 6"):
        shard(load_model("gpt2"), 8)
    assert "no attention" in str(TensorParallel(2).infeasibility(None, load_model("resnet50")))
    machine = Site(load_hardware("p5.48xlarge"), 8)
    for name, degrees in (("gpt2", [1, 2, 4]), ("resnet50", [1])):
        model = load_model(name)
        assert [mesh.settings["tensor"] for mesh in meshes(model, machine, {"pipeline": (1,)})] == [1]
        result = meshes(model, machine, {"tensor": (1, 2, 3, 4, 8)})
        assert [mesh.settings["tensor"] for mesh in result if mesh.settings["tensor"] != 3] == degrees
