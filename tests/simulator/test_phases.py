"""Workers that fall into step (docs/simulator.md): what is true of the model, and when it goes away."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/robustness"))

from phases import computing, gain, scenario

from planner.simulator.run import RunOptions, run
from planner.simulator.simulate import simulate, start_offsets_s


def measure_one_worker(count):
    kept_range = (seed for seed in range(200) if scenario(seed).cluster.workers == 1)
    return [seed for seed, _ in zip(kept_range, range(count), strict=False)]


@pytest.mark.parametrize("seed", measure_one_worker(20))
def test_single_worker_that_computes_faster_is_never_slower(seed):
    result = scenario(seed)
    before, after = (
        simulate(p, result.cluster, result.policy, max_steps=400).samples_per_s
        for p in (result.profile, computing(result.profile, 1 / result.factor))
    )
    assert after >= before * (1 - 1e-9)


def test_two_workers_that_compute_faster_may_fall_into_step():
    """Twice as fast, and at least a tenth slower together, whatever the seed; not where computing varies."""
    result = scenario(1077)
    assert (result.cluster.workers, result.factor) == (2, 2.0)
    assert gain(result, 1) < -0.1
    assert gain(result, 2) < -0.1
    assert gain(result, 1, noise=0.6) > 0


def test_reference_falls_into_step_as_the_engine_does():
    result = scenario(1077)
    rates = []
    for profile in (result.profile, computing(result.profile, 1 / result.factor)):
        options = RunOptions(
            seed=1,
            steps=60,
            warmup_steps=20,
            fairness_sigma=0.17,
            start_offsets_s=start_offsets_s(profile, result.cluster, 1, 0),
        )
        runs = [
            run(profile, result.cluster, result.policy, "async", options, path=path)
            for path in ("engine", "reference")
        ]
        assert runs[0].end_s == runs[1].end_s
        rates.append(sum(len(ends) for ends in runs[1].step_ends_s) / runs[1].end_s)
    assert rates[1] < rates[0]
