"""Checks of Li et al. (throughput prediction of asynchronous SGD in TensorFlow): saturation, gains of a
second server and of transfer orders, and the error and speed of predictions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.answers.questions import parse_request, single_plan
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.simulations import Simulations, executor_of
from planner.servers.ordering import schedule
from planner.servers.placement import place_model
from planner.servers.synthesis import GRPC_PARSING, NO_VARIATION, Parsing, profile_for
from planner.servers.validation import testbed
from planner.simulator import simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.simulator.step import DOWNLINK, WORKER, Profile
from planner.units import GBIT_BYTES_PER_S, MIB
from planner.validation.row import Paper, Row, Section, workers_label

PAPER = Paper("li")
CHECKS = PAPER.checks
GOODPUT = 0.99  # of a line rate: TCP in frames of 9001 bytes
AS_GOOD = 0.98  # what two simulations to 1% can tell apart
PRECISION, MAX_STEPS = 0.01, 4000
SATURATED, MOST_WORKERS = 0.1, 32  # one more adds less than this share of a single worker


def _profile(case: Mapping[str, Any], hardware: str, servers: int = 1) -> Profile:
    """Synthesized profile of a case's model and batch on a machine."""
    return profile_for(load_model(case["model"]), case["batch"], load_hardware(hardware), servers)


