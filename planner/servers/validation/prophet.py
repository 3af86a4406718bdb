"""Prophet beside ours: Prophet, ByteScheduler, P3 and default MXNet on M60 workers.

How we read the paper, in four choices. The last two were made with Table 2 in view, among the alternatives
that `benchmarks/accuracy/papers.py` shows; Table 3 and the rest were not used:
- Rates are of one worker (section 5.4 says so), one GPU a worker, synchronous, and every NIC, the server's
  too, is limited to the table's bandwidth: with a fast server 1 Gbit/s would give twice the rates shown.
- A tensor is pulled as soon as it is updated, beside the next forward pass (equation 1).
- What is pushed costs PUSH_S a message (sections 2.2 and 6.1: aggregation by key, copy to the host,
  blocking sends, slow start), once for a block of Prophet's; answers to pulls cost nothing more. 2 ms is the
  one constant taken from the table, where P3's column is matched best.
- "ByteScheduler, implemented using BytePS with a default credit": in that code the credit governs the local
  reduction; what waits for the network is sent first come, first served, in partitions of 4,096,000 bytes.
Compute times are the catalog's for the M60. P3's slices are of 4 MB, as the paper set them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from planner.hardware.catalog import load_hardware
from planner.memoize import memoize
from planner.model.catalog import load_model
from planner.servers.ordering import Schedule, schedule
from planner.servers.ordering.graph import pipeline_step
from planner.servers.ordering.strategies import DEFAULT_PARTITION_BYTES
from planner.servers.orders import cluster_with_straggler, idle_s, simulate_timeline
from planner.servers.placement import cut_tensors
from planner.servers.synthesis import NO_VARIATION, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.run import RunOptions, run
from planner.simulator.step import WORKER, Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation.row import Paper, Row, Section

PUSH_S = 0.002
P3_SLICE_BYTES = 4_000_000
STEPS, WARMUP = 30, 5
TOLERANCE = 0.15
ALIKE = 0.05
TITLES = {
    "prophet": "Prophet",
    "bytescheduler": "ByteScheduler",
    "p3": "P3",
    "mxnet": "MXNet",
    "mxnet, barrier": "MXNet, with a barrier",
}
HOW = "simulated, synchronous, synthesized profile of the M60, 2 ms a pushed message, taken from Table 2"
PAPER = Paper("prophet", HOW)
GIVEN, CHECKS = PAPER.figures, PAPER.checks


@memoize
def mean_step(model: str, batch: int) -> Profile:
    """Synthesized step of a model on an M60, without variation."""
    hardware = load_hardware(GIVEN["hardware"])
    return profile_for(load_model(model), batch, hardware, steps=1, variation=NO_VARIATION)


def system_schedule(
    profile: Profile,
    system: str,
    bandwidth_bytes_per_s: float,
    *,
    push_s: float = PUSH_S,
    pull_s: float = 0.0,
) -> Schedule:
    """Transfers of a step as Prophet, ByteScheduler, P3 or MXNet orders them.

    `bandwidth_bytes_per_s` is what Prophet's monitor would report.
    """
    running = profile if system == "mxnet, barrier" else pipeline_step(profile)
    options = {"slice_bytes": P3_SLICE_BYTES} if system == "p3" else {}
    if system == "bytescheduler":
        running = cut_tensors(running, DEFAULT_PARTITION_BYTES)
    return schedule(
        running,
        {"prophet": "prophet", "p3": "p3", "credit": "bytescheduler"}.get(system, "fifo"),
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        overhead_s=push_s,
        download_overhead_s=pull_s,
        **options,
    )


def worker_samples_per_s(
    profile: Profile, system: str, cluster: Cluster, bandwidth_bytes_per_s: float, **costs: float
) -> float:
    """Throughput of one worker under a system, in samples per second."""
    outcome = system_schedule(profile, system, bandwidth_bytes_per_s, **costs)
    result = run(outcome.profile, cluster, outcome.policy, "sync", RunOptions(steps=STEPS, until="all"))
    return float(profile.batch / np.diff(result.step_ends_s[0])[WARMUP:].mean())


@memoize
def uniform_samples_per_s(model: str, batch: int, system: str, workers: int, gbit_per_s: float) -> float:
    """Throughput of one worker, in samples per second, if all NICs are equal."""
    bandwidth = gbit_per_s * GBIT_BYTES_PER_S
    return worker_samples_per_s(
        mean_step(model, batch), system, cluster_with_straggler(workers, 1, bandwidth), bandwidth
    )


def _table_samples_per_s(table: Mapping[str, Any], system: str, gbit_per_s: float) -> float:
    """Throughput of one worker, in samples per second, at a table's model, batch and number of workers."""
    return uniform_samples_per_s(table["model"], table["batch"], system, table["workers"], gbit_per_s)


