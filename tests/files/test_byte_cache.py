"""The cache that counts bytes."""

from __future__ import annotations

from threading import Barrier, Thread

from planner.files.byte_cache import ENTRY_BYTES, ByteCache, cached_by_bytes


def made(kept: ByteCache[bytes], key: str, size: int) -> bool:
    """Whether the value had to be made."""
    calls: list[str] = []

    def make() -> bytes:
        calls.append(key)
        return bytes(size)

    assert len(kept.get(key, make)) == size
    return bool(calls)


def test_what_nobody_asked_for_longest_goes_first() -> None:
    kept: ByteCache[bytes] = ByteCache(3 * ENTRY_BYTES + 30, len)
    assert [made(kept, key, 10) for key in "abc"] == [True, True, True]
    assert not made(kept, "a", 10)
    assert made(kept, "d", 10)
    assert [made(kept, key, 10) for key in "acd"] == [False, False, False]
    assert made(kept, "b", 10)
    assert len(kept) == 3


def test_a_large_value_takes_the_place_of_several_and_a_larger_one_of_none() -> None:
    kept: ByteCache[bytes] = ByteCache(10 * ENTRY_BYTES, len)
    for key in "abcdefgh":
        made(kept, key, 0)
    made(kept, "large", 5 * ENTRY_BYTES)
    assert len(kept) == 5
    assert kept.held_bytes == 10 * ENTRY_BYTES
    assert made(kept, "too large", 10 * ENTRY_BYTES)
    assert made(kept, "too large", 10 * ENTRY_BYTES)
    assert len(kept) == 5


def test_two_threads_that_ask_at_once_get_one_value() -> None:
    kept: ByteCache[object] = ByteCache(1 << 20, lambda _: 0)
    both = Barrier(2)
    found: list[object] = []

    def make() -> object:
        both.wait(10)  # until the other makes it too
        return object()

    threads = [Thread(target=lambda: found.append(kept.get("key", make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found[0] is found[1]
    assert kept.held_bytes == ENTRY_BYTES


def test_a_function_is_asked_once_for_the_same_arguments() -> None:
    calls: list[tuple[int, int]] = []

    @cached_by_bytes(1000 * ENTRY_BYTES, len)
    def made_of(size: int, *, times: int = 1) -> bytes:
        calls.append((size, times))
        return bytes(size * times)

    assert made_of(3) is made_of(3)
    assert made_of(3, times=2) is made_of(3, times=2)
    assert calls == [(3, 1), (3, 2)]
