"""`simulate`: the one door to the simulator. Independent runs until the wanted precision, summed up.

How a run goes: workers start at random moments within one step's length of each other, as they do in reality
(in lockstep together); each drops its first steps, until the pattern of the start is forgotten; the run is
cut when the first worker has done all its steps, so that all compete to the end. Few workers forget slowly:
on measured profiles two workers take 50 to 80 steps until throughput is within 1% of its long-run value,
eight take 20. So the fewer the workers, the more steps each does (`run_length`). Workers in lockstep wait for
each other in every step and have nothing to forget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput
from planner.simulator.cluster import Cluster
from planner.simulator.inputs import is_lockstep, party_by_worker
from planner.simulator.policy import Joins, Mode, Multiplexed, Policy
from planner.simulator.run import RunOptions, RunResult, run_all
from planner.simulator.statistics import (
    QUANTILES,
    Prediction,
    TwoStage,
    measured_steps,
    steps_per_s,
    utilisation,
)
from planner.simulator.step import Profile

# How unevenly TCP divides a drop-tail port where flows of several senders meet: the standard deviation of the
# logarithm of shares, measured with iperf3 (four flows into one port at 100 and at 200 Mbit/s, 24 intervals
# of 1 s: 0.196 and 0.144; downloads of one worker from two servers: 0.13). See docs/accuracy.md.
FAIRNESS_SIGMA = 0.17

CONFIDENCE = 0.95
PRECISION = 0.01
MAX_STEPS = 5000
FIRST_RUNS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Input of a simulation for one plan. `joins` default to those of `mode`."""

    profile: Profile
    cluster: Cluster
    policy: Policy = field(default_factory=Multiplexed)
    mode: Mode = "async"
    joins: Joins | None = None

    def is_lockstep(self) -> bool:
        """Whether synchronization makes all workers wait for each other in every step."""
        if self.joins is None and self.mode == "sync":
            return True
        return is_lockstep(self.profile, self.cluster, self.joins or Joins.none(self.profile.ops))


