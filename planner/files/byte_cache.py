"""What was made, kept: for good, or in a cache that counts bytes. Of values that differ in size a number of
entries says nothing about memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")
ENTRY_BYTES = 500  # of a key and its place


def once(known: dict[Hashable, Any], key: Hashable, make: Callable[[], V]) -> V:
    """What `make` gives, made once for each key. A pure function makes no difference to who asks first; two
    threads that ask at once both make it, and one is kept."""
    if key not in known:
        known[key] = make()
    found: V = known[key]
    return found


class ByteCache(Generic[V]):
    """Values by key. The one that nobody asked for longest goes first, so that all hold at most so many
    bytes; a value that is larger alone is not kept. `bytes_of` need not be exact. Two threads that ask for a
    key at once may both make its value; both get the same one."""

    def __init__(self, most_bytes: int, bytes_of: Callable[[V], int]) -> None:
        self.most_bytes = most_bytes
        self.bytes_of = bytes_of
        self.held_bytes = 0
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self._lock:
            if (known := self._values.get(key)) is not None:
                self._values.move_to_end(key)
                return known[0]
        value = make()
        size = self.bytes_of(value) + ENTRY_BYTES
        with self._lock:
            if (known := self._values.get(key)) is not None:
                return known[0]
            if size <= self.most_bytes:
                self._values[key] = value, size
                self.held_bytes += size
            while self.held_bytes > self.most_bytes:
                self.held_bytes -= self._values.popitem(last=False)[1][1]
        return value


def cached_by_bytes(
    most_bytes: int, bytes_of: Callable[[V], int]
) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """`lru_cache` for results that may hold so many bytes together."""

    def cached(function: Callable[P, V]) -> Callable[P, V]:
        cache = ByteCache(most_bytes, bytes_of)

        @wraps(function)
        def found(*args: P.args, **kwargs: P.kwargs) -> V:
            key = (args, tuple(kwargs.items()))
            return cache.get(key, lambda: function(*args, **kwargs))

        return found

    return cached
