"""Fits of what recorded transfers reveal: parse overhead and HTTP/2 window (`planner calibrate`).

Parse overhead is the time after a transfer's last byte until its tensor is ready (Li et al., section 3.2.1):
overhead = alpha * bytes + beta, independent of the model, fitted once per kind of node. Two sources of data:
- a capture (tcpdump) of isolated transfers: recorded end minus arrival of the last packet, as the paper does;
- profiles: the transfers that had their link to themselves, recorded duration minus bytes / bandwidth. This
  includes the latency of the request and any error of the bandwidth; a capture is better.
The fit is a soft-L1 regression, for delays have outliers of 100 times the median, with errors taken as
proportional to the typical delay at that size, so that small transfers count. Neither constant is negative.

The flow-control window WIN is inferred from one-worker profiles (Li et al., section 3.2.2). A stream larger
than WIN sends WIN bytes, waits for the other streams and then sends the rest. So the recorded end times
betray WIN wherever a transfer is larger: the candidate whose reconstruction is nearest to them wins. Where no
candidate beats sending every transfer whole, WIN is not smaller than the largest transfer. The gRPC inside
TensorFlow 2.21 starts at 4 MiB and grows with the bandwidth-delay product, so WIN may differ between steps.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from planner.device.recorded.importers import RUN_METADATA, detect_trace_kind, import_profile
from planner.errors import BadInput
from planner.files.regular_file import read_bytes
from planner.files.tomlfile import convert, from_json
from planner.report.page import Table, columns_of
from planner.servers.transmissions import Stream, Wire, reconstruct, recorded_streams
from planner.simulator.step import DOWNLINK, UPLINK, Profile
from planner.simulator.step.files import FORMAT, decode

MIN_POINTS = 3
LARGEST_BYTES = 1e15
LONGEST_S = 1e6


@dataclass(frozen=True, slots=True)
class Overhead:
    """Fitted parse overhead, alpha * bytes + beta; errors are |fit - measured| over all points."""

    alpha_s_per_byte: float
    beta_s: float
    points: int
    outliers: int  # more than five median errors away
    median_error_s: float
    median_relative_error: float
    source: str


class Measurement(msgspec.Struct, forbid_unknown_fields=True):
    """One row of a table of captured transfers."""

    bytes: float
    overhead_s: float
    direction: str | None = None


def fit_overhead(sizes: npt.ArrayLike, delays_s: npt.ArrayLike, source: str = "") -> Overhead:
    """Fits alpha (seconds per byte) and beta (seconds) to measured parse delays by soft-L1 regression."""
    from scipy.optimize import least_squares

    x, y = np.asarray(sizes, float), np.asarray(delays_s, float)
    if not ((x >= 0) & (x <= LARGEST_BYTES) & (np.abs(y) <= LONGEST_S)).all():  # false for nan, too
        raise BadInput(
            f"a measurement is out of range: sizes are 0 to {LARGEST_BYTES:.0e} bytes, delays up to "
            f"{LONGEST_S:.0e} s"
        )
    if len(x) < MIN_POINTS or np.ptp(x) == 0:
        raise BadInput(
            f"{len(x)} measurements of {len(np.unique(x))} sizes do not tell alpha from beta; give at least "
            f"{MIN_POINTS} of different sizes"
        )
    typical = np.array([np.median(np.abs(y[np.abs(x - size) <= 0.1 * size])) for size in x])
    typical = np.maximum(typical, 1e-6)
    scale = max(float(x.max()), 1.0)

    def residuals(theta: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scaled residuals of the linear fit, as input for scipy's least_squares."""
        return np.asarray((theta[0] * x / scale + theta[1] - y) / typical)

    start = [max(float(np.median(y[x >= np.median(x)])), 1e-9), max(float(np.median(y)), 1e-9)]
    result = least_squares(
        residuals,
        start,
        bounds=([0, 0], [np.inf, np.inf]),
        loss="soft_l1",
        f_scale=0.2,
        x_scale=typical.min(),
    )
    alpha, beta = float(result.x[0] / scale), float(result.x[1])
    errors = np.abs(alpha * x + beta - y)
    return Overhead(
        alpha,
        beta,
        len(x),
        int((errors > 5 * max(float(np.median(errors)), 1e-12)).sum()),
        float(np.median(errors)),
        float(np.median(errors / np.maximum(np.abs(y), 1e-9))),
        source,
    )


