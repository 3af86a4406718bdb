"""Where simulations run: threads by default (the engine releases the GIL), a Dask cluster, any executor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import planner
from planner.errors import BadInput
from planner.simulator.interrupts import stoppable

T = TypeVar("T")
CONNECT_S = 10


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
        with _dask(cluster) as remote:
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


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Dask's own executor: it sends tasks to workers, and those of a worker that dies to another."""
    try:
        from distributed import Client
    except ImportError as error:
        raise BadInput("--cluster needs Dask; install it with pip install 'dnn-planner[cluster]'") from error
    if "://" not in address:
        raise BadInput(f"--cluster is {address!r}; write the scheduler's address as tcp://host:8786")
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except Exception as error:  # distributed raises many kinds: OSError, TimeoutError, ValueError
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(
            f"no Dask scheduler answers at {address} ({what}); start one with `dask scheduler`"
        ) from error
    with client:
        versions = client.run(_version)
        if not versions:
            raise BadInput(f"the Dask scheduler at {address} has no workers; start some with `dask worker`")
        for worker, version in versions.items():
            if version != planner.__version__:
                raise BadInput(
                    f"the worker {worker} runs planner {version}, this is {planner.__version__}; "
                    "install the same version on all"
                )
        remote = client.get_executor(pure=False)
        remote.slots = sum(client.ncores().values())
        yield remote


def slots(executor: Executor) -> int:
    """How many simulations an executor runs at once, as far as it says."""
    known = getattr(executor, "slots", None) or getattr(executor, "_max_workers", None)
    return int(known or os.cpu_count() or 1)


def _version() -> str:
    """The version of planner where this runs."""
    import planner

    return planner.__version__
