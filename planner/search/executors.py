"""Where simulations run: threads by default (the engine releases the GIL), or any other executor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def executor_of(executor: Executor | None = None, jobs: int | None = None) -> Iterator[Executor]:
    """The given executor, left open, or a pool of threads that is closed at the end without waiting for
    what has not begun."""
    if executor is not None:
        yield executor
        return
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
