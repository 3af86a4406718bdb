"""The one memoization mechanism: bounded by bytes, or kept on an owner."""

from __future__ import annotations

import gc
import weakref
from threading import Barrier, Thread

import numpy as np
import pytest

from planner.memoize import ENTRY_BYTES, approximate_bytes, first_argument, get_or_make_on, memoize


def counted(most_bytes: int):
    """A memoized function that makes so many bytes, and the keys that it was called with."""
    calls: list[str] = []

    @memoize(most_bytes=most_bytes, bytes_of=len)
    def make(key: str, size: int) -> bytes:
        calls.append(key)
        return bytes(size)

    return make, calls


def test_memoize_over_its_bytes_drops_the_oldest_first():
    make, calls = counted(3 * ENTRY_BYTES + 30)
    for key in "abcad":
        make(key, 10)
    assert calls == ["a", "b", "c", "d"]
    make("c", 10), make("d", 10), make("a", 10)
    assert calls == ["a", "b", "c", "d", "a"]
    assert make.held_bytes() == 3 * ENTRY_BYTES + 30


def test_memoize_large_value_replaces_several_and_a_larger_one_none():
    make, calls = counted(10 * ENTRY_BYTES)
    for key in "abcdefgh":
        make(key, 0)
    make("large", 5 * ENTRY_BYTES)
    assert make.held_bytes() == 10 * ENTRY_BYTES
    make("too large", 10 * ENTRY_BYTES), make("too large", 10 * ENTRY_BYTES)
    assert calls.count("too large") == 2
    make("h", 0)
    assert calls.count("h") == 1


def test_memoize_two_threads_at_once_get_one_value():
    both, result = Barrier(2), []

    @memoize
    def make() -> object:
        both.wait(10)  # until the other makes it too
        return object()

    threads = [Thread(target=lambda: result.append(make())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert result[0] is result[1] is make()
    assert make.held_bytes() == ENTRY_BYTES


def test_memoize_keeps_results_by_keyword():
    calls = []

    @memoize
    def scaled(size: int, *, times: int = 1) -> tuple[int, int]:
        calls.append((size, times))
        return size, times

    assert scaled(3) is scaled(3)
    assert scaled(3, times=2) is scaled(3, times=2)
    assert calls == [(3, 1), (3, 2)]


def test_memoize_keeps_no_failures():
    tries = []

    @memoize
    def fails(key: str) -> str:
        tries.append(key)
        raise KeyError(key)

    for _ in range(2):
        with pytest.raises(KeyError):
            fails("a")
    assert tries == ["a", "a"]


def test_memoize_by_key_ignores_what_the_key_leaves_out():
    @memoize(key=len)
    def first(words: list[str]) -> str:
        return words[0]

    assert first(["a", "b"]) == first(["c", "d"]) == "a"
    assert first(["c"]) == "c"


class Owner:
    pass


def test_memoize_on_an_owner_goes_with_it():
    calls: list[int] = []

    @memoize(on=first_argument)
    def made(owner: Owner, by: int = 1) -> list[object]:
        calls.append(by)
        return [owner, by]

    owner, other = Owner(), Owner()
    assert made(owner, 2) is made(owner, 2)
    assert made(other, 2) is not made(owner, 2)
    assert calls == [2, 2]
    assert get_or_make_on(owner, "key", lambda: 1) == get_or_make_on(owner, "key", lambda: 2) == 1
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_size_bytes_counts_arrays_and_containers():
    assert approximate_bytes(np.zeros(10)) == 80
    assert approximate_bytes("abc") == 3
    assert approximate_bytes((1, 2)) == 400
    assert approximate_bytes(1.0) == 0
