"""Recomputed layers by recompute mode."""

from __future__ import annotations

import pytest

from planner.device.recompute import recomputed_layers
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
def test_what_only_makes_the_output_of_a_block_is_not_done_again(model: str, left_out: list[str]) -> None:
    of = load_model(model)
    whole, early = recomputed_layers(of, "full"), recomputed_layers(of, "full", stops_early=True)
    assert whole.tolist() == [layer.block is not None for layer in of.layers]
    first = next(layer.block for layer in of.layers if layer.block)
    less = [
        layer.kind for at, layer in enumerate(of.layers) if layer.block == first and whole[at] > early[at]
    ]
    assert less == left_out
    assert not (early & ~whole).any()


def test_selective_checkpoints_do_attention_again_and_none_nothing() -> None:
    of = load_model("llama3-8b")
    scores = [layer.kind == "attention" for layer in of.layers]
    for early in (False, True):
        assert recomputed_layers(of, "selective", early).tolist() == scores
        assert not recomputed_layers(of, "none", early).any()
