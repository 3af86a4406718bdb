"""What was made from a computation, kept on the computation itself: it goes when the computation goes, even
where it holds the computation that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from planner.device.computation import Computation
from planner.files import byte_cache

T = TypeVar("T")
P = ParamSpec("P")
OfComputation = Callable[Concatenate[Computation, P], T]
_PLACE = "_made"


def once(computation: Computation, key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gives, made once for each computation and key."""
    return _once(computation, key, make)


def once_for_ops(computation: Computation, key: Hashable, make: Callable[[], T]) -> T:
    """The same for what depends on the ops and parameters alone and not on times: made once for all
    computations of one layout."""
    return _once(computation.layout or computation, key, make)


def remembered(function: OfComputation[P, T], kept: Callable[..., Any] = once) -> OfComputation[P, T]:
    """A pure function of a computation and other values, whose results are kept on the computation."""

    @wraps(function)
    def found(computation: Computation, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (function, args, tuple(kwargs.items()))
        made: T = kept(computation, key, lambda: function(computation, *args, **kwargs))
        return made

    return found


def remembered_for_ops(function: OfComputation[P, T]) -> OfComputation[P, T]:
    """The same for what depends on the ops and parameters alone: kept for all computations of one layout."""
    return remembered(function, once_for_ops)


def _once(owner: object, key: Hashable, make: Callable[[], T]) -> T:
    return byte_cache.once(vars(owner).setdefault(_PLACE, {}), key, make)
