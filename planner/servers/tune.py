"""ByteScheduler's partition and credit, tuned by simulation instead of on the cluster.

The search is Bayesian, as in ByteScheduler, under a budget of simulations. It is seeded, and every trial has
a seed of its own, so a search that was interrupted and goes on from its file ends with the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.progress import Progress, silent
from planner.servers.ordering import Setting, strategy
from planner.simulator import simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Mode
from planner.simulator.step import Profile

PARTITION_BYTES = (2**18, 2**24)
CREDIT_PARTITIONS = (1, 16)
RANDOM_TRIALS = 10  # before the search learns, as in ByteScheduler


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best trial, and all of them as (partition_bytes, credit_bytes, samples_per_s)."""

    partition_bytes: int
    credit_bytes: int
    samples_per_s: float
    trials: tuple[tuple[int, int, float], ...] = field(repr=False)


def tune(
    profile: Profile,
    cluster: Cluster,
    setting: Setting,
    mode: Mode = "sync",
    *,
    trials: int = 30,
    seed: int = 0,
    storage: Path | str | None = None,
    precision: float = 0.01,
    progress: Progress = silent,
) -> Tuned:
    """The partition and credit of ByteScheduler that give most samples a second, after `trials` simulations
    in all; those that `storage` (a file) already holds count. Give the profile that is to run: `pipelined`
    for a framework without a barrier."""
    if trials < 1:
        raise BadInput(f"trials is {trials}; tuning needs at least one simulation")
    study = _study(storage, _fingerprint(profile, cluster, setting, mode, seed))
    for number in range(len(study.trials), trials):
        progress("tuning", number, trials)
        study.sampler = _sampler(seed, number)
        trial = study.ask()
        partition = trial.suggest_int("partition_bytes", *PARTITION_BYTES, log=True)
        credit = partition * trial.suggest_int("credit_partitions", *CREDIT_PARTITIONS, log=True)
        plan = strategy("bytescheduler", partition_bytes=partition, credit_bytes=credit)
        scheduled = plan.schedule(profile, setting)
        result = simulate(scheduled.profile, cluster, scheduled.policy, mode, seed=seed, precision=precision)
        study.tell(trial, result.samples_per_s)
    done = [(*_sizes(t.params), float(t.value)) for t in study.trials if t.value is not None]
    if not done:
        raise BadInput(f"{storage} holds no finished trial; remove it and tune again")
    best = max(done, key=lambda t: (t[2], -t[0], -t[1]))
    return Tuned(*best, trials=tuple(done))


def _sizes(params: dict[str, Any]) -> tuple[int, int]:
    return params["partition_bytes"], params["partition_bytes"] * params["credit_partitions"]


def _sampler(seed: int, number: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=RANDOM_TRIALS)


def _study(storage: Path | str | None, name: str) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if storage is None:
        return optuna.create_study(direction="maximize", study_name=name)
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        backend = JournalStorage(JournalFileBackend(str(storage)))
        return optuna.create_study(
            storage=backend, direction="maximize", study_name=name, load_if_exists=True
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"cannot use {storage} for tuning: {error}; name a new file or one of ours") from error


def _fingerprint(profile: Profile, cluster: Cluster, setting: Setting, mode: Mode, seed: int) -> str:
    """The name of the study in its file: trials of another job, cluster or seed are not mixed in."""
    import hashlib

    digest = hashlib.sha256(repr((profile.names, cluster, setting, mode, seed)).encode())
    for array in (profile.bytes, profile.durations_s, profile.dep_index):
        digest.update(array.tobytes())
    return f"{profile.model}-b{profile.batch}-{digest.hexdigest()[:16]}"
