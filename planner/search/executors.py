"""Where simulations run: threads by default (the engine releases the GIL), a Dask cluster, any executor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from planner.simulator.run import stoppable

T = TypeVar("T")


@contextmanager
def executor_of(
    executor: Executor | None = None, jobs: int | None = None, cluster: str | None = None
) -> Iterator[Executor]:
    """The given executor, left open; or that of the Dask scheduler at the address `cluster`; or a pool of
    threads that is closed at the end: what has not begun is dropped, what runs is stopped."""
    if executor is not None:
        yield executor
        return
    if cluster is not None:
        from planner.search.dask_cluster import dask_executor

        with dask_executor(cluster) as remote:
            yield remote
        return
    pool = _Threads(jobs or os.cpu_count() or 1)
    try:
        yield pool
    finally:
        pool.stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


class _Threads(ThreadPoolExecutor):
    """Threads whose simulations end when `stop` is set: after Ctrl-C nobody waits for them."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.stop = threading.Event()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(stoppable, self.stop, fn, *args, **kwargs)


def slots(executor: Executor) -> int:
    """How many simulations an executor runs at once, as far as it says."""
    known = getattr(executor, "slots", None) or getattr(executor, "_max_workers", None)
    return int(known or os.cpu_count() or 1)
