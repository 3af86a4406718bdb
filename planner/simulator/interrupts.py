"""Stopping simulations that do not run in the main thread, which alone is told of Ctrl-C.

The engine asks `check` every few hundredths of a second. Whoever runs simulations in threads of their own
gives them an event with `stoppable`; once it is set, they end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


def check() -> None:
    """Raise if this thread's simulations are to end."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise CancelledError("the simulation was stopped")


def stoppable(stop: threading.Event, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call `function`, ending its simulations once `stop` is set."""
    token = _stop.set(stop)
    try:
        check()
        return function(*args, **kwargs)
    finally:
        _stop.reset(token)
