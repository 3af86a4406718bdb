"""Parse overhead: the time after a transfer's last byte until its tensor is ready.

Li et al. (throughput prediction of asynchronous SGD in TensorFlow), section 3.2.1: op.overhead = alpha *
op.size + beta, independent of the model, fitted once a kind of node. Two sources of data:
- a capture (tcpdump) of isolated transfers: recorded end minus arrival of the last packet, as the paper does;
- profiles: the transfers that had their link to themselves, recorded duration minus bytes / bandwidth. This
  includes the latency of the request and any error of the bandwidth; a capture is better.

The fit is a soft-L1 regression, for delays have outliers of 100 times the median, with errors taken as
proportional to the typical delay at that size, so that small transfers count. Neither constant is negative.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.files.tomlfile import convert, from_json
from planner.servers.network.transmissions import streams_of
from planner.simulator.step._profile import DOWNLINK, PS, UPLINK, WORKER, Op, OpRole, Profile
from planner.simulator.step.files import read_bytes

MIN_POINTS = 3


@dataclass(frozen=True, slots=True)
class Overhead:
    """A fitted overhead and how well it fits: errors are |fit - measured|, over all points."""

    alpha_s_per_byte: float
    beta_s: float
    points: int
    outliers: int  # more than five median errors away
    median_error_s: float
    median_relative_error: float
    source: str

    def seconds(self, size: float) -> float:
        return self.alpha_s_per_byte * size + self.beta_s


class Measurement(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a capture's table."""

    bytes: float
    overhead_s: float
    direction: str | None = None


def fit_overhead(sizes: npt.ArrayLike, delays_s: npt.ArrayLike, source: str = "") -> Overhead:
    """Fit alpha and beta to measured delays."""
    from scipy.optimize import least_squares

    x, y = np.asarray(sizes, float), np.asarray(delays_s, float)
    if len(x) < MIN_POINTS or np.ptp(x) == 0:
        raise BadInput(
            f"{len(x)} measurements of {len(np.unique(x))} sizes do not tell alpha from beta; give at least "
            f"{MIN_POINTS} of different sizes"
        )
    if not (np.isfinite(x) & np.isfinite(y) & (x >= 0)).all():
        raise BadInput("a measurement is not a finite number, or has a negative size")
    typical = np.array([np.median(np.abs(y[np.abs(x - size) <= 0.1 * size])) for size in x])
    typical = np.maximum(typical, 1e-6)
    scale = max(float(x.max()), 1.0)

    def residuals(theta: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
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
    """A table of isolated transfers: CSV with a header, or a JSON list of objects; `bytes`, `overhead_s` and,
    if both were measured, `direction`."""
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


def parsed_overhead(text: str) -> tuple[float, float]:
    """`1.6e-10,0.0003` as alpha and beta."""
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
    """(bytes, seconds beyond bytes / bandwidth) of the transfers that had their link to themselves."""
    out = []
    for step in range(profile.steps):
        streams = streams_of(profile, step, resource)
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


def with_parsing(profile: Profile, alpha_s_per_byte: float, beta_s: float) -> Profile:
    """The profile with a compute op after each transfer, on its receiver: what waited for the transfer now
    waits for it to be parsed. Recorded transfers lose that time."""
    ops: list[Op] = []
    place: dict[int, int] = {}
    parsers: list[tuple[int, int]] = []
    names = set(profile.names)
    for i in profile.topological_order().tolist():
        op = profile.op(i)
        op = replace(op, deps=tuple(place[dep] for dep in op.deps))
        place[i] = len(ops)
        ops.append(op)
        if op.resource in (DOWNLINK, UPLINK):
            name = f"{op.name}/parse"
            if name in names:
                raise BadInput(f"the profile has parse ops already ({name!r})")
            resource, server = (WORKER, -1) if op.resource == DOWNLINK else (PS, op.server)
            parsers.append((len(ops), i))
            ops.append(Op(name, resource, server, deps=(len(ops) - 1,), role=OpRole.PARSE))
            place[i] = len(ops) - 1
    own = {name: k for k, name in enumerate(profile.names)}
    columns = [own.get(op.name, -1) for op in ops]
    parse_s = np.zeros(len(ops))
    of_transfer = {}
    for at, i in parsers:
        parse_s[at] = alpha_s_per_byte * profile.bytes[i] + beta_s
        of_transfer[at - 1] = at
    durations = np.where(np.array(columns) >= 0, profile.durations_s[:, columns], parse_s)
    for transfer, at in of_transfer.items():
        durations[:, transfer] = np.maximum(durations[:, transfer] - parse_s[at], 0.0)

    def spread(
        table: npt.NDArray[np.float64] | npt.NDArray[np.int32] | None,
    ) -> npt.NDArray[np.float64] | None:
        return None if table is None else np.asarray(table[:, _filled(columns)], float)

    starts, order = spread(profile.starts_s), spread(profile.order)
    if starts is not None:
        for transfer, at in of_transfer.items():
            starts[:, at] = starts[:, transfer] + durations[:, transfer]
    ranks = None if order is None else order.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return profile.rebuilt(
        ops,
        durations,
        order=ranks,
        starts_s=starts,
        notes=(
            *profile.notes,
            f"parsing is an op after each transfer: {alpha_s_per_byte:.3g} s a byte and {beta_s:.3g} s",
        ),
    )


def _filled(columns: Sequence[int]) -> list[int]:
    """Columns where an added op takes those of the transfer before it."""
    out: list[int] = []
    for column in columns:
        out.append(column if column >= 0 else out[-1])
    return out
