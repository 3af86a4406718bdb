"""Where simulations run: threads by default (the engine releases the GIL), a Dask cluster, any executor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import planner
from planner.errors import BadInput

CONNECT_S = 10


@contextmanager
def executor_of(
    executor: Executor | None = None, jobs: int | None = None, cluster: str | None = None
) -> Iterator[Executor]:
    """The given executor, left open; or that of the Dask scheduler at the address `cluster`; or a pool of
    threads that is closed at the end without waiting for what has not begun."""
    if executor is not None:
        yield executor
        return
    if cluster is not None:
        with _dask(cluster) as remote:
            yield remote
        return
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
