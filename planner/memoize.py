"""Memoization of pure functions: the one mechanism of the package.

`memoize` keeps results by their arguments, together at most so many bytes; what was kept first goes first.
`memoize(on=...)` keeps them on an owner, as long as it lives; `get_or_make` does the same for a key of the
caller's.
Two threads that ask for the same at once may both make it; both get the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar, overload

P = ParamSpec("P")
V = TypeVar("V")
ENTRY_BYTES = 500  # of a key, its place and a small value
MOST_BYTES = 4 << 20
_PLACE = "_memoized"


def approximate_bytes(value: Any) -> int:
    """Approximate size of a value in bytes."""
    if (array_bytes := getattr(value, "nbytes", None)) is not None:
        return int(array_bytes)
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, tuple | list | dict | frozenset | set):
        return 200 * len(value)
    fields = getattr(value, "__dataclass_fields__", ())
    return sum(approximate_bytes(part) for name in fields if _has_size(part := getattr(value, name)))


def _has_size(value: Any) -> bool:
    """Whether the size of a value can be measured."""
    return hasattr(value, "nbytes") or isinstance(value, str | bytes | tuple | list | dict)


@overload
def memoize(function: Callable[P, V], /) -> Callable[P, V]: ...
@overload
def memoize(
    *,
    most_bytes: int = MOST_BYTES,
    bytes_of: Callable[[Any], int] = approximate_bytes,
    key: Callable[..., Hashable] | None = None,
    on: Callable[[Any], object] | None = None,
) -> Callable[[Callable[P, V]], Callable[P, V]]: ...
def memoize(
    function: Any = None,
    /,
    *,
    most_bytes: int = MOST_BYTES,
    bytes_of: Callable[[Any], int] = approximate_bytes,
    key: Callable[..., Hashable] | None = None,
    on: Callable[[Any], object] | None = None,
) -> Any:
    """Decorator that caches a function's results, in bounded memory or on an object.

    `bytes_of` gives the size of a result, `key` what it depends on; with `on`, results are kept on the object
    that `on` returns for the first argument.
    """
    if function is not None:
        return _memoize_bounded(function, most_bytes, bytes_of, key)
    if on is not None:
        return lambda function: _memoize_on_owner(function, on)
    return lambda function: _memoize_bounded(function, most_bytes, bytes_of, key)


def first_argument(owner: Any) -> object:
    """Identity function: `memoize(on=first_argument)` keeps results on the first argument."""
    return owner


def get_or_make(values: dict[Hashable, Any], key: Hashable, make: Callable[[], V]) -> V:
    """Value stored under a key; on first use `make` computes it."""
    if key not in values:
        values[key] = make()
    value: V = values[key]
    return value


def get_or_make_on(owner: object, key: Hashable, make: Callable[[], V]) -> V:
    """Value stored under a key on the owner; on first use `make` computes it."""
    return get_or_make(vars(owner).setdefault(_PLACE, {}), key, make)


def _memoize_on_owner(function: Callable[..., V], on: Callable[[Any], object]) -> Callable[..., V]:
    """Caches results on the object that `on` returns for the first argument."""

    @wraps(function)
    def memoized(first: Any, /, *args: Any, **kwargs: Any) -> V:
        """Returns the cached result or computes it."""
        key = (function, args, tuple(kwargs.items()))
        return get_or_make_on(on(first), key, lambda: function(first, *args, **kwargs))

    return memoized


def _memoize_bounded(
    function: Callable[..., V],
    most_bytes: int,
    bytes_of: Callable[[Any], int],
    key: Callable[..., Hashable] | None,
) -> Callable[..., V]:
    """Caches results in a bounded number of bytes; the oldest ones are dropped first."""
    values: dict[Hashable, V] = {}
    sizes: dict[Hashable, int] = {}
    lock = Lock()
    held_bytes = 0

    @wraps(function)
    def memoized(*args: Any, **kwargs: Any) -> V:
        """Returns the cached result or computes it."""
        nonlocal held_bytes
        place: Hashable = args
        if key is not None:
            place = key(*args, **kwargs)
        elif kwargs:
            place = (args, tuple(kwargs.items()))
        try:
            return values[place]
        except KeyError:
            pass
        value = function(*args, **kwargs)
        size = bytes_of(value) + ENTRY_BYTES
        with lock:
            if place in values:
                return values[place]
            if size <= most_bytes:
                values[place], sizes[place] = value, size
                held_bytes += size
            while held_bytes > most_bytes:
                oldest = next(iter(values))
                held_bytes -= sizes.pop(oldest)
                del values[oldest]
        return value

    memoized.held_bytes = lambda: held_bytes  # type: ignore[attr-defined]
    return memoized