def simulate(
    profile: Profile,
    cluster: Cluster,
    policy: Policy | None = None,
    mode: Mode = "async",
    *,
    joins: Joins | None = None,
    seed: int = 0,
    precision: float = PRECISION,
    max_steps: int = MAX_STEPS,
    confidence: float = CONFIDENCE,
    fairness_sigma: float = FAIRNESS_SIGMA,
    server_cores: int | None = None,
    timeline: bool = False,
    executor: Executor | None = None,
) -> Prediction:
    """Predicts the throughput of `profile` on `cluster`, with a confidence interval. The spread of the first
    six runs determines how many runs a half-width below `precision` of the mean needs. No worker does more
    than about `max_steps` steps over all runs; the result states the precision reached. With an `executor`
    the runs go in parallel; the result is the same. `timeline` keeps the chunks of the first run."""
    case = Case(profile=profile, cluster=cluster, policy=policy or Multiplexed(), mode=mode, joins=joins)
    effort = Effort(
        seed=seed,
        precision=precision,
        max_steps=max_steps,
        confidence=confidence,
        fairness_sigma=fairness_sigma,
        server_cores=server_cores,
    )
    return begin_simulation(case, effort, runs=1, timeline=timeline).finish(executor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Seed, precision and limits of a simulation."""

    seed: int = 0
    precision: float = PRECISION
    max_steps: int = MAX_STEPS
    confidence: float = CONFIDENCE
    fairness_sigma: float = FAIRNESS_SIGMA
    server_cores: int | None = None
    first_runs: int = FIRST_RUNS  # that say how many are needed

    def __post_init__(self) -> None:
        if not (math.isfinite(self.precision) and self.precision > 0):
            raise BadInput(f"precision is {self.precision}; it must be above zero, as 0.01 for 1%")
        if self.max_steps < 1:
            raise BadInput(f"max_steps is {self.max_steps}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class PartialSimulation:
    """Simulation after some of its runs, which another process can continue."""

    case: Case
    effort: Effort
    options: RunOptions
    results: tuple[RunResult, ...]

    def prediction(self) -> Prediction:
        """Prediction from the runs so far (at least two); its interval is wider than after all runs."""
        stages = TwoStage(self.effort.confidence, self.effort.precision, _run_rates(self.results))
        return _summarize_runs(self.case, self.results, stages, self.effort)

    def finish(self, executor: Executor | None = None) -> Prediction:
        """Makes the remaining runs and returns the full prediction."""
        more = partial(_simulate_runs, executor=executor)
        first = self.effort.first_runs
        results = [*self.results, *more(self.case, self.options, range(len(self.results), first))]
        stages = TwoStage(self.effort.confidence, self.effort.precision, _run_rates(results[:first]))
        most = self.effort.max_steps // self.options.steps
        # again if the mean has fallen
        while (runs := stages.required_runs(most, _run_rates(results))) > len(results):
            results += more(self.case, self.options, range(len(results), runs))
        return _summarize_runs(self.case, results, stages, self.effort)


def begin_simulation(case: Case, effort: Effort, runs: int, *, timeline: bool = False) -> PartialSimulation:
    """Simulates the first runs of a case, at most `runs`. Runs have more steps if a slow worker needs them to
    finish its warm-up."""
    options = _run_options(case, effort)
    while True:
        (pilot,) = _simulate_runs(case, replace(options, timeline=timeline), [0])
        if min(len(ends) for ends in pilot.step_ends_s) > options.warmup_steps:
            return resume_simulation(PartialSimulation(case, effort, options, (pilot,)), runs)
        options = replace(options, steps=2 * options.steps)


def resume_simulation(begun: PartialSimulation, runs: int) -> PartialSimulation:
    """Continues a simulation until it has `runs` runs in all."""
    numbers = range(len(begun.results), min(runs, begun.effort.first_runs))
    return replace(begun, results=(*begun.results, *_simulate_runs(begun.case, begun.options, numbers)))


def simulate_case(case: Case, effort: Effort | None = None) -> Prediction:
    """Simulates a case; both arguments can be sent to another process."""
    return begin_simulation(case, effort or Effort(), runs=1).finish()


def _run_rates(results: Sequence[RunResult]) -> tuple[float, ...]:
    """Steps per second of all workers together, for each run."""
    return tuple(float(steps_per_s(result).sum()) for result in results)


def simulate_many(
    cases: Iterable[Case], *, executor: Executor | None = None, jobs: int | None = None, **settings: Any
) -> Iterator[Prediction]:
    """Simulates many cases with the same settings, in threads or on a `concurrent.futures.Executor`.
    Predictions come in the order of the cases and do not depend on the number of threads."""
    call = partial(simulate_case, effort=Effort(**settings))
    if executor is not None:
        yield from executor.map(call, cases)
        return
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs is {jobs}; it must be at least 1")
    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(call, cases)


def run_length(workers: int, *, lockstep: bool = False, joint: bool = False) -> tuple[int, int]:
    """Warm-up steps and measured steps of each worker per run. A single worker has no start pattern to
    forget, nor have workers in lockstep, whose steps hardly depend on each other (docs/simulator.md). Joint
    ops synchronize all members; the slowest of many members varies little, so that fewer steps suffice."""
    if lockstep and joint:
        return 2, min(36, max(4, math.ceil(256 / workers)))
    if lockstep:
        return 4, 36
    if workers == 1:
        return 2, 60
    return max(20, math.ceil(100 / workers)), max(40, math.ceil(400 / workers))


def _run_options(case: Case, effort: Effort) -> RunOptions:
    """Options of every run; a small `max_steps` shortens warm-up and measurement in proportion."""
    joint = bool((case.profile.scope >= 0).any())
    warmup, measured = run_length(case.cluster.workers, lockstep=case.is_lockstep(), joint=joint)
    steps = min(warmup + measured, max(2, effort.max_steps // FIRST_RUNS))
    return RunOptions(
        seed=effort.seed,
        steps=steps,
        warmup_steps=steps * warmup // (warmup + measured),
        fairness_sigma=effort.fairness_sigma,
        server_cores=effort.server_cores,
    )


def _simulate_runs(
    case: Case, options: RunOptions, numbers: Sequence[int], executor: Executor | None = None
) -> list[RunResult]:
    """Simulates runs by number, in parallel if there is an executor."""
    if executor is not None:
        batches = executor.map(partial(_simulate_runs, case, options), [[number] for number in numbers])
        return [result for batch in batches for result in batch]
    profile, cluster = case.profile, case.cluster
    if case.is_lockstep():  # all end a step together; cutting at the first would lose the others' last one
        each = [replace(options, run=number, until="all") for number in numbers]
    else:
        starts_s = [start_offsets_s(profile, cluster, options.seed, number) for number in numbers]
        runs = zip(numbers, starts_s, strict=True)
        each = [replace(options, run=number, start_offsets_s=own_s) for number, own_s in runs]
    return run_all(profile, cluster, case.policy, case.mode, each, joins=case.joins)


def start_offsets_s(profile: Profile, cluster: Cluster, seed: int, run: int) -> tuple[float, ...]:
    """Random start time of each worker in seconds, spread over one step without overlap."""
    random = np.random.default_rng([seed % 2**63, run])
    return tuple((random.random(cluster.workers) * _serial_step_s(profile, cluster)).tolist())


def _serial_step_s(profile: Profile, cluster: Cluster) -> float:
    """Seconds per step without any overlap: computation plus all bytes over the slowest link."""
    busy_s = float(profile.durations_s[:, ~profile.is_transfer].sum(1).mean())
    used = [cluster.nodes[n] for n in {n for row in cluster.ends for ends in row for n in ends}]
    rates = [min(node.egress_bytes_per_s, node.ingress_bytes_per_s) for node in used]
    slowest = min([*rates, cluster.flow_bytes_per_s])
    return busy_s + float(profile.bytes[profile.is_transfer].sum()) / slowest


def _staleness_in_updates(case: Case, steps_of_others: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Number of updates by others during each step; workers that wait for each other make one joint
    update."""
    parties = party_by_worker(case.profile, case.cluster, case.joins or Joins.none(case.profile.ops))
    if parties.max() + 1 == case.cluster.workers:
        return steps_of_others
    together = case.cluster.workers / (parties.max() + 1)
    return np.asarray(np.round(np.maximum(steps_of_others - (together - 1), 0) / together), np.int32)


def _summarize_runs(case: Case, results: Sequence[RunResult], stages: TwoStage, effort: Effort) -> Prediction:
    """Prediction from several runs of a case."""
    batch = case.profile.batch
    rates = np.array([steps_per_s(result) for result in results]) * batch  # runs x workers
    interval = stages.interval((rates.sum(axis=1) / batch).tolist())
    mean, half_width = interval.mean * batch, interval.half_width * batch
    pooled = [measured_steps(result) for result in results]
    lengths = np.concatenate([length for length, _ in pooled])
    staleness = _staleness_in_updates(case, np.concatenate([stale for _, stale in pooled]))
    used = utilisation(case.cluster, results, effort.server_cores)
    notes = []
    if interval.precision > stages.precision:
        notes.append(
            f"reached a precision of {interval.precision:.2%} instead of {stages.precision:.2%} "
            f"within {effort.max_steps} steps a worker; raise max_steps (--max-steps) for more"
        )
    return Prediction(
        samples_per_s=mean,
        samples_per_s_low=max(0.0, mean - half_width),
        samples_per_s_high=mean + half_width,
        confidence=stages.confidence,
        precision=interval.precision,
        runs=len(results),
        steps=len(lengths),
        step_s=float(lengths.mean()),
        step_s_quantiles={name: float(np.quantile(lengths, q)) for name, q in QUANTILES.items()},
        utilisation=used,
        bottleneck=max(used, key=used.__getitem__),
        worker_samples_per_s=tuple(rates.mean(axis=0).tolist()),
        staleness_mean=float(staleness.mean()),
        staleness_max=int(staleness.max()),
        events=sum(result.events for result in results),
        engine=results[0].path,
        timeline=results[0].timeline,
        notes=tuple(notes),
    )
