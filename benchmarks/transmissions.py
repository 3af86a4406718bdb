"""How well downloads are reconstructed from one-worker profiles: `python benchmarks/transmissions.py`.

The form is that of Table 1 of Li et al.: error of the end times of downlink streams, here over 63 steps of
real training for each configuration. The error of a transfer is |predicted end - recorded end| / recorded
end, both counted from the call of session.run, so that an early small transfer that is a millisecond off
weighs more than a late one.

- reconstructed: the order of requests, corrected where arrivals contradict it; each link begins as its first
  arrival says (that transfer is not counted); sizes, bandwidth, bucket and parse overhead give all other
  times.
- requests only: the paper's model: nothing is used of the recorded ends.

Given are the measured TCP goodput, the token bucket of the links as they were configured (1.5 ms of the rate,
at least 20 kB), and the parse overhead as fitted to packet captures of isolated transfers, in
tests/data/overhead_capture.csv. Nothing is fitted to the profiles themselves.
"""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from testbed import MBIT_BYTES_PER_S, profile_of, read_trace, traces

from planner.profile.calibration import calibrate_overhead
from planner.profile.transmissions import EndTimeError, Wire, end_time_error
from planner.profile.window import infer_window

CAPTURE = Path(__file__).parents[1] / "tests" / "data" / "overhead_capture.csv"
PAPER = {"AlexNet": (0.0182, 0.0118, 0.0335, 0.4748), "ResNet-50": (0.0126, 0.0093, 0.0232, 0.7207)}


def line(name: str, how: str, error: EndTimeError) -> str:
    shares = (error.average, error.median, error.p95, error.worst)
    return f"{name:24} {how:14} {error.transfers:9} " + " ".join(f"{100 * share:8.2f}%" for share in shares)


def main() -> None:
    overhead = calibrate_overhead([CAPTURE])["downlink"]
    print(f"parse overhead {overhead.alpha_s_per_byte * 1e9:.3f} ns a byte + {overhead.beta_s * 1e6:.0f} us")
    print(f"{'configuration':24} {'model':14} {'transfers':>9}   average   median     95th    worst")
    worst_average = worst_median = 0.0
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
        )
        found = end_time_error(profile, wire)
        print(line(name, "reconstructed", found))
        print(line(name, "requests only", end_time_error(profile, wire, infer=False)))
        fit = infer_window([profile], wire)
        seen = "no preemption" if fit.window_bytes == inf else f"WIN {fit.window_bytes / 2**20:.2f} MiB"
        print(f"{'':24} {seen}, largest transfer {fit.largest_bytes / 2**20:.2f} MiB")
        if profile.servers == 1:
            worst_average = max(worst_average, found.average)
            worst_median = max(worst_median, found.median)
    for model, (average, median, p95, worst) in PAPER.items():
        print(f"paper, {model}, CPU cluster: {average:.2%} {median:.2%} {p95:.2%} {worst:.2%}")
    print(f"one server, reconstructed: worst median {worst_median:.2%} (target 2%), ", end="")
    print(f"worst average {worst_average:.2%} (target 5%)")


if __name__ == "__main__":
    main()
