"""The question of `planner order` and its answer, with the tuning of ByteScheduler by simulation.

Tuning searches partition and credit with Optuna's TPE, Bayesian as in ByteScheduler, within a budget of
simulations. Every trial has a seed of its own, so an interrupted search resumes to the same answer.

Priorities as a file are what `planner order --export` writes and `--priorities` reads:

    {"model": "vgg11", "strategy": "tac", "transfers": [{"name": "conv0/weights/down", "priority": 0}, ...]}

Lower goes first, equals go in the order of arrival. A file names every download; uploads it does not name
take the priority of their tensor's download.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from planner.answers.parts import RenderableAnswer
from planner.device.memory import Shares, footprint
from planner.device.precision import FP32
from planner.errors import BadInput, Infeasible, unknown_name
from planner.files.regular_file import read_bytes
from planner.files.tomlfile import from_json
from planner.flags import parse_names
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.note import Progress, ignore_progress
from planner.parallel.data import EXCHANGES
from planner.parallel.plan import flow_limit_bytes_per_s, network_figure
from planner.search.flag_values import check_size
from planner.servers.ordering import STRATEGIES, Setting, schedule
from planner.servers.ordering.graph import pipeline_step, transfer_priorities
from planner.servers.orders import (
    UNORDERED,
    OrderComparison,
    cluster_with_straggler,
    compare_orders,
    slowest_nic_bytes_per_s,
)
from planner.servers.synthesis import profile_for
from planner.simulator import simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Blocks, Credit, Fifo, Mode, Ordered, Policy, Sliced
from planner.simulator.step import DOWNLINK, Profile
from planner.units import format_bandwidth, parse_bandwidth, parse_size

PARTITION_BYTES = (2**18, 2**24)
CREDIT_PARTITIONS = (1, 16)
RANDOM_TRIALS = 10  # before the search learns, as in ByteScheduler


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Best trial of a tuning, and all trials as (partition_bytes, credit_bytes, samples_per_s)."""

    partition_bytes: int
    credit_bytes: int
    samples_per_s: float
    trials: tuple[tuple[int, int, float], ...] = field(repr=False)


def tune_bytescheduler(
    profile: Profile,
    cluster: Cluster,
    setting: Setting,
    mode: Mode = "sync",
    *,
    trials: int = 30,
    storage: Path | str | None = None,
    precision: float = 0.01,
    progress: Progress = ignore_progress,
) -> TuningResult:
    """Partition and credit sizes of ByteScheduler with the highest simulated throughput, found by search.

    `profile` is the step to run: `pipeline_step` for frameworks without a barrier.
    """
    if trials < 1:
        raise BadInput(f"trials is {trials}; tuning needs at least one simulation")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = setting.seed
    study = _open_study(storage, _study_name(profile, cluster, setting, mode, seed))
    for number in range(len(study.trials), trials):
        progress("tuning", number, trials)
        own_seed = seed * 100_003 + number
        study.sampler = optuna.samplers.TPESampler(seed=own_seed, n_startup_trials=RANDOM_TRIALS)
        trial = study.ask()
        partition = trial.suggest_int("partition_bytes", *PARTITION_BYTES, log=True)
        credit = partition * trial.suggest_int("credit_partitions", *CREDIT_PARTITIONS, log=True)
        sizes = {"partition_bytes": partition, "credit_bytes": credit}
        scheduled = schedule(profile, "bytescheduler", **asdict(setting), **sizes)
        result = simulate(scheduled.profile, cluster, scheduled.policy, mode, seed=seed, precision=precision)
        study.tell(trial, result.samples_per_s)
    done = [
        (size := t.params["partition_bytes"], size * t.params["credit_partitions"], float(t.value))
        for t in study.trials
        if t.value is not None
    ]
    if not done:
        raise BadInput(f"{storage} holds no finished trial; remove it and tune again")
    best = max(done, key=lambda t: (t[2], -t[0], -t[1]))
    return TuningResult(*best, trials=tuple(done))


def _open_study(storage: Path | str | None, name: str) -> Any:
    """Opens an optuna study in memory, or resumes the one in a journal file."""
    import optuna

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