def read_measurements(path: Path | str) -> list[Measurement]:
    """Reads a table of isolated transfers: CSV with a header, or a JSON list of objects."""
    data = read_bytes(path)
    try:
        if data.lstrip()[:1] == b"[":
            return from_json(data, list[Measurement])
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        return convert(rows, list[Measurement], strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"{path}: no trace, no profile, and no table with the columns bytes and overhead_s ({error})"
        ) from error


def parse_overhead(text: str) -> tuple[float, float]:
    """Parses text such as `1.6e-10,0.0003` into alpha (seconds per byte) and beta (seconds)."""
    try:
        alpha, beta = (float(part) for part in text.split(","))
        if 0 <= alpha < 1 and 0 <= beta < 3600:
            return alpha, beta
    except ValueError:
        pass
    raise BadInput(
        f"overhead {text!r} is not understood; write seconds a byte and seconds, as 1.6e-10,0.0003 "
        "(`planner calibrate overhead` fits them)"
    )


def isolated_delays(
    profile: Profile, bandwidth_bytes_per_s: float, resource: int = DOWNLINK
) -> list[tuple[int, float]]:
    """Overheads of transfers that ran alone, as pairs (bytes, seconds in addition to bytes / bandwidth)."""
    out = []
    for step in range(profile.steps):
        streams = recorded_streams(profile, step, resource)
        for stream in streams:
            alone = all(
                other is stream
                or other.server != stream.server
                or other.recorded_end_s < stream.requested_s
                or other.requested_s > stream.recorded_end_s
                for other in streams
            )
            if alone:
                took_s = stream.recorded_end_s - stream.requested_s
                out.append((stream.bytes, took_s - stream.bytes / bandwidth_bytes_per_s))
    return out


SMALLEST_BYTES = 16 * 2**10
PER_OCTAVE = 4
MAX_STEPS = 40


@dataclass(frozen=True, slots=True)
class WindowFit:
    """Inferred HTTP/2 flow-control window (WIN); infinite if no transfer preempted another.

    Without preemption WIN is at least `largest_bytes`. Errors are mean distances of end times relative to the
    time the transfers took together. `step_windows_bytes` are the windows that fit single steps best: WIN
    moves with the connection.
    """

    window_bytes: float
    largest_bytes: int
    error: float
    error_without: float  # every transfer sent whole
    transfers: int
    steps: int
    step_windows_bytes: tuple[float, ...]