def _rate_row(
    section: Section, case: str, quantity: str, published: float, ours: float, *, unit: str = "samples/s"
) -> Row:
    """Row that holds if our figure is within the tolerance of the published one."""
    return section.near(case, quantity, published, ours, TOLERANCE, unit=unit)


@PAPER.check()
def check_table2(section: Section) -> Iterator[Row]:
    """Yields rows comparing ResNet-50's throughput at 1 to 10 Gbit/s, and the ranking of systems."""
    given = section.figures
    speeds, systems, scarce = given["gbit_per_s"], given["systems"], given["scarce_gbit_per_s"]
    ours = {
        (system, gbit): _table_samples_per_s(given, system, gbit) for gbit in speeds for system in systems
    }
    for at, gbit in enumerate(speeds):
        for system in systems:
            case, what = f"{system}-{gbit:g}", f"{TITLES[system]}, {gbit:g} Gbit/s"
            yield _rate_row(section, case, what, given[system][at], ours[system, gbit])
    fastest = {gbit: max(ours[system, gbit] for system in systems) for gbit in speeds}
    slowest = {gbit: min(ours[system, gbit] for system in systems) for gbit in speeds}
    ahead = min(ours["prophet", gbit] / fastest[gbit] - 1 for gbit in speeds if gbit <= scarce)
    apart = max(fastest[gbit] / slowest[gbit] - 1 for gbit in speeds if gbit > scarce)
    what, claimed = f"Prophet against the others up to {scarce:g} Gbit/s", "Prophet at or above both"
    yield section.stated("ahead", what, claimed, f"at least {ahead:+.1%}", ahead >= -1e-9, "at or above")
    what, claim = "all three from 6 Gbit/s on", f"at most {ALIKE:.0%} apart"
    yield section.stated("alike", what, "all alike", f"{apart:.1%} apart", apart <= ALIKE, claim)


@PAPER.check()
def check_table3(section: Section) -> Iterator[Row]:
    """Yields rows comparing the throughput of two networks by batch, at 3 Gbit/s."""
    given, there = section.figures, GIVEN["table2"]
    gains = {}
    for case in given["rows"]:
        model, batch = case["model"], case["batch"]
        ours = {s: _table_samples_per_s(given | case, s, given["gbit_per_s"]) for s in given["systems"]}
        gains[model, batch] = ours["prophet"] / ours["bytescheduler"] - 1
        if (model, batch) == (there["model"], there["batch"]):
            continue  # the same figures stand in Table 2
        for system in given["systems"]:
            name, what = f"{model}-{batch}-{system}", f"{TITLES[system]}, {model}, batch {batch}"
            yield _rate_row(section, name, what, case[system], ours[system])
    for model in ("resnet18", "resnet50"):
        mine = [gain for (name, _), gain in sorted(gains.items()) if name == model]
        words, grows = " ".join(f"{gain:+.1%}" for gain in mine), mine == sorted(mine)
        what = f"{model}: gain of Prophet over ByteScheduler by batch"
        yield section.stated(f"{model}-gain", what, "grows with the batch", words, grows, "grows")


