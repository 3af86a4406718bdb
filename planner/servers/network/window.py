"""The HTTP/2 flow-control window WIN, inferred from one-worker profiles (Li et al., section 3.2.2).

A stream larger than WIN sends WIN bytes, waits for the other streams and then sends the rest; smaller ones
are not touched. So the recorded end times betray WIN wherever a transfer is larger than it: the candidate
whose reconstruction is nearest to them wins. Where no candidate beats sending every transfer whole, all that
is known is that WIN is not smaller than the largest transfer. The gRPC inside TensorFlow 2.21
starts at 4 MiB and grows with the bandwidth-delay product, so the window may differ from step to step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from planner.errors import BadInput
from planner.servers.network.transmissions import Stream, Wire, reconstruct, streams_of
from planner.simulator.step._profile import DOWNLINK, Profile

SMALLEST_BYTES = 16 * 2**10
PER_OCTAVE = 4
MAX_STEPS = 40


@dataclass(frozen=True, slots=True)
class WindowFit:
    """An inferred window. `window_bytes` is infinite if no preemption is seen; then WIN is at least
    `largest_bytes`. Errors are mean distances of end times, relative to the time the transfers took together.
    `step_windows_bytes` are the windows that fit single steps best: WIN moves with the connection."""

    window_bytes: float
    largest_bytes: int
    error: float
    error_without: float  # every transfer sent whole
    transfers: int
    steps: int
    step_windows_bytes: tuple[float, ...]

    @property
    def preempted_steps(self) -> int:
        return sum(window < inf for window in self.step_windows_bytes)


def infer_window(profiles: Iterable[Profile], wire: Wire, resource: int = DOWNLINK) -> WindowFit:
    """The window that explains the recorded end times best."""
    steps = [
        streams
        for profile in profiles
        for step in range(min(profile.steps, MAX_STEPS))
        if len(streams := streams_of(profile, step, resource)) > 1
    ]
    if not steps:
        raise BadInput("no step has two transfers in this direction; WIN shows only where transfers compete")
    largest = max(stream.bytes for streams in steps for stream in streams)
    octaves = max(int(np.ceil(np.log2(largest / SMALLEST_BYTES) * PER_OCTAVE)), 0)
    windows = [*(SMALLEST_BYTES * 2 ** (k / PER_OCTAVE) for k in range(octaves)), inf]
    errors = np.array(
        [[_error(streams, replace(wire, window_bytes=w)) for w in windows] for streams in steps]
    )
    # On a tie the larger window wins: preemption has to be seen to be believed.
    best = len(windows) - 1 - int(np.argmin(errors.mean(axis=0)[::-1]))
    by_step = [len(windows) - 1 - int(np.argmin(row[::-1])) for row in errors]
    return WindowFit(
        window_bytes=windows[best],
        largest_bytes=largest,
        error=float(errors[:, best].mean()),
        error_without=float(errors[:, -1].mean()),
        transfers=sum(len(streams) for streams in steps),
        steps=len(steps),
        step_windows_bytes=tuple(windows[k] for k in by_step),
    )


def _error(streams: Sequence[Stream], wire: Wire) -> float:
    """Mean distance of predicted and recorded ends, relative to the time that all transfers took."""
    busy_s = max(s.recorded_end_s for s in streams) - min(s.requested_s for s in streams)
    sent = [s for s in reconstruct(streams, wire) if not s.anchor]
    return sum(abs(s.end_s - s.stream.recorded_end_s) for s in sent) / (busy_s * len(sent))
