"""Stages: the best of all cuts, within memory; a pipeline's time by its schedule and by its closed form."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import one_forward_one_backward_s, pipeline_s

from planner.errors import BadInput
from planner.model import group_into_units
from planner.model.catalog import load_model
from planner.parallel.pipeline import (
    balance_stages,
    bubble_s,
    even_stages,
    peak_micro_batches,
    stage_layers,
)

times = st.lists(st.floats(0.1, 10), min_size=1, max_size=8)


def slowest(block_s: list[float], ends: tuple[int, ...]) -> float:
    return max(sum(block_s[a:b]) for a, b in pairwise(ends))


@given(times, st.integers(1, 8))
def test_balanced_stages_are_the_fastest(unit_s, stages) -> None:
    if stages > len(unit_s):
        with pytest.raises(BadInput, match=f"the nearest that works is {len(unit_s)}"):
            balance_stages(np.array(unit_s), stages)
        return
    every = [(0, *middle, len(unit_s)) for middle in combinations(range(1, len(unit_s)), stages - 1)]
    assert slowest(unit_s, balance_stages(np.array(unit_s), stages)) == pytest.approx(
        min(slowest(unit_s, ends) for ends in every)
    )


def test_no_stage_is_empty() -> None:
    unit_s = np.array([10.0, 0.0, 1.0, 0.0])
    for stages in range(1, 5):
        result = balance_stages(unit_s, stages)
        assert (result[0], result[-1]) == (0, 4)
        assert list(result) == sorted(set(result))


def test_equal_blocks_are_shared_out_equally() -> None:
    assert balance_stages(np.ones(12), 4) == (0, 3, 6, 9, 12)


@pytest.mark.parametrize(
    ("name", "stages", "blocks"),
    [
        ("gpt2", 4, [3, 3, 3, 3]),
        ("llama3-8b", 5, [6, 7, 7, 6, 6]),
        ("llama3-8b", 3, [11, 11, 10]),
        ("llama3.1-405b", 16, [7, *[8] * 14, 7]),  # as its report says
        ("gpt2", 13, []),  # more stages than blocks
        ("resnet50", 4, []),  # blocks differ
    ],
)
def test_even_stages_have_equally_many_blocks(name: str, stages: int, blocks: list[int]) -> None:
    chain = group_into_units(load_model(name))
    ends = even_stages(chain, stages)
    assert [int(chain.repeats[a:b].sum()) for a, b in pairwise(ends)] == blocks
    if blocks:
        assert (ends[0], ends[-1]) == (0, chain.length)


def test_stage_layers_are_those_of_even_stages() -> None:
    model = load_model("gpt2")
    stages = [stage_layers(model, 4, stage) for stage in range(4)]
    assert sum(map(len, stages)) == len(frozenset().union(*stages)) == len(model.layers)
    assert len({layer.block for layer in model.layers if layer.name in stages[3] and layer.block}) == 3


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.1, 3), st.floats(0.1, 3))
def test_closed_form_is_exact_for_stages_alike(stages, micro, forward, backward) -> None:
    played = one_forward_one_backward_s([forward] * stages, [backward] * stages, micro)
    assert pipeline_s([forward] * stages, [backward] * stages, micro) == pytest.approx(played)
    assert played == pytest.approx((micro + stages - 1) * (forward + backward))


@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=5), st.integers(1, 16), st.floats(0, 0.2))
def test_closed_form_is_near_the_schedule_for_stages_unlike(forward, micro, send) -> None:
    backward = [2 * each for each in forward]
    played = one_forward_one_backward_s(forward, backward, micro, send)
    closed = pipeline_s(forward, backward, micro, send_s=send)
    # no schedule is faster than all micro-batches on the slowest stage
    assert played >= micro * max(np.add(forward, backward)) * (1 - 1e-12)
    assert closed >= micro * max(np.add(forward, backward)) * (1 - 1e-12)
    assert closed <= played * 1.35
    assert played <= closed * 1.35 + 2 * send * micro * len(forward)


def test_virtual_stages_divide_the_bubble() -> None:
    assert bubble_s(np.full(4, 3.0)) == 9
    assert bubble_s(np.full(4, 3.0), virtual_stages=3) == 3


def test_activations_in_flight() -> None:
    assert [peak_micro_batches(stage, 4) for stage in range(4)] == [4, 3, 2, 1]
    assert peak_micro_batches(0, 4, micro_batches=2) == 2
    assert peak_micro_batches(0, 4, virtual_stages=3) == 4 * (1 + 3 / 12)
