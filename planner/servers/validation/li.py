"""Li et al., asynchronous SGD in TensorFlow (file 000): where training saturates, what a second server and an
order of transfers bring, and how far off and how slow predictions are."""

from __future__ import annotations

import time
from dataclasses import replace

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
from planner.simulator.step import DOWNLINK, WORKER
from planner.units import GBIT_BYTES_PER_S, MIB
from planner.validation import row
from planner.validation.row import Row, RowName, figures

GOODPUT = 0.99  # of a line rate: TCP in frames of 9001 bytes
AS_GOOD = 0.98  # what two simulations to 1% can tell apart
PRECISION, MAX_STEPS = 0.01, 4000
SATURATED, MOST_WORKERS = 0.1, 32  # one more adds less than this share of a single worker


def _source(section: str) -> str:
    return f"{figures('li')['paper']}, {figures('li')[section]['source']}"


def saturation_points() -> list[Row]:
    """Workers at which one more adds less than a tenth of a single worker's throughput."""
    given = figures("li")["saturation"]
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
        result = workers_before_saturation(request)
        rows.append(
            row.close(
                published,
                result or float("nan"),
                1,
                unit="workers",
                name=RowName("li", "saturation", f"batch-{batch}"),
                what=f"Inception-v3, batch {batch}: workers before saturation",
                how="one worker after another on a synthesized profile, p3.2xlarge at its burst bandwidth",
                source=_source("saturation"),
            )
        )
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
    given = figures("li")["split"]
    placed = place_model(load_model(given["model"]), 2)
    ours = sorted((sum(p.bytes for p in placed if p.server == s) / MIB for s in (0, 1)), reverse=True)
    return [
        row.close(
            published,
            mib,
            0.5,
            unit="MiB",
            name=RowName("li", "split", which),
            what=f"VGG-11 on 2 servers: parameters on the {which} one",
            how="TensorFlow's greedy placement, in the order of creation",
            source=_source("split"),
        )
        for which, published, mib in zip(("larger", "smaller"), given["mib"], ours, strict=True)
    ]


def servers() -> list[Row]:
    """What a second server adds once one is saturated: little for VGG-11, more for all others."""
    given = figures("li")["servers"]
    hardware = load_hardware(given["hardware"])
    bandwidth = given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S * GOODPUT

    def gain(case: dict[str, str | int]) -> float:
        rates = [
            simulate(
                profile_for(load_model(str(case["model"])), int(case["batch"]), hardware, servers=count),
                Cluster.uniform(given["workers"], count, bandwidth),
                precision=0.02,
                max_steps=300,
            ).samples_per_s
            for count in (1, 2)
        ]
        return rates[1] / rates[0] - 1

    how = f"simulated, synthesized profiles, {given['workers']} workers, 10 Gbit/s, greedy placement"
    uneven = gain(given["uneven"])
    rest = [gain(case) for case in given["others"]]
    rows = [
        row.stated(
            "marginal",
            f"{uneven:+.0%}",
            0 <= uneven < min(rest),
            "smallest gain of all",
            name=RowName("li", "servers", "vgg11-256"),
            what="VGG-11, batch 256: gain of a second server",
            how=how,
            source=_source("servers"),
        )
    ]
    for case, ours in zip(given["others"], rest, strict=True):
        rows.append(
            row.stated(
                "more than VGG-11's",
                f"{ours:+.0%}",
                ours > uneven,
                f"above {uneven:+.0%}",
                name=RowName("li", "servers", f"{case['model']}-{case['batch']}"),
                what=f"{case['model']}, batch {case['batch']}: gain of a second server",
                how=how,
                source=_source("servers"),
            )
        )
    return rows