def _study_name(profile: Profile, cluster: Cluster, setting: Setting, mode: Mode, seed: int) -> str:
    """Study name from a hash of its inputs, so that one file can hold trials of different jobs."""
    import hashlib

    digest = hashlib.sha256(repr((profile.names, cluster, setting, mode, seed)).encode())
    for array in (profile.bytes, profile.durations_s, profile.dep_index):
        digest.update(array.tobytes())
    return f"{profile.model}-b{profile.batch}-{digest.hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRequest:
    """Options of `planner order` (`cli/options.toml`); sizes and bandwidths are text: 4MiB, 3Gbit."""

    model: str | None = None
    hardware: str | None = None
    profile: Path | None = None
    batch: int | None = None
    workers: int = 2
    exchange: str = "servers"
    servers: int = 1
    bandwidth: str | None = None
    strategies: str = "all"
    mode: str = "sync"
    barrier: bool = False
    placement: str = "greedy"
    overhead_ms: float = 0.0
    download_overhead_ms: float | None = None
    slice_size: str | None = None
    partition_size: str | None = None
    credit_size: str | None = None
    slow_worker: float | None = None
    slow_link: str | None = None
    tune: int = 0
    study: Path | None = None
    priorities: Path | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class OrderAnswer(RenderableAnswer):
    """Comparison of transfer orders, with the profile, cluster and tuning that it used."""

    page_maker = "planner.servers.order_page.order_page"
    comparison: OrderComparison
    profile: Profile
    title: str
    tuned: TuningResult | None
    cluster: Cluster
    request: OrderRequest


def compare_requested_orders(request: OrderRequest, *, progress: Progress = ignore_progress) -> OrderAnswer:
    """Compares the transfer orders that a request asks for."""
    if request.mode not in ("sync", "async"):
        raise unknown_name("mode", request.mode, ("sync", "async"))
    if request.exchange not in EXCHANGES:
        raise unknown_name("exchange", request.exchange, EXCHANGES)
    if words := UNORDERED.get(request.exchange):
        raise BadInput(f"--exchange {request.exchange}: {words[0].lower()}{words[1:].rstrip('.')}")
    check_size(request.workers, request.servers)
    names = STRATEGIES if request.strategies == "all" else parse_names(request.strategies)
    for name in names:
        if name not in STRATEGIES:
            raise unknown_name("strategy", name, STRATEGIES, hint="one of all, " + ", ".join(STRATEGIES))
    options = _strategy_options(request)
    nic, flow = _nic_and_flow_limit(request)
    profile = _requested_profile(request)
    cluster = cluster_with_straggler(
        request.workers,
        profile.servers,
        nic,
        slow_worker=request.slow_worker,
        slow_link_bytes_per_s=parse_bandwidth(request.slow_link) if request.slow_link else None,
        flow_bytes_per_s=flow,
    )
    download_ms, mode = request.download_overhead_ms, cast(Mode, request.mode)
    setting = Setting(
        bandwidth_bytes_per_s=slowest_nic_bytes_per_s(cluster, cluster.worker_nodes),
        overhead_s=request.overhead_ms / 1e3,
        download_overhead_s=None if download_ms is None else download_ms / 1e3,
        seed=request.seed,
    )
    tuned = None
    if request.tune:
        running = profile if request.barrier else pipeline_step(profile)
        trials, storage = request.tune, request.study
        tuned = tune_bytescheduler(
            running, cluster, setting, mode, trials=trials, storage=storage, progress=progress
        )
        options["bytescheduler"] = {
            "partition_bytes": tuned.partition_bytes,
            "credit_bytes": tuned.credit_bytes,
        }
    comparison = compare_orders(
        profile,
        cluster,
        names,
        mode,
        barrier=request.barrier,
        overhead_s=setting.overhead_s,
        download_overhead_s=setting.download_overhead_s,
        seed=request.seed,
        options=options,
        priorities=read_priorities(request.priorities, profile) if request.priorities else None,
        progress=progress,
    )
    servers = f"{profile.servers} server{'s' if profile.servers > 1 else ''}"
    where = f"{request.workers} x {profile.hardware or 'worker'}, {servers}, {format_bandwidth(nic)} a NIC"
    title = f"{profile.model}, batch {profile.batch}, {where}, {request.mode}"
    return OrderAnswer(comparison, profile, title, tuned, cluster, request)


def best_priorities_json(answer: OrderAnswer) -> str:
    """Priorities of the fastest strategy that orders whole transfers, as JSON that `--priorities` reads."""
    whole = set(answer.profile.names)
    ranked = sorted(answer.comparison.results, key=lambda r: -r.samples_per_s)
    for result in ranked:
        policy: Policy = answer.comparison.schedules[result.strategy].policy
        if not isinstance(policy, Fifo) and set(policy_priorities(policy)) <= whole:
            return priorities_json(answer.profile, result.strategy, policy)
    raise BadInput("none of these strategies orders whole transfers; add tac or tic to --strategies")


def _nic_and_flow_limit(request: OrderRequest) -> tuple[float, float | None]:
    """Bytes per second of a NIC, and the maximum per connection; no maximum (None) with --bandwidth."""
    if request.bandwidth:
        return parse_bandwidth(request.bandwidth), None
    if request.hardware is None:
        raise BadInput("no bandwidth is known: give --bandwidth, as 3Gbit, or --hardware")
    hardware = load_hardware(request.hardware)
    return network_figure(hardware).bytes_per_s, flow_limit_bytes_per_s(hardware)


