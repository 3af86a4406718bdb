"""The random numbers of a run: SplitMix64, one stream for each (seed, run, worker).

SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): the state grows
by a constant and a finalizer scrambles it. The engine has the same few lines in C++, so both draw the same.
A worker's stream is drawn from at the start of each of its steps only, in this order: which measured step
it is; if the profile has no order, a shuffle of its transfers; if shares are uneven, a normal number for each
flow that has a weight (with several servers downloads by server; then uploads by server).
So what a worker draws depends on nothing that other workers do.
"""

from __future__ import annotations

import math
from collections.abc import MutableSequence
from typing import Any

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(value: int) -> int:
    """SplitMix64's output for the state `value + golden`."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Generator:
    """The stream of one worker in one run."""

    def __init__(self, seed: int, run: int, worker: int) -> None:
        self.state = mix((mix((mix(seed & _MASK) + run) & _MASK) + worker) & _MASK)

    def next(self) -> int:
        """64 random bits."""
        value = mix(self.state)
        self.state = (self.state + _GOLDEN) & _MASK
        return value

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1 (n < 2**32; the bias is below n / 2**32)."""
        return ((self.next() >> 32) * n) >> 32

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Fisher and Yates, from the last item down."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def normal(self) -> float:
        """Box and Muller, the cosine half."""
        u = ((self.next() >> 11) + 1) * 2.0**-53
        v = (self.next() >> 11) * 2.0**-53
        return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)

    def weight(self, sigma: float) -> float:
        """Log-normal, from 2**-20 to 2**20 in whole multiples of 2**-20: sums are exact in any order."""
        scaled = math.floor(math.exp(sigma * self.normal()) * 2.0**20 + 0.5)
        return min(max(scaled, 1), 2**40) * 2.0**-20