def _bandwidth(case: Mapping[str, Any]) -> float:
    """Application bandwidth in bytes per second on the case's link."""
    return float(case["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S * GOODPUT)


@PAPER.check()
def check_saturation(section: Section) -> Iterator[Row]:
    """Yields rows comparing Inception-v3's number of workers before saturation with the paper's, by batch."""
    given = section.figures
    how = "one worker after another on a synthesized profile, p3.2xlarge at its burst bandwidth"
    for batch, published in given["workers"].items():
        request = parse_request(
            input="none",
            model=given["model"],
            batch=batch,
            hardware=given["hardware"],
            network=given["network"],
            exchange="servers",
            precision="fp32",
            interval_width=0.02,
        )
        what = f"Inception-v3, batch {batch}: workers before saturation"
        ours = workers_before_saturation(request) or float("nan")
        yield section.close(f"batch-{batch}", what, published, ours, 1, unit="workers", how=how)


def workers_before_saturation(request: Request) -> int | None:
    """Fewest workers after which one more adds less than a tenth of a single worker's throughput."""
    plan, cases = single_plan(request), Cases(request, model_of(request))
    with executor_of(None, 1) as pool:
        simulations = Simulations(cases, pool)
        speeds: list[float] = []
        for workers in range(1, MOST_WORKERS + 1):
            (scored,) = simulations.score_plans([replace(plan, workers=workers)])
            speeds.append(scored.samples_per_s)
            if workers > 1 and speeds[-1] - speeds[-2] < SATURATED * speeds[0]:
                return workers - 1
    return None


@PAPER.check()
def check_split(section: Section) -> Iterator[Row]:
    """Yields rows comparing VGG-11's parameter bytes on each of two servers with the paper's."""
    given, how = section.figures, "TensorFlow's greedy placement, in the order of creation"
    placed = place_model(load_model(given["model"]), 2)
    ours = sorted((sum(p.bytes for p in placed if p.server == s) / MIB for s in (0, 1)), reverse=True)
    for which, published, mib in zip(("larger", "smaller"), given["mib"], ours, strict=True):
        what = f"VGG-11 on 2 servers: parameters on the {which} one"
        yield section.close(which, what, published, mib, 0.5, unit="MiB", how=how)


@PAPER.check()
def check_servers(section: Section) -> Iterator[Row]:
    """Yields rows comparing the gain of a second server once one is saturated: small for VGG-11, larger for
    the others."""
    given = section.figures

    def second_server_gain(case: dict[str, str | int]) -> float:
        """Relative gain in throughput of a second server."""
        one, two = (
            simulate(
                _profile(case, given["hardware"], count),
                Cluster.uniform(given["workers"], count, _bandwidth(given)),
                precision=0.02,
                max_steps=300,
            ).samples_per_s
            for count in (1, 2)
        )
        return two / one - 1

    how = f"simulated, synthesized profiles, {given['workers']} workers, 10 Gbit/s, greedy placement"
    uneven = second_server_gain(given["uneven"])
    rest = [second_server_gain(case) for case in given["others"]]
    what, is_least = "VGG-11, batch 256: gain of a second server", 0 <= uneven < min(rest)
    yield section.stated(
        "vgg11-256", what, "marginal", f"{uneven:+.0%}", is_least, "smallest gain of all", how=how
    )
    for case, ours in zip(given["others"], rest, strict=True):
        name, claim = f"{case['model']}-{case['batch']}", f"above {uneven:+.0%}"
        what = f"{case['model']}, batch {case['batch']}: gain of a second server"
        yield section.stated(name, what, "more than VGG-11's", f"{ours:+.0%}", ours > uneven, claim, how=how)


@PAPER.check()
def check_overhead(section: Section) -> Iterator[Row]:
    """Yields rows comparing the fraction of communication time spent parsing, at two bandwidths."""
    given = section.figures
    profile = profile_for(
        load_model("resnet50"),
        32,
        load_hardware("p3.2xlarge"),
        steps=1,
        parsing=Parsing(GRPC_PARSING.alpha_s_per_byte, 0.0),
        variation=NO_VARIATION,
    )
    parse_s = float(profile.durations_s[0, profile.is_parsing & (profile.resource == WORKER)].sum())
    how = "parse ops against transfers of a synthesized step; the cost of a byte was chosen for 1 Gbit/s"
    for speed in ("slow", "fast"):
        gbit = given[f"{speed}_gbit_per_s"]
        transfer_s = float(profile.bytes[profile.resource == DOWNLINK].sum()) / (gbit * GBIT_BYTES_PER_S)
        published, ours = 100 * given[f"{speed}_share"], 100 * parse_s / (parse_s + transfer_s)
        what = f"share of parsing in communication at {gbit} Gbit/s"
        yield section.close(f"{gbit}-gbit", what, published, ours, 0.1, unit="%", how=how)


@PAPER.check()
def check_orders(section: Section) -> Iterator[Row]:
    """Yields rows comparing ordered with multiplexed transfers, and TIC with reverse and random orders."""
    given = section.figures
    bandwidth, how = _bandwidth(given), "simulated, synthesized profile of private-opteron, 1 Gbit/s, async"
    for case in given["models"]:
        model, batch = case["model"], case["batch"]
        profile = _profile(case, given["hardware"])
        policies = {
            name: schedule(profile, name, bandwidth_bytes_per_s=bandwidth).policy
            for name in ("tic", "reverse", "random")
        } | {"multiplexed": Multiplexed()}
        for workers in given["workers"]:
            cluster = Cluster.uniform(workers, 1, bandwidth)
            rate = {
                name: simulate(
                    profile, cluster, policy, precision=PRECISION, max_steps=MAX_STEPS
                ).samples_per_s
                for name, policy in policies.items()
            }
            for rivals in (("multiplexed",), ("reverse", "random")):
                rival, gain = " and ".join(rivals), rate["tic"] / max(rate[name] for name in rivals)
                what = f"{model}, batch {batch}, {workers_label(workers)}: TIC over {rival}"
                claimed, holds = f"TIC at or above {rival}", gain >= AS_GOOD
                name, claim = f"{model}-w{workers}-{rivals[0]}", "at or above, to 2%"
                yield section.stated(name, what, claimed, f"{gain - 1:+.1%}", holds, claim, how=how)


@PAPER.check()
def check_errors(section: Section) -> Iterator[Row]:
    """Yields rows comparing the errors of our predictions on real runs with the paper's."""
    array = np.array([abs(point.error) for point in testbed.compared_points()])
    how = f"{len(array)} points of real TensorFlow runs (`planner validate testbed`)"
    for name, where, share, words in (
        ("nine-in-ten", "private_cluster", 0.9, "9 of 10 points (its private cluster: all)"),
        ("all", "cloud", 1.0, "all points (its cloud: most)"),
    ):
        most, ours = 100 * section.figures[where], round(100 * float(np.quantile(array, share)), 1)
        yield section.at_most(name, f"error on real runs, {words}", most, ours, most, unit="%", how=how)


@PAPER.check()
def check_speed(section: Section) -> Iterator[Row]:
    """Yields rows comparing the CPU time to simulate 1,000 steps per worker with 100 training steps."""
    given = section.figures
    how = f"CPU time of 1,000 simulated steps a worker, {given['workers']} workers, one thread"
    cluster = Cluster.uniform(given["workers"], 1, _bandwidth(given))
    for case in given["models"]:
        model, batch = case["model"], case["batch"]
        profile = _profile(case, given["hardware"])
        start = time.thread_time()
        prediction = simulate(profile, cluster, precision=1e-9, max_steps=given["simulated_steps"])
        spent_s = time.thread_time() - start
        training_s = given["steps"] * prediction.step_s
        what = f"{model}, batch {batch}: time of 100 training steps over that of predicting"
        claimed, times, faster = (
            "predicting is faster",
            f"{training_s / spent_s:,.0f} times",
            spent_s < training_s,
        )
        line = section.stated(f"{model}-{batch}", what, claimed, times, faster, "above 1", how=how)
        yield replace(line, varies=True)