def _requested_profile(request: OrderRequest) -> Profile:
    """Loads --profile or synthesizes a profile; raises Infeasible if the batch exceeds device memory."""
    if request.profile is not None:
        if request.model or request.batch:
            raise BadInput("a profile has its own model and batch: give --profile alone, or --model")
        from planner.device.recorded import open_step

        return open_step(request.profile)
    if request.model is None or request.hardware is None:
        raise BadInput("say what to train on what: --model and --hardware, or --profile")
    model, hardware = load_model(request.model), load_hardware(request.hardware)
    batch = request.batch or model.default_batch
    largest = footprint(model, FP32).largest_batch(hardware.device, Shares(optimizer=0.0))
    if batch > largest:
        raise Infeasible(
            f"{model.name} at batch {batch} does not fit in the memory of {hardware.device.name}; "
            + (f"the largest batch that fits is {largest}" if largest else "not even one sample fits")
        )
    return profile_for(
        model,
        batch,
        hardware,
        request.servers,
        request.placement,
        seed=request.seed,
        on_host=hardware.device.kind == "gpu",
    )


def _strategy_options(request: OrderRequest) -> dict[str, dict[str, Any]]:
    """Settings from --slice, --partition and --credit, by the strategy that takes them."""
    out: dict[str, dict[str, Any]] = {}
    if request.slice_size:
        out["p3"] = {"slice_bytes": parse_size(request.slice_size)}
    if request.partition_size:
        partition = parse_size(request.partition_size)
        out["prophet"] = {"partition_bytes": partition}
        out["bytescheduler"] = {"partition_bytes": partition, "credit_bytes": 5 * partition}
    if request.credit_size:
        out.setdefault("bytescheduler", {})["credit_bytes"] = parse_size(request.credit_size)
    return out


MAX_BYTES = 100_000_000


class PlannedTransfer(msgspec.Struct, forbid_unknown_fields=True):
    """One transfer of a priority file."""

    name: str
    priority: float


class PriorityFile(msgspec.Struct, forbid_unknown_fields=True):
    """Contents of a file that `planner order --export` writes and `--priorities` reads."""

    transfers: list[PlannedTransfer]
    model: str = ""
    strategy: str = ""


def policy_priorities(policy: Policy) -> dict[str, float]:
    """Priority of each transfer by name; with a block policy, the index of its block."""
    if isinstance(policy, Ordered | Sliced | Credit):
        return dict(policy.priorities)
    if isinstance(policy, Blocks):
        return {name: float(b) for b, block in enumerate(policy.blocks) for name in block}
    raise BadInput(f"policy {policy.kind!r} orders nothing; choose a strategy that does, as tac")


def priorities_json(profile: Profile, strategy: str, policy: Policy) -> str:
    """Priority file as JSON text, most urgent transfer first."""
    ranked = sorted(policy_priorities(policy).items(), key=lambda item: (item[1], item[0]))
    transfers = [PlannedTransfer(name, priority) for name, priority in ranked]
    data = msgspec.json.encode(PriorityFile(transfers, profile.model, strategy))
    return msgspec.json.format(data, indent=1).decode() + "\n"


def read_priorities(path: Path | str, profile: Profile) -> dict[str, float]:
    """Priorities from a file, checked against the profile, with those of unnamed uploads added."""
    try:
        file = from_json(read_bytes(path, MAX_BYTES), PriorityFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}; a priority file is what `planner order --export` writes") from error
    transfers = {n for n, transfer in zip(profile.names, profile.is_transfer, strict=True) if transfer}
    out: dict[str, float] = {}
    for transfer in file.transfers:
        if transfer.name not in transfers:
            raise unknown_name(f"transfer in {path}:", transfer.name, transfers)
        if transfer.name in out:
            raise BadInput(f"{path}: transfer {transfer.name!r} stands twice; name each once")
        if not math.isfinite(transfer.priority):
            raise BadInput(f"{path}: the priority of {transfer.name!r} is not a finite number")
        out[transfer.name] = transfer.priority
    pulls = np.flatnonzero(profile.resource == DOWNLINK).tolist()
    missing = [profile.names[op] for op in pulls if profile.names[op] not in out]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadInput(f"{path}: no priority for download {missing[0]!r}{more}; every download needs one")
    by_priority = sorted(pulls, key=lambda op: (out[profile.names[op]], op))
    ranks = [out[profile.names[op]] for op in by_priority]
    return {**transfer_priorities(profile, by_priority, ranks), **out}
