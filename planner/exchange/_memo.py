"""What was made from a computation, kept as long as the computation lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from planner.computation import Computation

T = TypeVar("T")
_made: WeakKeyDictionary[object, dict[Hashable, Any]] = WeakKeyDictionary()


def once(computation: Computation, key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gives, made once for each computation and key. A pure function makes no difference to who
    asks first; two threads that ask at once both make it, and one is kept."""
    return _once(computation, key, make)


def once_for_ops(computation: Computation, key: Hashable, make: Callable[[], T]) -> T:
    """The same for what depends on the ops and parameters alone and not on times: made once for all
    computations of one layout."""
    return _once(computation.layout or computation, key, make)


def _once(owner: object, key: Hashable, make: Callable[[], T]) -> T:
    known = _made.setdefault(owner, {})
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found
