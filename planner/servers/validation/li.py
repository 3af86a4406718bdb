"""Li et al., asynchronous SGD in TensorFlow (file 000): where training saturates, what a second server and an
order of transfers bring, and how far off and how slow predictions are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.answers.questions import one_plan
from planner.answers.scenario import parse_request
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.search.cases import Cases
from planner.search.executors import executor_of
from planner.search.request import Request, model_of
from planner.search.simulations import Simulations
from planner.servers import ordering
from planner.servers.placement import place_model
from planner.servers.synthesis import GRPC_PARSING, NO_VARIATION, Parsing, profile_for
from planner.servers.validation import testbed
from planner.simulator import simulate
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Multiplexed
from planner.simulator.step import DOWNLINK, WORKER, Profile
from planner.units import GBIT_BYTES_PER_S, MIB
from planner.validation import row
from planner.validation.row import Row, figures

GIVEN: dict[str, Any] = figures("li")
GOODPUT = 0.99  # of a line rate: TCP in frames of 9001 bytes
AS_GOOD = 0.98  # what two simulations to 1% can tell apart
PRECISION, MAX_STEPS = 0.01, 4000
SATURATED, MOST_WORKERS = 0.1, 32  # one more adds less than this share of a single worker
_about = row.of_paper("li")


def _profile(case: Mapping[str, Any], hardware: str, servers: int = 1) -> Profile:
    return profile_for(load_model(case["model"]), case["batch"], load_hardware(hardware), servers)


def _bandwidth(given: Mapping[str, Any]) -> float:
    return float(given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S * GOODPUT)


def saturation_points() -> list[Row]:
    """Workers at which one more adds less than a tenth of a single worker's throughput."""
    given = GIVEN["saturation"]
    how = "one worker after another on a synthesized profile, p3.2xlarge at its burst bandwidth"
    rows = []
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
        about = _about("saturation", f"batch-{batch}", what, how)
        ours = workers_before_saturation(request) or float("nan")
        rows.append(row.close(published, ours, 1, unit="workers", **about))
    return rows


def workers_before_saturation(request: Request) -> int | None:
    """The paper's saturation point: the fewest workers after which one more adds less than a tenth of one
    alone."""
    plan, simulations = one_plan(request), Simulations(Cases(request, model_of(request)))
    with executor_of(None, 1) as pool:
        speeds: list[float] = []
        for workers in range(1, MOST_WORKERS + 1):
            (scored,) = simulations.scored([replace(plan, workers=workers)], pool)
            speeds.append(scored.samples_per_s)
            if workers > 1 and speeds[-1] - speeds[-2] < SATURATED * speeds[0]:
                return workers - 1
    return None


def split() -> list[Row]:
    """VGG-11's parameters on two servers."""
    given, how = GIVEN["split"], "TensorFlow's greedy placement, in the order of creation"
    placed = place_model(load_model(given["model"]), 2)
    ours = sorted((sum(p.bytes for p in placed if p.server == s) / MIB for s in (0, 1)), reverse=True)
    rows = []
    for which, published, mib in zip(("larger", "smaller"), given["mib"], ours, strict=True):
        about = _about("split", which, f"VGG-11 on 2 servers: parameters on the {which} one", how)
        rows.append(row.close(published, mib, 0.5, unit="MiB", **about))
    return rows


def servers() -> list[Row]:
    """What a second server adds once one is saturated: little for VGG-11, more for all others."""
    given = GIVEN["servers"]

    def gain(case: dict[str, str | int]) -> float:
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
    uneven = gain(given["uneven"])
    rest = [gain(case) for case in given["others"]]
    about = _about("servers", "vgg11-256", "VGG-11, batch 256: gain of a second server", how)
    is_least = 0 <= uneven < min(rest)
    rows = [row.stated("marginal", f"{uneven:+.0%}", is_least, "smallest gain of all", **about)]
    for case, ours in zip(given["others"], rest, strict=True):
        what = f"{case['model']}, batch {case['batch']}: gain of a second server"
        about = _about("servers", f"{case['model']}-{case['batch']}", what, how)
        claim = f"above {uneven:+.0%}"
        rows.append(row.stated("more than VGG-11's", f"{ours:+.0%}", ours > uneven, claim, **about))
    return rows


