"""How well downloads are reconstructed from one-worker profiles: `python
benchmarks/accuracy/transmissions.py`.

The form is that of Table 1 of Li et al.: error of the end times of downlink streams, here over 63 steps of
real training for each configuration. The error of a transfer is |predicted end - recorded end| / recorded
end, both counted from the call of session.run, so that an early small transfer that is a millisecond off
weighs more than a late one.

- reconstructed: the order of requests, corrected where arrivals contradict it; each link begins as its first
  arrival says; with two servers, the largest transfer of the one that is done first tells its share in that
  step (these anchors are not counted); sizes, bandwidth, bucket, buffer and parse overhead give all other
  times.
- 1 ms from those: the same without transfers that are recorded within a millisecond of an anchor, of which
  it can be said that the reconstruction was told their ends as well.
- requests only: the paper's model: nothing is used of the recorded ends.

Given are the measured TCP goodput, the token bucket of the links (1.5 ms of the rate, at least 20 kB) and the
buffer of the switch's ports (384 kB) as they were configured, and the parse overhead as fitted to packet
captures of isolated transfers, in tests/data/overhead_capture.csv. Nothing is fitted to the profiles
themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))

from testbed import MBIT_BYTES_PER_S, profile_of, read_trace, traces

from planner.errors import BadInput
from planner.servers.calibration import calibrate_overhead, infer_window
from planner.servers.transmissions import Transmission, Wire, reconstruct, recorded_streams
from planner.simulator.step import DOWNLINK, Profile

CAPTURE = Path(__file__).parents[2] / "tests" / "data" / "overhead_capture.csv"
BUFFER_BYTES = 384_000
TARGET_AVERAGE, TARGET_MEDIAN = 0.05, 0.02
PAPER = {"AlexNet": (0.0182, 0.0118, 0.0335, 0.4748), "ResNet-50": (0.0126, 0.0093, 0.0232, 0.7207)}


def relative_error(sent: Transmission) -> float:
    """|predicted end - recorded end| / recorded end, times counted from the start of the step."""
    return abs(sent.end_s - sent.stream.recorded_end_s) / sent.stream.recorded_end_s


@dataclass(frozen=True, slots=True)
class EndTimeError:
    """Relative errors of predicted end times, as Table 1 of Li et al. has them."""

    transfers: int
    average: float
    median: float
    p95: float
    worst: float

    @classmethod
    def of(cls, ends: Sequence[Transmission]) -> EndTimeError:
        if not ends:
            raise BadInput("the profile has no recorded transfers in this direction beyond the first")
        values: npt.NDArray[np.float64] = np.array([relative_error(sent) for sent in ends])
        return cls(
            len(values),
            float(values.mean()),
            float(np.median(values)),
            float(np.percentile(values, 95)),
            float(values.max()),
        )


def predicted_ends(
    profile: Profile,
    wire: Wire,
    resource: int = DOWNLINK,
    infer: bool = True,
    *,
    steps: int | None = None,
    apart_s: float = 0.0,
) -> list[Transmission]:
    """What the model says of the recorded transfers of a profile; anchors, which it was told, are left out,
    and so are transfers recorded within `apart_s` of one, which it was nearly told."""
    ends: list[Transmission] = []
    for step in range(min(profile.steps, steps or profile.steps)):
        result = reconstruct(recorded_streams(profile, step, resource), wire, infer)
        told_s = [sent.stream.recorded_end_s for sent in result if sent.anchor]
        for sent in result:
            near = any(abs(sent.stream.recorded_end_s - at_s) < apart_s for at_s in told_s)
            if not sent.anchor and not near and sent.stream.recorded_end_s > 0:
                ends.append(sent)
    return ends


def end_time_error(profile: Profile, wire: Wire, *, infer: bool = True, **which: Any) -> EndTimeError:
    """How far the model is from the recorded end times of a profile (`predicted_ends`)."""
    return EndTimeError.of(predicted_ends(profile, wire, infer=infer, **which))


def line(name: str, how: str, error: EndTimeError) -> str:
    shares = (error.average, error.median, error.p95, error.worst)
    return f"{name:24} {how:16} {error.transfers:9} " + " ".join(f"{100 * share:8.2f}%" for share in shares)


def verdict(error: EndTimeError) -> str:
    """Against both targets."""
    average = "holds" if error.average < TARGET_AVERAGE else "MISSED"
    median = "holds" if error.median < TARGET_MEDIAN else "MISSED"
    return (
        f"average {error.average:.2%} (target {TARGET_AVERAGE:.0%}) {average}, "
        f"median {error.median:.2%} (target {TARGET_MEDIAN:.0%}) {median}"
    )


def main() -> None:
    overhead = calibrate_overhead([CAPTURE])["downlink"]
    print(f"parse overhead {overhead.alpha_s_per_byte * 1e9:.3f} ns a byte + {overhead.beta_s * 1e6:.0f} us")
    print(f"{'configuration':24} {'model':16} {'transfers':>9}   average   median     95th    worst")
    verdicts: list[str] = []
    together: list[Transmission] = []
    for name in traces():
        trace = read_trace(name)
        profile = profile_of(trace, latency=False)
        assert profile.bandwidth_bytes_per_s is not None
        wire = Wire(
            profile.bandwidth_bytes_per_s,
            inf,
            max(20_000, 1.5e-3 * trace["config"]["mbit"] * MBIT_BYTES_PER_S),
            overhead.alpha_s_per_byte,
            overhead.beta_s,
            BUFFER_BYTES,
        )
        ends = predicted_ends(profile, wire)
        result = EndTimeError.of(ends)
        together += ends
        print(line(name, "reconstructed", result))
        print(line(name, "1 ms from those", end_time_error(profile, wire, apart_s=1e-3)))
        print(line(name, "requests only", end_time_error(profile, wire, infer=False)))
        fit = infer_window([profile], wire)
        seen = "no preemption" if fit.window_bytes == inf else f"WIN {fit.window_bytes / 2**20:.2f} MiB"
        print(f"{'':24} {seen}, largest transfer {fit.largest_bytes / 2**20:.2f} MiB")
        verdicts.append(f"{name:24} {profile.servers} server(s): {verdict(result)}")
    print(line("all six together", "reconstructed", EndTimeError.of(together)))
    verdicts.append(f"{'all six together':24} {'':12} {verdict(EndTimeError.of(together))}")
    for model, (average, median, p95, worst) in PAPER.items():
        print(f"paper, {model}, CPU cluster: {average:.2%} {median:.2%} {p95:.2%} {worst:.2%}")
    print("\n".join(["", "reconstructed, against the targets:", *verdicts]))


if __name__ == "__main__":
    main()