def infer_window(profiles: Iterable[Profile], wire: Wire, resource: int = DOWNLINK) -> WindowFit:
    """Infers the HTTP/2 flow-control window whose simulated transfers end closest to the recorded times."""
    steps = [
        streams
        for profile in profiles
        for step in range(min(profile.steps, MAX_STEPS))
        if len(streams := recorded_streams(profile, step, resource)) > 1
    ]
    if not steps:
        raise BadInput("no step has two transfers in this direction; WIN shows only where transfers compete")
    largest = max(stream.bytes for streams in steps for stream in streams)
    octaves = max(int(np.ceil(np.log2(largest / SMALLEST_BYTES) * PER_OCTAVE)), 0)
    windows = [*(SMALLEST_BYTES * 2 ** (k / PER_OCTAVE) for k in range(octaves)), inf]
    errors = np.array(
        [[_relative_error(streams, replace(wire, window_bytes=w)) for w in windows] for streams in steps]
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


def _relative_error(streams: Sequence[Stream], wire: Wire) -> float:
    """Mean error of predicted end times, relative to the time that all transfers took."""
    busy_s = max(s.recorded_end_s for s in streams) - min(s.requested_s for s in streams)
    sent = [s for s in reconstruct(streams, wire) if not s.anchor]
    if not sent or busy_s <= 0:  # every transfer stands where it was recorded
        return 0.0
    return sum(abs(s.end_s - s.stream.recorded_end_s) for s in sent) / (busy_s * len(sent))


DIRECTIONS = {"downlink": DOWNLINK, "uplink": UPLINK}


def load_profiles(paths: Sequence[Path | str]) -> list[Profile]:
    """Loads profile files, and all RunMetadata files as the steps of one more profile."""
    profiles: list[Profile] = []
    traces: list[Path | str] = []
    for path in paths:
        data = read_bytes(path)
        if FORMAT.encode() in data[:4096]:
            profiles.append(decode(data, str(path)))
        elif detect_trace_kind(data, str(path)) == RUN_METADATA:
            traces.append(path)
        else:
            raise BadInput(
                f"{path}: recorded transfers are needed; give a TensorFlow RunMetadata or a profile of one"
            )
    if traces:
        profiles.append(import_profile(traces, batch=1))
    return profiles


def calibrate_window(
    paths: Sequence[Path | str],
    bandwidth_bytes_per_s: float | None = None,
    *,
    alpha_s_per_byte: float = 0.0,
    beta_s: float = 0.0,
) -> dict[str, WindowFit]:
    """Infers the flow-control window per direction from one-worker profiles or RunMetadata files."""
    profiles = load_profiles(paths)
    wire = Wire(_bandwidth_or_recorded(profiles, bandwidth_bytes_per_s), inf, 0.0, alpha_s_per_byte, beta_s)
    fits = {}
    for name, resource in DIRECTIONS.items():
        having = [profile for profile in profiles if (profile.resource == resource).sum() > 1]
        if having:
            fits[name] = infer_window(having, wire, resource)
    if not fits:
        raise BadInput("the files hold no direction with two transfers in a step")
    return fits


def calibrate_overhead(
    paths: Sequence[Path | str], bandwidth_bytes_per_s: float | None = None
) -> dict[str, Overhead]:
    """Fits parse overhead per direction to captured transfers or profiles."""
    points: dict[str, list[tuple[float, float]]] = {}
    source = "capture"
    for path in paths:
        data = read_bytes(path)
        if data.lstrip()[:1] == b"[" or b"overhead_s" in data[:4096]:
            for row in read_measurements(path):
                points.setdefault(row.direction or "both", []).append((row.bytes, row.overhead_s))
            continue
        source = "isolated transfers of profiles"
        for profile in load_profiles([path]):
            bandwidth = _bandwidth_or_recorded([profile], bandwidth_bytes_per_s)
            for name, resource in DIRECTIONS.items():
                points.setdefault(name, []).extend(isolated_delays(profile, bandwidth, resource))
    enough = {name: rows for name, rows in points.items() if len({size for size, _ in rows}) > 1}
    if not enough:
        raise BadInput(
            "no transfers of different sizes had their link to themselves; give a table of isolated "
            "transfers with the columns bytes and overhead_s (docs/recording.md tells how to make one)"
        )
    return {
        name: fit_overhead([size for size, _ in rows], [delay for _, delay in rows], source)
        for name, rows in enough.items()
    }


def _bandwidth_or_recorded(profiles: Sequence[Profile], bandwidth_bytes_per_s: float | None) -> float:
    """Given or else recorded bandwidth in bytes per second; raises BadInput if neither is known."""
    if bandwidth_bytes_per_s is not None:
        return bandwidth_bytes_per_s
    known = {profile.bandwidth_bytes_per_s for profile in profiles}
    if len(known) != 1 or None in known:
        raise BadInput(
            "the files do not say the bandwidth while they were recorded; give it with --bandwidth"
        )
    return float(next(iter(known)) or 0.0)


def overhead_table(fits: dict[str, Overhead]) -> Table:
    """Report table of fitted parse overheads, one row per direction."""
    columns = columns_of("parse_overheads", show={"alpha_s_per_byte": lambda v: f"{v * 1e12:.1f}"})
    rows = [{"direction": name, **asdict(fit)} for name, fit in fits.items()]
    return Table(rows, columns, "parse overhead = alpha * bytes + beta")


def window_table(fits: dict[str, WindowFit]) -> Table:
    """Report table of inferred flow-control windows, one row per direction."""
    rows: list[dict[str, Any]] = []
    for name, fit in fits.items():
        seen = sorted(round(window) for window in fit.step_windows_bytes if window < inf)
        preempts = fit.window_bytes < inf
        rows.append(
            {
                "direction": name,
                "window_bytes": round(fit.window_bytes) if preempts else None,
                "at_least_bytes": None if preempts else fit.largest_bytes,
                "error": fit.error,
                "error_without": fit.error_without,
                "steps": fit.steps,
                "preempted_steps": len(seen),
                "step_window_low_bytes": seen[0] if seen else None,
                "step_window_high_bytes": seen[-1] if seen else None,
                "transfers": fit.transfers,
            }
        )
    notes = ["error: mean distance of end times, relative to the time that a step's transfers took together"]
    if any(row["window_bytes"] is None for row in rows):
        notes.append("no preemption is seen where WIN is '-': it is not smaller than the largest transfer")
    if any(row["error"] > 0.05 for row in rows):
        notes.append("the error is large: is the bandwidth right, and was there one worker only?")
    return Table(rows, columns_of("windows"), "HTTP/2 flow-control window", notes)
