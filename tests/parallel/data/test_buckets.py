"""Buckets as DistributedDataParallel makes them."""

from __future__ import annotations

import numpy as np
import pytest

from planner.device.computation import BACKWARD, FORWARD, Computation, Parameter, chain_deps
from planner.parallel.data.ddp import bucket_gradients


def chain(sizes: list[int], seconds: float = 1.0) -> Computation:
    """Layers of so many elements, forward and backward one after another."""
    n = len(sizes)
    return Computation(
        model="chain",
        batch=1,
        names=tuple(f"{role}{at}" for role in "fb" for at in range(n)),
        role=np.array([FORWARD] * n + [BACKWARD] * n, np.uint8),
        layer=np.full(2 * n, -1, np.int32),
        layers=(),
        deps=chain_deps(2 * n),
        durations_s=np.full((1, 2 * n), seconds),
        parameters=tuple(
            Parameter(f"w{at}", size, (at,), 2 * n - 1 - at, at) for at, size in enumerate(sizes)
        ),
        optimizer_s=seconds / 2,
        blocks=tuple(f"layer{at}" for at in range(n)),
    )


def test_bucket_is_closed_by_the_gradient_that_fills_it() -> None:
    result = bucket_gradients(chain([10, 20, 30, 40]), cap_bytes=100, first_bytes=4, width=4)
    assert [match.bytes for match in result] == [160, 120, 120]
    assert [match.ready for match in result] == [4, 5, 7]
    assert [match.parameters for match in result] == [(3,), (2,), (1, 0)]


def test_all_gradients_are_in_one_bucket_each_once() -> None:
    result = bucket_gradients(chain([7] * 50), cap_bytes=100, first_bytes=30, width=4)
    assert sorted(at for match in result for at in match.parameters) == list(range(50))
    assert result[0].bytes == 56
    assert all(100 <= match.bytes < 100 + 28 for match in result[1:-1])


def test_without_rebuilding_the_small_bucket_comes_last() -> None:
    result = bucket_gradients(chain([10, 20, 30, 40]), cap_bytes=200, first_bytes=4, width=4, rebuilt=False)
    assert [match.parameters for match in result] == [(3,), (1, 2), (0,)]
    assert [match.ready for match in result] == [4, 6, 7]


def test_one_large_cap_makes_one_bucket() -> None:
    (only,) = bucket_gradients(chain([10, 20]), cap_bytes=10**12, first_bytes=10**12, width=4)
    assert (only.bytes, only.ready) == (120, 3)


@pytest.mark.parametrize("rebuilt", [True, False])
def test_bucket_is_never_ready_before_those_that_go_first(rebuilt: bool) -> None:
    result = bucket_gradients(
        chain([3, 50, 1, 9, 20]), cap_bytes=64, first_bytes=16, width=4, rebuilt=rebuilt
    )
    readies = [match.ready for match in result]
    assert readies == sorted(readies)