@PAPER.check()
def check_resnet18(section: Section) -> Iterator[Row]:
    """Yields rows comparing the throughput of ResNet-18 with default MXNet, P3 and Prophet."""
    for case in section.figures["rows"]:
        gbit = case["gbit_per_s"]
        for system, published in case["rates"].items():
            what = f"ResNet-18, {TITLES[system]}, {gbit} Gbit/s"
            yield _rate_row(
                section,
                f"{system}-{gbit}",
                what,
                published,
                _table_samples_per_s(section.figures, system, gbit),
            )


@PAPER.check()
def check_slow_link(section: Section) -> Iterator[Row]:
    """Yields rows comparing throughput where one worker has a slow link."""
    given = section.figures
    bandwidth, slow = (given[name] * GBIT_BYTES_PER_S for name in ("gbit_per_s", "slow_gbit_per_s"))
    cluster = cluster_with_straggler(given["workers"], 1, bandwidth, slow_link_bytes_per_s=slow)
    for system, published in given["rates"].items():
        ours = worker_samples_per_s(mean_step(given["model"], given["batch"]), system, cluster, slow)
        what = f"{TITLES[system]}, one worker at 500 Mbit/s"
        yield _rate_row(section, system.replace(", ", "-"), what, published, ours)


@PAPER.check()
def check_scaling(section: Section) -> Iterator[Row]:
    """Yields rows comparing the throughput of Prophet with 2 to 8 workers."""
    given = section.figures
    for case in given["rows"]:
        ours = _table_samples_per_s(given | case, "prophet", given["gbit_per_s"])
        yield _rate_row(
            section, str(case["workers"]), f"Prophet, {case['workers']} workers", case["rate"], ours
        )


@PAPER.check()
def check_utilisation(section: Section) -> Iterator[Row]:
    """Yields rows comparing GPU utilisation: computation time divided by step time."""
    given, there = section.figures, GIVEN["table2"]
    profile = mean_step(there["model"], there["batch"])
    compute_s = float(profile.durations_s[0, profile.resource == WORKER].sum())
    for system, published in given["shares"].items():
        busy = 100 * compute_s * _table_samples_per_s(there, system, given["gbit_per_s"]) / there["batch"]
        yield _rate_row(
            section, system, f"GPU utilisation with {TITLES[system]}", 100 * published, busy, unit="%"
        )


@PAPER.check()
def check_waiting(section: Section) -> Iterator[Row]:
    """Yields rows comparing the GPU's waiting time per step, and the number of steps within 15 s."""
    given, there = section.figures, GIVEN["table2"]
    for system, published in given["iterations"].items():
        what = f"iterations in {given['seconds']} s with {TITLES[system]}"
        ours = given["seconds"] * _table_samples_per_s(there, system, given["gbit_per_s"]) / there["batch"]
        yield _rate_row(section, f"{system}-iterations", what, published, ours, unit="iterations")
    bandwidth = given["gbit_per_s"] * GBIT_BYTES_PER_S
    cluster, options = (
        cluster_with_straggler(there["workers"], 1, bandwidth),
        RunOptions(steps=STEPS, until="all"),
    )
    waits = {}
    for system in ("prophet", "bytescheduler", "mxnet"):
        ordered = system_schedule(mean_step(there["model"], there["batch"]), system, bandwidth)
        timeline = simulate_timeline(ordered.profile, cluster, ordered.policy, "sync", options)
        waits[system] = float(idle_s(timeline).mean())
    words = ", ".join(f"{TITLES[s]} {1e3 * wait:.0f} ms" for s, wait in waits.items())
    holds, claimed = list(waits.values()) == sorted(waits.values()), "Prophet, then ByteScheduler, then MXNet"
    what = "who waits least for parameters in a step, at 3 Gbit/s"
    yield section.stated("order", what, claimed, words, holds, "same order")
