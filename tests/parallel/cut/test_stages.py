"""Stages: the best of all cuts, within memory; a pipeline's time by its schedule and by its closed form."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.parallel.cut.schedule import bubble_s
from planner.parallel.cut.stages import balanced, in_flight

from .played import one_forward_one_backward_s, pipeline_s

times = st.lists(st.floats(0.1, 10), min_size=1, max_size=8)


def slowest(block_s: list[float], ends: tuple[int, ...]) -> float:
    return max(sum(block_s[a:b]) for a, b in pairwise(ends))


def held(stage: int, ends: tuple[int, ...], state: list[float], kept: list[float]) -> float:
    run = slice(ends[stage], ends[stage + 1])
    return sum(state[run]) + in_flight(stage, len(ends) - 1) * sum(kept[run])


@given(times, st.integers(1, 8), st.floats(1, 60), st.randoms(use_true_random=False))
def test_no_other_cut_within_memory_is_faster(block_s, stages, memory, random) -> None:
    state = [random.uniform(0, 5) for _ in block_s]
    kept = [random.uniform(0, 2) for _ in block_s]
    every = [
        (0, *middle, len(block_s)) for middle in combinations(range(1, len(block_s)), min(stages, 9) - 1)
    ]
    fitting = [
        ends for ends in every if all(held(s, ends, state, kept) <= memory for s in range(len(ends) - 1))
    ]
    found = balanced(block_s, stages, state_bytes=state, activation_bytes=kept, memory_bytes=memory)
    if stages > len(block_s) or not fitting:
        assert found is None
        return
    assert found is not None
    assert len(found) == stages + 1
    assert slowest(block_s, found) == pytest.approx(min(slowest(block_s, ends) for ends in fitting))
    assert all(held(s, found, state, kept) <= memory * (1 + 1e-12) for s in range(stages))


@pytest.mark.parametrize("memory_bytes", [1.0, np.inf])
def test_no_stage_is_empty(memory_bytes: float) -> None:
    block_s = [10.0, 0.0, 1.0, 0.0]
    for stages in range(1, 5):
        found = balanced(block_s, stages, memory_bytes=memory_bytes)
        assert found is not None
        assert (found[0], found[-1]) == (0, 4)
        assert list(found) == sorted(set(found))
    assert balanced(block_s, 5) is None


def test_equal_blocks_are_shared_out_equally() -> None:
    assert balanced([1.0] * 12, 4) == (0, 3, 6, 9, 12)


def test_early_stages_are_shorter_where_activations_bind() -> None:
    # stage 0 of 2 keeps two micro-batches: four blocks of 3 do not fit in 20 twice, three do
    assert balanced([1.0] * 8, 2, activation_bytes=[3.0] * 8, memory_bytes=20) == (0, 3, 8)


@given(st.integers(1, 6), st.integers(1, 12), st.floats(0.1, 3), st.floats(0.1, 3))
def test_the_closed_form_is_exact_for_stages_alike(stages, micro, forward, backward) -> None:
    played = one_forward_one_backward_s([forward] * stages, [backward] * stages, micro)
    assert pipeline_s([forward] * stages, [backward] * stages, micro) == pytest.approx(played)
    assert played == pytest.approx((micro + stages - 1) * (forward + backward))


@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=5), st.integers(1, 16), st.floats(0, 0.2))
def test_the_closed_form_is_near_the_schedule_for_stages_unlike(forward, micro, send) -> None:
    backward = [2 * each for each in forward]
    played = one_forward_one_backward_s(forward, backward, micro, send)
    closed = pipeline_s(forward, backward, micro, send_s=send)
    # no schedule is faster than all micro-batches on the slowest stage
    assert played >= micro * max(np.add(forward, backward)) * (1 - 1e-12)
    assert closed >= micro * max(np.add(forward, backward)) * (1 - 1e-12)
    assert closed <= played * 1.35
    assert played <= closed * 1.35 + 2 * send * micro * len(forward)


def test_interleaving_divides_the_bubble() -> None:
    assert bubble_s([3.0, 3.0, 3.0, 3.0]) == 9
    assert bubble_s([3.0, 3.0, 3.0, 3.0], interleave=3) == 3


def test_activations_in_flight() -> None:
    assert [in_flight(stage, 4) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(0, 4, micro_batches=2) == 2
    assert in_flight(0, 4, interleave=3) == 4 * (1 + 3 / 12)