def overhead() -> list[Row]:
    """The share of parsing in communication, at two bandwidths, with the one constant of the package."""
    given = GIVEN["overhead"]
    profile = profile_for(
        load_model("resnet50"),
        32,
        load_hardware("p3.2xlarge"),
        steps=1,
        parsing=Parsing(GRPC_PARSING.alpha_s_per_byte, 0.0),
        variation=NO_VARIATION,
    )
    parse_s = float(profile.durations_s[0, profile.parses & (profile.resource == WORKER)].sum())
    how = "parse ops against transfers of a synthesized step; the cost of a byte was chosen for 1 Gbit/s"
    rows = []
    for speed in ("slow", "fast"):
        gbit = given[f"{speed}_gbit_per_s"]
        transfer_s = float(profile.bytes[profile.resource == DOWNLINK].sum()) / (gbit * GBIT_BYTES_PER_S)
        what = f"share of parsing in communication at {gbit} Gbit/s"
        published, ours = 100 * given[f"{speed}_share"], 100 * parse_s / (parse_s + transfer_s)
        about = _about("overhead", f"{gbit}-gbit", what, how)
        rows.append(row.close(published, ours, 0.1, unit="%", **about))
    return rows


def orders() -> list[Row]:
    """Ordered transfers against multiplexed ones, TIC against reverse and random."""
    given = GIVEN["orders"]
    bandwidth, how = _bandwidth(given), "simulated, synthesized profile of private-opteron, 1 Gbit/s, async"
    rows = []
    for case in given["models"]:
        model, batch = case["model"], case["batch"]
        profile = _profile(case, given["hardware"])
        policies = {
            name: ordering.order(profile, name, bandwidth_bytes_per_s=bandwidth)
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
                what = f"{model}, batch {batch}, {row.workers(workers)}: TIC over {rival}"
                about = _about("orders", f"{model}-w{workers}-{rivals[0]}", what, how)
                claim = "at or above, to 2%"
                rows.append(
                    row.stated(
                        f"TIC at or above {rival}", f"{gain - 1:+.1%}", gain >= AS_GOOD, claim, **about
                    )
                )
    return rows


def errors() -> list[Row]:
    """How far our predictions are from real runs, beside how far its own were."""
    array = np.array([abs(point.error) for point in testbed.compared()])
    how = f"{len(array)} points of real TensorFlow runs (`planner validate testbed`)"
    rows = []
    for name, where, share, words in (
        ("nine-in-ten", "private_cluster", 0.9, "9 of 10 points (its private cluster: all)"),
        ("all", "cloud", 1.0, "all points (its cloud: most)"),
    ):
        most, ours = 100 * GIVEN["errors"][where], round(100 * float(np.quantile(array, share)), 1)
        about = _about("errors", name, f"error on real runs, {words}", how)
        rows.append(row.at_most(most, ours, most, unit="%", **about))
    return rows


def speed() -> list[Row]:
    """CPU time of a prediction of 1,000 steps a worker, against the time that 100 steps of training take."""
    given = GIVEN["speed"]
    how = f"CPU time of 1,000 simulated steps a worker, {given['workers']} workers, one thread"
    cluster = Cluster.uniform(given["workers"], 1, _bandwidth(given))
    rows = []
    for case in given["models"]:
        model, batch = case["model"], case["batch"]
        profile = _profile(case, given["hardware"])
        start = time.thread_time()
        prediction = simulate(profile, cluster, precision=1e-9, max_steps=given["simulated_steps"])
        spent_s = time.thread_time() - start
        training_s = given["steps"] * prediction.step_s
        what = f"{model}, batch {batch}: time of 100 training steps over that of predicting"
        about = _about("speed", f"{model}-{batch}", what, how)
        times, faster = f"{training_s / spent_s:,.0f} times", spent_s < training_s
        rows.append(
            replace(row.stated("predicting is faster", times, faster, "above 1", **about), varies=True)
        )
    return rows


CHECKS = {
    "saturation": saturation_points,
    "split": split,
    "servers": servers,
    "overhead": overhead,
    "orders": orders,
    "errors": errors,
    "speed": speed,
}
