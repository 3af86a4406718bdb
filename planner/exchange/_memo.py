"""What was made from a computation, kept as long as the computation lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from planner.computation import Computation

T = TypeVar("T")
_made: WeakKeyDictionary[Computation, dict[Hashable, Any]] = WeakKeyDictionary()


def once(computation: Computation, key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gives, made once for each computation and key. A pure function makes no difference to who
    asks first; two threads that ask at once both make it, and one is kept."""
    known = _made.setdefault(computation, {})
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found
