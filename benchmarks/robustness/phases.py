"""Workers that fall into lockstep: where more or faster workers lower the throughput.

python phases.py workers            # resnet50 on g5.xlarge through one server, two to four workers
python phases.py computing [COUNT]  # random steps with faster workers
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.synthesis import profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Credit, Fifo, Multiplexed, Ordered, Policy, Sliced
from planner.simulator.run import RunOptions, RunResult, run
from planner.simulator.simulate import FAIRNESS_SIGMA, simulate
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

INSTANTS = 40_000  # of a run that are looked at
NOISE = (0.1, 0.3, 0.6)  # of computing times: the standard deviation of their logarithm
NOISY_STEPS = 400


@dataclass(frozen=True)
class Scenario:
    """A random training step with its cluster and policy, and the speed-up of its workers."""

    profile: Profile
    policy: Policy
    cluster: Cluster
    factor: float


def scenario(seed: int) -> Scenario:
    """A random scenario: 2 to 8 layers on 1 to 6 workers, transfers ranked by layer."""
    rng = random.Random(seed)
    layers, servers = rng.randint(2, 8), rng.choice([1, 1, 1, 2])
    server = [rng.randrange(servers) for _ in range(layers)]
    size = [int(10 ** rng.uniform(4, 7)) for _ in range(layers)]
    forward_s = [10 ** rng.uniform(-3.5, -1.5) for _ in range(layers)]
    ops = [Op(f"d{i}", DOWNLINK, server[i], size[i], (), i) for i in range(layers)]
    times = [0.0] * layers
    for i in range(layers):
        ops.append(Op(f"f{i}", WORKER, deps=(i, len(ops) - 1) if i else (0,)))
        times.append(forward_s[i])
    last = len(ops) - 1
    for i in reversed(range(layers)):
        at = len(ops)
        ops += [
            Op(f"b{i}", WORKER, deps=(last,)),
            Op(f"u{i}", UPLINK, server[i], size[i], (at,), i),
            Op(f"x{i}", PS, server[i], 0, (at + 1,), i),
        ]
        times += [2 * forward_s[i], 0.0, 1e-4 * rng.random()]
        last = at
    names = [f"t{i}" for i in range(layers)]
    profile = Profile.build(ops, [times], model="random", batch=32, servers=servers, tensors=names)
    ranks = {f"{way}{i}": float(i) for i in range(layers) for way in "du"}
    policy: Policy = rng.choice(
        [
            Ordered(priorities=ranks),
            Sliced(priorities=ranks, slice_bytes=200_000),
            Credit(priorities=ranks, slice_bytes=500_000, credit_bytes=2_000_000),
            Multiplexed(),
            Fifo(),
        ]
    )
    workers, nic = rng.choice([1, 2, 3, 4, 6]), 10 ** rng.uniform(7.5, 9.2)
    return Scenario(profile, policy, Cluster.uniform(workers, servers, nic), rng.choice([1.1, 1.25, 2.0]))


def computing(profile: Profile, times: npt.ArrayLike) -> Profile:
    """The profile with other durations of worker ops."""
    durations = np.array(profile.durations_s * times if np.ndim(times) == 0 else times)
    mine = np.where(profile.resource == WORKER, durations, profile.durations_s)
    mine.flags.writeable = False
    return replace(profile, durations_s=mine)


def noisy(profile: Profile, sigma: float, seed: int) -> Profile:
    """A profile whose compute times vary between steps."""
    draws = np.random.default_rng(seed).lognormal(-sigma * sigma / 2, sigma, (NOISY_STEPS, profile.ops))
    return computing(profile, profile.durations_s[:1] * draws)


def gain(one: Scenario, seed: int, sigma: float = FAIRNESS_SIGMA, noise: float = 0.0) -> float:
    """The relative gain in throughput from faster computing."""
    slow = noisy(one.profile, noise, seed) if noise else one.profile
    before, after = (
        simulate(p, one.cluster, one.policy, seed=seed, fairness_sigma=sigma, max_steps=3000).samples_per_s
        for p in (slow, computing(slow, 1 / one.factor))
    )
    return after / before - 1


def falls(one: Scenario, seed: int) -> bool:
    """Whether faster computing lowers throughput by more than the intervals and 1%."""
    before, after = (
        simulate(p, one.cluster, one.policy, seed=seed, max_steps=1500)
        for p in (one.profile, computing(one.profile, 1 / one.factor))
    )
    return (
        after.samples_per_s_high < before.samples_per_s_low
        and after.samples_per_s < 0.99 * before.samples_per_s
    )


def look_at_computing(count: int) -> None:
    kept_range = [(seed, scenario(seed)) for seed in range(count) if falls(scenario(seed), seed)]
    alone = sum(len(scenario(seed).cluster.worker_nodes) == 1 for seed in range(count))
    print(
        f"{len(kept_range)} of {count} fall; "
        f"of {alone} with one worker {sum(_alone(s) for _, s in kept_range)} do"
    )
    print("seed policy workers faster | again, equal shares | noise " + " ".join(f"{n:g}" for n in NOISE))
    for seed, entry in kept_range:
        again = [gain(entry, seed + 1), gain(entry, seed, sigma=0.0)]
        with_noise = [gain(entry, seed, noise=noise) for noise in NOISE]
        words = [f"{share:+.1%}" for share in (*again, *with_noise)]
        print(
            seed,
            entry.policy.kind,
            entry.cluster.workers,
            f"{entry.factor:g}x |",
            *words[:2],
            "|",
            *words[2:],
        )


def _alone(one: Scenario) -> bool:
    return one.cluster.workers == 1


def look_at_workers() -> None:
    machine = load_hardware("g5.xlarge")
    nic = machine.nic_bytes_per_s("baseline")
    assert nic is not None
    profile = profile_for(load_model("resnet50"), 64, machine, 1)
    step_s = 0.68
    print("workers start    shares  samples/s  downloading at once: none, one, two ...  both directions busy")
    for workers in (2, 3, 4):
        for start, apart_s in (("together", 0.001), ("apart", step_s / workers)):
            for sigma in (0.0, FAIRNESS_SIGMA):
                options = RunOptions(
                    seed=3,
                    steps=200,
                    warmup_steps=60,
                    start_offsets_s=tuple(apart_s * k for k in range(workers)),
                    fairness_sigma=sigma,
                    timeline=True,
                )
                done = run(profile, Cluster.uniform(workers, 1, nic), Multiplexed(), "async", options)
                down, up = (_at_once(done, way, workers) for way in (DOWNLINK, UPLINK))
                shares = [f"{np.mean(down == many):.0%}" for many in range(workers + 1)]
                both = np.mean((down > 0) & (up > 0))
                kind = "uneven" if sigma else "equal"
                print(
                    f"{workers:7} {start:8} {kind:7} {_rate(done, 64):9.1f}  {', '.join(shares)}  {both:.0%}"
                )


def _rate(done: RunResult, batch: int) -> float:
    counted = [ends[ends > done.measured_from_s] for ends in done.step_ends_s]
    return sum(batch * (len(ends) - 1) / float(ends[-1] - ends[0]) for ends in counted)


def _at_once(done: RunResult, resource: int, workers: int) -> npt.NDArray[np.int64]:
    """The number of workers with bytes in flight in a direction, at each instant."""
    assert done.timeline is not None
    instants = np.linspace(done.measured_from_s, done.end_s, INSTANTS)
    count = np.zeros(INSTANTS, np.int64)
    for worker in range(workers):
        mine = done.timeline[(done.timeline["resource"] == resource) & (done.timeline["worker"] == worker)]
        mine = mine[np.argsort(mine["flow_s"])]
        ends = np.maximum.accumulate(mine["end_s"])
        at = np.searchsorted(mine["flow_s"], instants, "right") - 1
        count += (at >= 0) & (instants < ends[at])
    return count


if __name__ == "__main__":
    if sys.argv[1:2] == ["workers"]:
        look_at_workers()
    elif sys.argv[1:2] == ["computing"]:
        look_at_computing(int(sys.argv[2]) if len(sys.argv) > 2 else 1240)
    else:
        print(__doc__)
