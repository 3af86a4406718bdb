"""Where Inception-v3 saturates on p3.2xlarge, from synthesized profiles alone, beside what was measured.

    python benchmarks/saturation_points.py

Li et al. (asynchronous SGD in TensorFlow, Fig. 2) measured training with one parameter server on 10 Gbit/s
instances: throughput saturates at 4, 4, 5 and 7 workers for batches of 16, 32, 64 and 128. Here that is the
fewest workers with 90% of the highest throughput. Links carry 99% of the line rate (TCP, 9001-byte frames).
"""

from __future__ import annotations

import numpy as np

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.synthesis import GRPC_PARSING, NO_PARSING, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.simulator.run import RunOptions, run
from planner.simulator.step import Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation.figures import figures

MEASURED = {int(batch): workers for batch, workers in figures("li")["saturation"]["workers"].items()}
WORKERS = range(1, 10)
GOODPUT = 0.99
SATURATED = 0.9
RUNS, STEPS, WARMUP = 3, 120, 30


def images_per_s(profile: Profile, workers: int) -> float:
    cluster = Cluster.uniform(workers, 1, 10 * GBIT_BYTES_PER_S * GOODPUT)
    rates = []
    for seed in range(RUNS):
        offsets = np.random.default_rng(seed).uniform(0, 0.5, workers)
        options = RunOptions(
            seed=seed, run=seed, steps=STEPS, warmup_steps=WARMUP, start_offsets_s=tuple(offsets.tolist())
        )
        result = run(profile, cluster, Multiplexed(), "async", options)
        done = sum(int((ends > result.measured_from_s).sum()) for ends in result.step_ends_s)
        rates.append(profile.batch * done / (result.end_s - result.measured_from_s))
    return float(np.mean(rates))


def main() -> None:
    model, hardware = load_model("inception3"), load_hardware("p3.2xlarge")
    for title, parsing in (("with gRPC's parsing", GRPC_PARSING), ("without parsing", NO_PARSING)):
        print(f"{title}: images/s with {WORKERS[0]} to {WORKERS[-1]} workers")
        for batch, measured in MEASURED.items():
            profile = profile_for(model, batch, hardware, parsing=parsing)
            rates = np.array([images_per_s(profile, workers) for workers in WORKERS])
            point = WORKERS[int(np.argmax(rates >= SATURATED * rates.max()))]
            shown = " ".join(f"{rate:6.0f}" for rate in rates)
            print(f"  batch {batch:3}: {shown}   saturates at {point}, measured {measured}")


if __name__ == "__main__":
    main()
