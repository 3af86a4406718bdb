"""`planner calibrate overhead` and `planner calibrate window` as functions: files in, fits out."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

from planner.device.recorded.importers import RUN_METADATA, import_profile, kind_of
from planner.errors import BadInput
from planner.servers.network.overhead import Overhead, fit_overhead, isolated_delays, read_measurements
from planner.servers.network.transmissions import Wire
from planner.servers.network.window import WindowFit, infer_window
from planner.simulator.step._profile import DOWNLINK, UPLINK, Profile
from planner.simulator.step.files import FORMAT, decode, read_bytes

DIRECTIONS = {"downlink": DOWNLINK, "uplink": UPLINK}


def profiles_in(paths: Sequence[Path | str]) -> list[Profile]:
    """The profiles in these files: profile files as they are; RunMetadata files together, as steps of one."""
    profiles: list[Profile] = []
    traces: list[Path | str] = []
    for path in paths:
        data = read_bytes(path)
        if FORMAT.encode() in data[:4096]:
            profiles.append(decode(data, str(path)))
        elif kind_of(data, str(path)) == RUN_METADATA:
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
    """WIN of each direction, from one-worker profiles or RunMetadata files."""
    profiles = profiles_in(paths)
    wire = Wire(_bandwidth(profiles, bandwidth_bytes_per_s), inf, 0.0, alpha_s_per_byte, beta_s)
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
    """alpha and beta of each direction, from tables of captured transfers or from profiles."""
    points: dict[str, list[tuple[float, float]]] = {}
    source = "capture"
    for path in paths:
        data = read_bytes(path)
        if data.lstrip()[:1] == b"[" or b"overhead_s" in data[:4096]:
            for row in read_measurements(path):
                points.setdefault(row.direction or "both", []).append((row.bytes, row.overhead_s))
            continue
        source = "isolated transfers of profiles"
        for profile in profiles_in([path]):
            bandwidth = _bandwidth([profile], bandwidth_bytes_per_s)
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


def _bandwidth(profiles: Sequence[Profile], given: float | None) -> float:
    if given is not None:
        return given
    known = {profile.bandwidth_bytes_per_s for profile in profiles}
    if len(known) != 1 or None in known:
        raise BadInput(
            "the files do not say the bandwidth while they were recorded; give it with --bandwidth"
        )
    return float(next(iter(known)) or 0.0)
