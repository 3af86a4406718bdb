"""Simulations on a Dask cluster, and graceful failure when the cluster goes away.

Every task carries the sender's planner version, since workers may join at any time. A watch thread checks
every few seconds that workers are left. A lost cluster interrupts all waiting calls like Ctrl-C: known
results are returned with a warning, stored ones stay, and without any the reason is raised as an error.

`distributed` retries for long, waits forever on a silent port and reports failures in pages of logs. So a
plain socket checks first that a scheduler speaks, and then the workers' planner versions are compared.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import planner
from planner.errors import BadInput, ClusterWarning, Interrupted, PlannerError

T = TypeVar("T")
LOOK_S = 2.0  # between two looks at whether workers are left
GONE_S = 30.0  # without workers, or without an answer, until the cluster counts as lost: a nanny needs a few


class ClusterLost(Interrupted):
    """Raised from tasks of a lost cluster; handled like Ctrl-C."""


class OtherVersion(Exception):
    """Raised by a worker whose planner version differs from the sender's."""


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Context manager for an executor that runs tasks on the workers of a Dask scheduler."""
    security = check_reachable(address)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="distributed")
        restore = _silence_loggers()
        client = connect_client(address, security)
        with _close_on_exit(client):
            slots = count_slots(client, address)
            with _Cluster(client, address, slots) as pool:
                try:
                    with _explain_loss(pool):
                        yield pool
                finally:
                    if pool.lost is None:  # otherwise the client goes on trying for a while, and tells
                        restore()


@contextmanager
def _close_on_exit(client: Any) -> Iterator[None]:
    """Context manager that closes the client, even if the scheduler is gone."""
    try:
        yield
    finally:
        with suppress(Exception):  # a scheduler that is gone cannot be taken leave of
            client.close(timeout=LEAVE_S)


@contextmanager
def _explain_loss(pool: _Cluster) -> Iterator[None]:
    """Context manager that raises an error if the cluster was lost, or warns if the answer is complete."""
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
    """Dask's executor; once no usable worker is left, pending tasks raise `ClusterLost`."""

    def __init__(self, client: Any, address: str, slots: int) -> None:
        self.slots = slots
        self._client, self._address = client, address
        self._remote = client.get_executor(pure=False)
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self.lost: ClusterLost | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._watch_workers, daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submits a task; fails with `ClusterLost` if the cluster is gone."""
        ours: Future[T] = Future()
        with self._lock:
            if self.lost is not None:
                raise self.lost
            self._open.add(ours)
        theirs = self._remote.submit(_run_if_same_version, planner.__version__, partial(fn, *args, **kwargs))
        theirs.add_done_callback(partial(self._forward_result, ours))
        ours.add_done_callback(lambda item: theirs.cancel() if item.cancelled() else None)
        return ours

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancels pending tasks and stops watching the workers."""
        self._closed.set()
        with self._lock:
            open_ = list(self._open)
        for future in open_:
            future.cancel()

    def _forward_result(self, ours: Future[Any], theirs: Future[Any]) -> None:
        """Copies the result or error of a finished Dask task to our future."""
        if ours.cancelled() or self._closed.is_set():
            return
        error = CancelledError() if theirs.cancelled() else theirs.exception()
        why = None if error is None else _loss_reason(error)
        if why is not None:
            self._mark_lost(why)
            return
        with self._lock:
            self._open.discard(ours)
        if ours.set_running_or_notify_cancel():
            ours.set_exception(error) if error is not None else ours.set_result(theirs.result())

    def _mark_lost(self, why: str) -> None:
        """Marks the cluster lost and fails all pending tasks with `ClusterLost`."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = ClusterLost(f"the Dask cluster at {self._address} is lost: {why}")
            open_, self._open = list(self._open), set()
        for future in open_:
            if future.set_running_or_notify_cancel():
                future.set_exception(self.lost)

    def _watch_workers(self) -> None:
        """Polls for workers and marks the cluster lost after 30 seconds without any."""
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
                self._mark_lost(why)
                return


def _run_if_same_version(version: str, call: Callable[[], T]) -> T:
    """Runs a task on a worker; raises `OtherVersion` if its planner version differs from the sender's."""
    if version != planner.__version__:
        raise OtherVersion(f"a worker runs planner {planner.__version__}, this is {version}")
    return call()


def _loss_reason(error: BaseException) -> str | None:
    """Explains why an error means that the cluster is lost; None if it concerns the task alone."""
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


