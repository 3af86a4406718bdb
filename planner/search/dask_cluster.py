"""Simulations on a Dask cluster, and what becomes of them when it goes away.

Every task says which version of planner it is of, as workers may join at any time. A watch looks every few
seconds whether anybody is left. When the cluster is lost, everything that waits for it is interrupted as by
Ctrl-C: what is known is returned with a warning that says why, what is stored stays, and where nothing is
known the reason is an error.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import planner
from planner.errors import ClusterWarning, Interrupted, PlannerError
from planner.search.dask_door import CONNECT_S, LEAVE_S, connected, first_line, judged, reachable

T = TypeVar("T")
LOOK_S = 2.0  # between two looks at whether workers are left
GONE_S = 30.0  # without workers, or without an answer, until the cluster counts as lost: a nanny needs a few


class ClusterLost(Interrupted):
    """Comes out of tasks whose cluster went away: an interruption, as Ctrl-C is."""


class OtherVersion(Exception):
    """Raised on a worker that runs another version of planner than the one that sent the task."""


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """An executor on the workers of the scheduler at an address."""
    security = reachable(address)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="distributed")
        restore = _silence()
        client = connected(address, security)
        with _closing(client):
            slots = judged(client, address)
            with _Cluster(client, address, slots) as pool:
                try:
                    with _explained(pool):
                        yield pool
                finally:
                    if pool.lost is None:  # otherwise the client goes on trying for a while, and tells
                        restore()


@contextmanager
def _closing(client: Any) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Exception):  # a scheduler that is gone cannot be taken leave of
            client.close(timeout=LEAVE_S)


@contextmanager
def _explained(pool: _Cluster) -> Iterator[None]:
    """Say why an answer is partial, or why there is none, if the cluster was lost."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if pool.lost is None:
            raise
        known = "" if isinstance(stop, ClusterLost) or not str(stop) else f"; {stop}"
        raise PlannerError(f"{pool.lost}{known}") from None
    if pool.lost is not None:
        warnings.warn(str(pool.lost), ClusterWarning, stacklevel=4)


class _Cluster(Executor):
    """Dask's own executor: it sends tasks to workers, and those of a worker that dies to another. When no one
    is left, or what comes back says that a worker is not fit, all that is open ends with `ClusterLost`."""

    def __init__(self, client: Any, address: str, slots: int) -> None:
        self.slots = slots
        self._client, self._address = client, address
        self._remote = client.get_executor(pure=False)
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self.lost: ClusterLost | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        ours: Future[T] = Future()
        with self._lock:
            if self.lost is not None:
                raise self.lost
            self._open.add(ours)
        theirs = self._remote.submit(_same_version, planner.__version__, partial(fn, *args, **kwargs))
        theirs.add_done_callback(partial(self._over, ours))
        ours.add_done_callback(lambda item: theirs.cancel() if item.cancelled() else None)
        return ours

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed.set()
        with self._lock:
            open_ = list(self._open)
        for future in open_:
            future.cancel()

    def _over(self, ours: Future[Any], theirs: Future[Any]) -> None:
        """Hand on what came of a task."""
        if ours.cancelled() or self._closed.is_set():
            return
        error = CancelledError() if theirs.cancelled() else theirs.exception()
        why = None if error is None else _loss(error)
        if why is not None:
            self._lose(why)
            return
        with self._lock:
            self._open.discard(ours)
        if ours.set_running_or_notify_cancel():
            ours.set_exception(error) if error is not None else ours.set_result(theirs.result())

    def _lose(self, why: str) -> None:
        with self._lock:
            if self.lost is not None:
                return
            self.lost = ClusterLost(f"the Dask cluster at {self._address} is lost: {why}")
            open_, self._open = list(self._open), set()
        for future in open_:
            if future.set_running_or_notify_cancel():
                future.set_exception(self.lost)

    def _watch(self) -> None:
        """Notice that nobody is left who could finish a task."""
        patience, why = GONE_S, ""
        while not self._closed.wait(LOOK_S):
            try:
                if self._client.sync(self._client.scheduler.ncores, callback_timeout=CONNECT_S):
                    patience = GONE_S
                    continue
                why = f"no worker was there for {GONE_S:g} s"
            except Exception:
                why = f"its scheduler said nothing for {GONE_S:g} s"
                patience -= CONNECT_S
            patience -= LOOK_S
            if patience <= 0:
                self._lose(why)
                return


def _same_version(version: str, call: Callable[[], T]) -> T:
    """On a worker: do a task, if it means the same here."""
    if version != planner.__version__:
        raise OtherVersion(f"a worker runs planner {planner.__version__}, this is {version}")
    return call()


def _loss(error: BaseException) -> str | None:
    """What an error of a task says of the cluster; None if it says something of the task."""
    from distributed import KilledWorker

    if isinstance(error, CancelledError):
        return "its scheduler is gone"
    if isinstance(error, KilledWorker):
        return "the workers that a simulation was sent to died, one after the other (memory?)"
    if isinstance(error, OtherVersion):
        return f"{error}; install the same version on all"
    if isinstance(error, ImportError | AttributeError) and "planner" in str(error):
        return f"a worker cannot import planner ({first_line(error)}); install the same version on all"
    return None


def _silence() -> Callable[[], None]:
    """Keep what Dask logs out of the way: what matters is said in a sentence of ours. Returns the undoing."""
    loggers = [
        logging.getLogger(name)
        for name in ("asyncio", *logging.root.manager.loggerDict)
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio")
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True

    def restore() -> None:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled

    return restore