def overhead() -> list[Row]:
    """The share of parsing in communication, at two bandwidths, with the one constant of the package."""
    given = figures("li")["overhead"]
    parsing = Parsing(GRPC_PARSING.alpha_s_per_byte, 0.0)
    profile = profile_for(
        load_model("resnet50"),
        32,
        load_hardware("p3.2xlarge"),
        steps=1,
        parsing=parsing,
        variation=NO_VARIATION,
    )
    downloads = profile.resource == DOWNLINK
    parses = [
        op
        for op in np.flatnonzero(profile.resource == WORKER).tolist()
        if len(profile.deps(op)) == 1 and downloads[profile.deps(op)[0]]
    ]
    parse_s = float(profile.durations_s[0, parses].sum())
    rows = []
    for speed in ("slow", "fast"):
        gbit = given[f"{speed}_gbit_per_s"]
        transfer_s = float(profile.bytes[downloads].sum()) / (gbit * GBIT_BYTES_PER_S)
        rows.append(
            row.close(
                100 * given[f"{speed}_share"],
                100 * parse_s / (parse_s + transfer_s),
                0.1,
                unit="%",
                name=RowName("li", "overhead", f"{gbit}-gbit"),
                what=f"share of parsing in communication at {gbit} Gbit/s",
                how="parse ops against transfers of a synthesized step; "
                "the cost of a byte was chosen for 1 Gbit/s",
                source=_source("overhead"),
            )
        )
    return rows


def orders() -> list[Row]:
    """Ordered transfers against multiplexed ones, TIC against reverse and random."""
    given = figures("li")["orders"]
    hardware = load_hardware(given["hardware"])
    bandwidth = given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S * GOODPUT
    rows = []
    for case in given["models"]:
        profile = profile_for(load_model(case["model"]), case["batch"], hardware)
        policies = {
            name: ordering.order(profile, name, bandwidth_bytes_per_s=bandwidth)
            for name in ("tic", "reverse", "random")
        }
        for workers in given["workers"]:
            cluster = Cluster.uniform(workers, 1, bandwidth)
            rates = {
                name: simulate(
                    profile, cluster, policy, precision=PRECISION, max_steps=MAX_STEPS
                ).samples_per_s
                for name, policy in (policies | {"multiplexed": Multiplexed()}).items()
            }
            tic = rates.pop("tic")
            for rival, best in (
                ("multiplexed", rates.pop("multiplexed")),
                ("reverse and random", max(rates.values())),
            ):
                rows.append(
                    row.stated(
                        f"TIC at or above {rival}",
                        f"{tic / best - 1:+.1%}",
                        tic >= AS_GOOD * best,
                        "at or above, to 2%",
                        name=RowName("li", "orders", f"{case['model']}-w{workers}-{rival.split()[0]}"),
                        what=f"{case['model']}, batch {case['batch']}, {row.workers(workers)}: "
                        f"TIC over {rival}",
                        how="simulated, synthesized profile of private-opteron, 1 Gbit/s, async",
                        source=_source("orders"),
                    )
                )
    return rows


def errors() -> list[Row]:
    """How far our predictions are from real runs, beside how far its own were."""
    given = figures("li")["errors"]
    array = np.array([abs(point.error) for point in testbed.compared()])
    how = f"{len(array)} points of real TensorFlow runs (`planner validate testbed`)"
    return [
        row.at_most(
            100 * given[where],
            round(100 * float(np.quantile(array, share)), 1),
            100 * given[where],
            unit="%",
            name=RowName("li", "errors", name),
            what=f"error on real runs, {words}",
            how=how,
            source=_source("errors"),
        )
        for name, where, share, words in (
            ("nine-in-ten", "private_cluster", 0.9, "9 of 10 points (its private cluster: all)"),
            ("all", "cloud", 1.0, "all points (its cloud: most)"),
        )
    ]


def speed() -> list[Row]:
    """CPU time of a prediction of 1,000 steps a worker, against the time that 100 steps of training take."""
    given = figures("li")["speed"]
    hardware = load_hardware(given["hardware"])
    bandwidth = given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S * GOODPUT
    rows = []
    for case in given["models"]:
        profile = profile_for(load_model(case["model"]), case["batch"], hardware)
        cluster = Cluster.uniform(given["workers"], 1, bandwidth)
        start = time.thread_time()
        prediction = simulate(profile, cluster, precision=1e-9, max_steps=given["simulated_steps"])
        spent_s = time.thread_time() - start
        training_s = given["steps"] * prediction.step_s
        stated = row.stated(
            "predicting is faster",
            f"{training_s / spent_s:,.0f} times",
            spent_s < training_s,
            "above 1",
            name=RowName("li", "speed", f"{case['model']}-{case['batch']}"),
            what=f"{case['model']}, batch {case['batch']}: "
            "time of 100 training steps over that of predicting",
            how=f"CPU time of 1,000 simulated steps a worker, {given['workers']} workers, one thread",
            source=_source("speed"),
        )
        rows.append(replace(stated, varies=True))
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
