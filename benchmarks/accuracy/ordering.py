"""Orders of transfers: speed of TIC and TAC, how close to the best they come, what sync training gains by the
ratio of communication to computation; then what `planner validate` says of TicTac, file 004 and Prophet.

Run: python benchmarks/accuracy/ordering.py
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence

import numpy as np

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.servers.ordering.graph import StepGraph
from planner.servers.ordering.strategies import tac_order, tic_order
from planner.servers.orders import compare_orders, order_cluster
from planner.servers.synthesis import profile_for
from planner.servers.validation.prophet import GIVEN, PUSH_S, mean_step, worker_samples_per_s
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Ordered
from planner.simulator.run import RunOptions, run
from planner.simulator.step import DOWNLINK, WORKER, Op, Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation import validate

MB_PER_S = 1e6
M60 = "g3.8xlarge"


def step_s(profile: Profile, pulls: Sequence[int], bandwidth_bytes_per_s: float) -> float:
    """A step of one worker under a fixed order."""
    priorities = {profile.names[op]: float(rank) for rank, op in enumerate(pulls)}
    cluster = Cluster.uniform(1, 1, bandwidth_bytes_per_s)
    return run(profile, cluster, Ordered(priorities=priorities), "async", RunOptions(steps=1)).end_s


def speed() -> None:
    print("CPU time of an order                transfers      TIC      TAC    released TAC")
    released = {"inception3": "8.3 s (190 transfers)", "resnet152": "15.8 s (210 transfers)"}
    for model, published in released.items():
        profile = profile_for(load_model(model), 32, load_hardware(M60))
        start = time.process_time()
        graph = StepGraph.build(profile)
        built = time.process_time()
        tic_order(graph)
        tic_done = time.process_time()
        tac_order(graph, 1.25e9)
        tac_done = time.process_time()
        tic_s, tac_s = tic_done - start, tac_done - tic_done + built - start
        print(f"  {model:<34}{len(graph.pulls):>8}{tic_s:>8.3f}s{tac_s:>8.3f}s   {published}")


def random_dag(seed: int, transfers: int = 5, ops: int = 8) -> Profile:
    """Ops that read random earlier ops and downloads; every download is read by someone."""
    draw = random.Random(seed)
    out = [Op(f"r{i}", DOWNLINK, 0, draw.randint(1, 9) * 10**5) for i in range(transfers)]
    for i in range(ops):
        deps = {draw.randrange(transfers + i) for _ in range(draw.randint(1, 3))}
        out.append(Op(f"op{i}", WORKER, deps=tuple(sorted(deps | ({i} if i < transfers else set())))))
    seconds = [0.0] * transfers + [draw.randint(1, 9) / 10 for _ in range(ops)]
    return Profile.build(out, seconds, model="random", batch=1)


def distance_from_best(count: int = 60) -> None:
    excess: dict[str, list[float]] = {"TAC": [], "TIC": [], "consumption": [], "random": []}
    for seed in range(count):
        profile = random_dag(seed)
        graph = StepGraph.build(profile)
        times = [step_s(profile, p, MB_PER_S) for p in itertools.permutations(graph.pulls)]
        by_name = {
            "TAC": step_s(profile, tac_order(graph, MB_PER_S), MB_PER_S),
            "TIC": step_s(profile, tic_order(graph), MB_PER_S),
            "consumption": step_s(profile, graph.pulls, MB_PER_S),
            "random": float(np.mean(times)),
        }
        for name, value in by_name.items():
            excess[name].append(value / min(times) - 1)
    print(f"\n{count} random DAGs of 5 downloads: step over the best of all 120 orders")
    for name, values in excess.items():
        best = np.mean(np.array(values) < 1e-9)
        print(f"  {name:<12} mean {np.mean(values):+.1%}, worst {np.max(values):+.1%}, best in {best:.0%}")


def sync_training() -> None:
    """File 001, Figures 9, 11 and 14: TIC against no order where communication is less, as much, or more."""
    print("\nsync training, 4 workers, 1 server, barrier: TIC against no order (published: up to +19.2%,")
    print("stragglers up to 2.3 times fewer; about 0, or -4.2%, where there is nothing to overlap)")
    print("  model, batch              rho    gain   straggler share without, with    unique orders")
    for model, batch in (("inception3", 32), ("resnet50", 32), ("vgg16", 32)):
        profile = profile_for(load_model(model), batch, load_hardware(M60))
        compute_s = float(profile.durations_s.mean(axis=0)[profile.resource == WORKER].sum())
        size = float(profile.bytes[profile.is_transfer].sum())
        for rho in (0.05, 1.0, 20.0):
            cluster = order_cluster(4, 1, 4 * size / compute_s / rho)
            result = compare_orders(profile, cluster, ["tic"], barrier=True)
            none, tic = result.results
            print(
                f"  {model + ', ' + str(batch):<24}{rho:>5g}{tic.gain:>+8.1%}"
                f"{none.straggler_share:>14.1%}{tic.straggler_share:>8.1%}"
                f"{none.orders_seen:>20}/{none.orders_of} {tic.orders_seen}/{tic.orders_of}"
            )


def alternatives() -> None:
    """Mean error of Table 2 by column under other readings."""
    given = GIVEN["table2"]
    profile = mean_step(given["model"], given["batch"])
    print("\nmean error of Table 2 under other readings   Prophet  ByteScheduler     P3")

    def row(what: str, push_s: float, pull_s: float = 0.0, **instead: str) -> None:
        cells = []
        for system in given["systems"]:
            errors = []
            for gbit, published in zip(given["gbit_per_s"], given[system], strict=True):
                bandwidth = gbit * GBIT_BYTES_PER_S
                cluster = order_cluster(given["workers"], 1, bandwidth)
                result = worker_samples_per_s(
                    profile, instead.get(system, system), cluster, bandwidth, push_s=push_s, pull_s=pull_s
                )
                errors.append(result / published - 1)
            cells.append(f"{np.mean(np.abs(errors)):>10.1%}")
        print(f"  {what:<40}{''.join(cells)}")

    for push_s in (0.0, 0.001, 0.0015, 0.002, 0.0025, 0.003):
        row(f"{push_s * 1e3:.1f} ms a push", push_s)
    row("2 ms a push and a pull", PUSH_S, PUSH_S)
    row("ByteScheduler with priorities and credit", PUSH_S, bytescheduler="credit")


def prophet() -> None:
    """Prophet's tables beside ours; `planner/servers/validation/prophet.py` states how we read the paper."""
    rows = validate(["prophet"])
    emit(validation_tables(rows))
    errors = [abs(row.error) for row in rows if row.error is not None]
    print(f"mean error of {len(errors)} figures: {np.mean(errors):.1%}")
    alternatives()


def main() -> None:
    speed()
    distance_from_best()
    sync_training()
    print()
    emit(validation_tables(validate(["ordering_abstract", "tictac"])))
    print("\nProphet (ICPP 2021)")
    prophet()


if __name__ == "__main__":
    main()
