"""The way to a Dask cluster: its address, its scheduler, its workers. Each failure is a sentence.

distributed tries again for long, waits forever for a port that says nothing, and tells of failures in pages.
So a plain socket knocks first: a scheduler speaks first. Then workers are asked for their version of planner,
and one task is tried.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import planner
from planner.errors import BadInput

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


def reachable(address: str) -> Any:
    """Dask's settings of certificates for a scheduler that answers at an address."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise BadInput("--cluster needs Dask; install it with pip install 'dnn-planner[cluster]'") from error
    security = _security(address)
    _knock(address, security)
    return security


def connected(address: str, security: Any) -> Any:
    """A client of the scheduler."""
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


def judged(client: Any, address: str) -> int:
    """How many simulations the workers run at once; refused if there are none or one is not fit."""
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
    _try_task(client, address)
    return int(slots)


def _try_task(client: Any, address: str) -> None:
    """Whether tasks arrive: releases of distributed and of numpy write them in different ways."""
    import numpy as np

    try:
        client.submit(len, np.zeros(1), pure=False).result(timeout=CONNECT_S)
    except TimeoutError:
        return  # busy with the work of others
    except Exception as error:
        said = first_line(error)
    else:
        return
    with suppress(Exception):
        versions = client.get_versions()
        here, there = versions["client"]["packages"], versions["scheduler"]["packages"]
        said = ", ".join(
            f"{name} {here[name]} here and {there.get(name)} there"
            for name in ("python", "distributed", "numpy")
            if here[name] != there.get(name)
        )
    raise BadInput(
        f"the Dask cluster at {address} cannot read tasks from here ({said}); "
        "install the same versions on all"
    )


def _security(address: str) -> Any:
    """Dask's own settings of certificates; an address that cannot be one is refused."""
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


def _knock(address: str, security: Any) -> None:
    """Whether something at the address speaks as a scheduler does: eight bytes that say how much follows."""
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CONNECT_S) as plain:
            door = _tls(plain, security, parts.hostname) if parts.scheme == "tls" else plain
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


def _tls(plain: socket.socket, security: Any, host: str | None) -> ssl.SSLSocket:
    try:
        context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise BadInput(
            f"the certificates in {', '.join(CERTIFICATES)} cannot be used ({error.strerror or error})"
        ) from None
    return context.wrap_socket(plain, server_hostname=host)


def first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return said[0] if said else type(error).__name__
