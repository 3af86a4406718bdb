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

import numpy as np

_LEAST_S = 0.15  # a timing lasts at least so long
_REPEATS = 3  # the fastest of so many counts
_BLOCK_ROWS = 512


def _timed(make: Callable[[int], Callable[[], object]], threads: int) -> float:
    """Seconds of one call when `threads` threads call at once, each with data of its own."""
    work = [make(index) for index in range(threads)]
    for call in work:
        call()
    start = time.perf_counter()
    work[0]()
    calls = max(1, int(_LEAST_S / max(time.perf_counter() - start, 1e-7)))

    def loop(call: Callable[[], object]) -> None:
        for _ in range(calls):
            call()

    best = float("inf")
    for _ in range(_REPEATS):
        crew = [threading.Thread(target=loop, args=(call,)) for call in work]
        start = time.perf_counter()
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def _training_step(size: int) -> Callable[[int], Callable[[], object]]:
    def make(index: int) -> Callable[[], object]:
        rng = np.random.default_rng(index)
        weights = rng.random((size, size), dtype=np.float32)
        activations = rng.random(size, dtype=np.float32)
        errors = rng.random(size, dtype=np.float32) * np.float32(1e-6)
        change = np.empty((min(size, _BLOCK_ROWS), size), np.float32)

        def step() -> None:
            weights @ activations
            errors @ weights
            for at in range(0, size, len(change)):  # in blocks, so that the change stays in cache
                part = change[: len(weights[at : at + len(change)])]
                np.multiply(errors[at : at + len(part), None], activations, out=part)
                block = weights[at : at + len(part)]
                np.add(block, part, out=block)

        return step

    return make


def _matrix_product(size: int) -> Callable[[int], Callable[[], object]]:
    def make(index: int) -> Callable[[], object]:
        rng = np.random.default_rng(index)
        a, b = (rng.random((size, size), dtype=np.float32) for _ in range(2))
        out = np.empty((size, size), np.float32)
        return lambda: np.matmul(a, b, out=out)

    return make


def _elementwise(formula: Callable[[np.ndarray], object]) -> Callable[[int], Callable[[], object]]:
    values = np.random.default_rng(0).random(16_384, dtype=np.float32)
    return lambda index: lambda: formula(values)


def measure(cache_bytes: int, counts: list[int]) -> None:
    """Print every measurement as it is made; the first line says how many there will be."""
    most = max(counts)
    inside = int(max(64, min(512, (cache_bytes / (2 * most) / 4) ** 0.5)))
    jobs: list[tuple[str, int, float, Callable[[int], Callable[[], object]]]] = []
    for threads in counts:
        outside = _out_of_cache(cache_bytes, threads)
        jobs.append(("muladd", threads, 3.0 * inside**2, _training_step(inside)))
        jobs.append(("muladd_out_of_cache", threads, 3.0 * outside**2, _training_step(outside)))
    jobs.append(("matrix", 1, float(256**3), _matrix_product(256)))
    jobs.append(("matrix", most, float(256**3), _matrix_product(256)))
    jobs.append(("matrix_out_of_cache", most, float(outside**3) / 8, _matrix_product(outside // 2)))
    jobs.append(("act", 1, 16_384.0, _elementwise(lambda x: 1 / (1 + np.exp(-x)))))
    jobs.append(("err", 1, 16_384.0, _elementwise(lambda x: x * (1 - x))))
    jobs.append(("copy", most, 4.0 * outside * outside, _copy(outside)))
    print(json.dumps({"measurements": len(jobs)}), flush=True)
    for name, threads, operations, make in jobs:
        seconds = _timed(make, threads) / operations
        print(json.dumps({"name": name, "threads": threads, "seconds": seconds}), flush=True)


def _out_of_cache(cache_bytes: int, threads: int) -> int:
    """The side of a matrix that with those of the other threads takes four times the cache."""
    return int(max(1024, (4 * cache_bytes / 4 / threads) ** 0.5))


def _copy(size: int) -> Callable[[int], Callable[[], object]]:
    def make(index: int) -> Callable[[], object]:
        source = np.ones((size, size), np.float32)
        out = np.empty_like(source)
        return lambda: np.copyto(out, source)

    return make


if __name__ == "__main__":
    measure(int(sys.argv[1]), [int(text) for text in sys.argv[2].split(",")])
