"""The canonical computations of Yan et al. (KDD 2015), Figure 5, timed; one JSON line a measurement.

Run as a program, with the linear algebra library held to one thread by its environment: threads here are the
paper's, each with a sample of its own. A training step of a fully connected layer is a product with the
matrix, one with its transpose, and an update by an outer product: `muladd` is the mean time of one
multiply-add over the three. Matrix-matrix products stand for layers whose weights are used many times.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

_LEAST_S = 0.15  # a timing lasts at least so long
_REPEATS = 3  # the fastest of so many counts
_BLOCK_ROWS = 512
_VALUES = 16_384  # of an elementwise operation


def _seconds_per_threaded_call(make_call: Callable[[int], Callable[[], object]], threads: int) -> float:
    """Seconds per call when all threads call at the same time, each on its own data."""
    work = [make_call(index) for index in range(threads)]
    for call in work:
        call()
    start = time.perf_counter()
    work[0]()
    calls = max(1, int(_LEAST_S / max(time.perf_counter() - start, 1e-7)))

    def repeat_call(call: Callable[[], object]) -> None:
        """Makes the calls of one thread."""
        for _ in range(calls):
            call()

    best = float("inf")
    for _ in range(_REPEATS):
        crew = [threading.Thread(target=repeat_call, args=(call,)) for call in work]
        start = time.perf_counter()
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def _make_training_step(size: int, index: int) -> Callable[[], object]:
    """Returns a function that runs one training step of a fully connected layer."""
    rng = np.random.default_rng(index)
    weights = rng.random((size, size), dtype=np.float32)
    activations = rng.random(size, dtype=np.float32)
    errors = rng.random(size, dtype=np.float32) * np.float32(1e-6)
    change = np.empty((min(size, _BLOCK_ROWS), size), np.float32)

    def step() -> None:
        """Runs forward, backward and update of the layer."""
        weights @ activations
        errors @ weights
        for at in range(0, size, len(change)):  # in blocks, so that the change stays in cache
            block = weights[at : at + len(change)]
            part = change[: len(block)]
            np.multiply(errors[at : at + len(part), None], activations, out=part)
            np.add(block, part, out=block)

    return step


def _make_matrix_product(size: int, index: int) -> Callable[[], object]:
    """Returns a function that multiplies two square matrices."""
    rng = np.random.default_rng(index)
    a, b = (rng.random((size, size), dtype=np.float32) for _ in range(2))
    return partial(np.matmul, a, b, out=np.empty((size, size), np.float32))


def _make_copy(size: int, index: int) -> Callable[[], object]:
    """Returns a function that copies a square matrix."""
    source = np.ones((size, size), np.float32)
    return partial(np.copyto, np.empty_like(source), source)


def _make_elementwise(formula: Callable[[np.ndarray], object], index: int) -> Callable[[], object]:
    """Returns a function that applies an elementwise formula to a vector."""
    return partial(formula, np.random.default_rng(0).random(_VALUES, dtype=np.float32))


def measure(cache_bytes: int, counts: list[int]) -> None:
    """Runs all measurements and prints, as JSON lines, their number and then each result."""
    most = max(counts)
    inside = int(max(64, min(512, (cache_bytes / (2 * most) / 4) ** 0.5)))
    jobs: list[tuple[str, int, float, Callable[[int], Callable[[], object]]]] = []
    for threads in counts:
        # the matrices of all threads take four times the cache
        outside = int(max(1024, (4 * cache_bytes / 4 / threads) ** 0.5))
        jobs.append(("muladd", threads, 3.0 * inside**2, partial(_make_training_step, inside)))
        jobs.append(("muladd_out_of_cache", threads, 3.0 * outside**2, partial(_make_training_step, outside)))
    product = partial(_make_matrix_product, 256)
    jobs += [("matrix", 1, 256.0**3, product), ("matrix", most, 256.0**3, product)]
    jobs.append(("matrix_out_of_cache", most, outside**3 / 8, partial(_make_matrix_product, outside // 2)))
    jobs.append(("act", 1, float(_VALUES), partial(_make_elementwise, lambda x: 1 / (1 + np.exp(-x)))))
    jobs.append(("err", 1, float(_VALUES), partial(_make_elementwise, lambda x: x * (1 - x))))
    jobs.append(("copy", most, 4.0 * outside * outside, partial(_make_copy, outside)))
    print(json.dumps({"measurements": len(jobs)}), flush=True)
    for name, threads, operations, make_call in jobs:
        seconds = _seconds_per_threaded_call(make_call, threads) / operations
        print(json.dumps({"name": name, "threads": threads, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    measure(int(sys.argv[1]), [int(text) for text in sys.argv[2].split(",")])
