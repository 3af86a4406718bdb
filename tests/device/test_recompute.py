"""Recomputed layers by recompute mode."""

from __future__ import annotations

import pytest

from planner.device.activations import find_recompute_mode, framework_recompute_modes, recompute_flags
from planner.errors import BadInput
from planner.model.catalog import load_model


@pytest.mark.parametrize(
    ("model", "left_out"),
    [
        ("llama3-8b", ["linear", "add"]),  # the last product reads its input, the sum reads nothing
        ("mpt-7b", ["linear", "add"]),
        ("gpt2", ["add"]),  # dropout reads which elements it has left out
        ("bert-large", []),  # a norm at the end reads what the product made
        ("mixtral-8x7b", ["add"]),  # experts are one layer, and more than their last product
    ],
)
def test_last_product_of_a_block_is_not_recomputed(model: str, left_out: list[str]) -> None:
    of = load_model(model)
    whole, early = recompute_flags(of, "full"), recompute_flags(of, "full", stops_early=True)
    assert whole.tolist() == [layer.block is not None for layer in of.layers]
    first = next(layer.block for layer in of.layers if layer.block)
    less = [
        layer.kind for at, layer in enumerate(of.layers) if layer.block == first and whole[at] > early[at]
    ]
    assert less == left_out
    assert not (early & ~whole).any()


def test_attention_recompute_runs_attention_again_and_none_nothing() -> None:
    of = load_model("llama3-8b")
    scores = [layer.kind == "attention" for layer in of.layers]
    for early in (False, True):
        assert recompute_flags(of, "attention", early).tolist() == scores
        assert not recompute_flags(of, "none", early).any()


def test_per_op_recompute_runs_every_second_product_again() -> None:
    of = load_model("llama3-8b")
    again = recompute_flags(of, "per-op")
    block = next(layer.block for layer in of.layers if layer.block)
    mine = [
        (layer, bool(twice)) for layer, twice in zip(of.layers, again, strict=True) if layer.block == block
    ]
    assert [twice for layer, twice in mine if layer.kind == "linear"] == [False, True] * 3 + [False]
    assert not any(twice for layer, twice in mine if layer.kind == "attention")
    assert all(twice for layer, twice in mine if layer.kind not in {"linear", "attention"})
    assert not any(twice for layer, twice in zip(of.layers, again, strict=True) if layer.block is None)


@pytest.mark.parametrize(
    ("framework", "mode"),
    [(None, "per-op"), ("pytorch", "per-op"), ("megatron", "attention"), ("transformer-engine", "attention")],
)
def test_selective_is_what_the_framework_means_by_it(framework: str | None, mode: str) -> None:
    assert find_recompute_mode("selective", framework) == mode
    assert framework_recompute_modes(framework) == ("none", mode, "full")
    with pytest.raises(BadInput, match="allowed: selective, none, attention"):
        find_recompute_mode("some")