def _silence_loggers() -> Callable[[], None]:
    """Silences Dask's loggers and returns a function that restores them."""
    loggers = [
        logging.getLogger(name)
        for name in ("asyncio", *logging.root.manager.loggerDict)
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio")
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True

    def restore() -> None:
        """Restores the loggers' previous states."""
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled

    return restore


CONNECT_S = 10.0  # for the scheduler to answer
LEAVE_S = 2.0  # for it to be taken leave of
CERTIFICATES = (
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT",
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY",
)
VERSION = (
    "__import__('planner').__version__"  # text: a function of ours could not be read without the package
)


def check_reachable(address: str) -> Any:
    """Checks that a Dask scheduler answers at the address, and returns Dask's TLS settings."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise BadInput("--cluster needs Dask; install it with pip install 'dnn-planner[cluster]'") from error
    security = _tls_settings(address)
    _check_greeting(address, security)
    return security


def connect_client(address: str, security: Any) -> Any:
    """Connects to the scheduler and returns the Dask client."""
    from distributed import Client, __version__

    class PlannerClient(Client):  # type: ignore[misc]
        def __del__(self) -> None:  # of one that never was connected would wait for twice the timeout
            with suppress(Exception):
                self.close(timeout=LEAVE_S)

    try:
        return PlannerClient(address, timeout=CONNECT_S, set_as_default=False, security=security)
    except Exception as error:  # distributed raises many kinds: OSError, TimeoutError, ValueError
        said = first_line(error)
    raise BadInput(
        f"the Dask scheduler at {address} does not understand this distributed {__version__} ({said}); "
        "install the same version of distributed here and there"
    )


def count_slots(client: Any, address: str) -> int:
    """Number of simulations that all workers run at once; raises an error if a worker is unusable."""
    try:
        versions = client.run(eval, VERSION, on_error="return")
        slots = sum(client.nthreads().values())
    except Exception as error:
        raise BadInput(
            f"the Dask scheduler at {address} does not say who works ({first_line(error)})"
        ) from error
    if not versions:
        raise BadInput(
            f"the Dask scheduler at {address} has no workers; start some with `dask worker {address}`"
        )
    for worker, version in versions.items():
        if isinstance(version, Exception):
            raise BadInput(
                f"the worker {worker} cannot import planner ({first_line(version)}); install dnn-planner "
                f"{planner.__version__} there"
            )
        if version != planner.__version__:
            raise BadInput(
                f"the worker {worker} runs planner {version}, this is {planner.__version__}; "
                "install the same version on all"
            )
    return int(slots)


def _tls_settings(address: str) -> Any:
    """Checks the address and returns Dask's TLS settings for it."""
    from distributed.security import Security

    parts = urlsplit(address)
    try:
        whole = bool(parts.scheme and parts.hostname and parts.port)
    except ValueError:  # a port that is no number
        whole = False
    if not whole:
        raise BadInput(f"--cluster is {address!r}; write the scheduler's address as tcp://host:8786")
    if parts.scheme not in ("tcp", "tls"):
        raise BadInput(f"--cluster is {address!r}; schedulers are reached over tcp:// or tls://")
    security = Security()
    needed = (security.tls_ca_file, security.tls_client_cert)
    if parts.scheme == "tls" and None in needed:
        raise BadInput(f"{address} needs certificates; set {', '.join(CERTIFICATES)} to their files (PEM)")
    return security


def _check_greeting(address: str, security: Any) -> None:
    """Raises an error unless a Dask scheduler at the address sends its greeting."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CONNECT_S) as plain:
            door = _wrap_tls(plain, security, parts.hostname) if parts.scheme == "tls" else plain
            with door:
                first = door.recv(8)
    except TimeoutError:
        other = "" if parts.scheme == "tls" else " If it uses TLS, write tls://"
        raise BadInput(
            f"{address} says nothing within {CONNECT_S:g} s; is it a Dask scheduler?{other}"
        ) from None
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
        raise BadInput(
            f"no TLS connection to {address} ({why}); is the scheduler started with --tls-ca-file, "
            "--tls-cert and --tls-key, of the same certificate authority?"
        ) from None
    except OSError as error:  # refused, unreachable, unknown
        raise BadInput(
            f"no Dask scheduler answers at {address} ({error.strerror or error}); "
            "start one with `dask scheduler`"
        ) from None
    if len(first) < 8 or int.from_bytes(first, "little") >= 1 << 32:
        raise BadInput(f"what answers at {address} is no Dask scheduler; start one with `dask scheduler`")


def _wrap_tls(plain: socket.socket, security: Any, host: str | None) -> ssl.SSLSocket:
    """Socket with TLS under Dask's certificates; raises BadInput if they cannot be used."""
    try:
        context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise BadInput(
            f"the certificates in {', '.join(CERTIFICATES)} cannot be used ({error.strerror or error})"
        ) from None
    return context.wrap_socket(plain, server_hostname=host)


def first_line(error: BaseException) -> str:
    """First line of an error's message; the name of its type if it has none."""
    said = str(error).strip().splitlines()
    return said[0] if said else type(error).__name__
