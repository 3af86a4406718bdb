"""Figures of the papers on parameter servers beside ours.

    python benchmarks/accuracy/papers.py               all parts
    python benchmarks/accuracy/papers.py orders        speed of TIC and TAC, how close to the best they come,
                                                       what sync training gains; TicTac, file 004, Prophet
    python benchmarks/accuracy/papers.py layers        Yan et al. (KDD 2015), section 6: the published result,
                                                       copies of an output layer by every reading of the
                                                       paper (docs/parameter-servers.md), speed of the search
    python benchmarks/accuracy/papers.py machines      runs on machines with several GPUs

Machines: TensorFlow's and MXNet's own tables (planner/validation/data/served_machines.csv): K80 machines of
EC2, servers beside the workers, synchronous. Both frameworks sum gradients inside a machine first
(`machine`); counting every GPU as a worker that talks to the servers (`device`) stands beside it. The larger
runs are predicted twice: from the run on one GPU, and those on several machines from the run on one machine,
which knows what its GPUs lose to each other: both frameworks summed on one GPU at that time, not in a ring.
"""

from __future__ import annotations

import csv
import itertools
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.device.computation import Computation
from planner.device.computation.synthesis import synthesize_computation
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model import BYTES_PER_ELEMENT
from planner.model.catalog import load_model
from planner.parallel.data import Site
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.servers.ordering.graph import StepGraph
from planner.servers.ordering.strategies import tac_order, tic_order
from planner.servers.orders import cluster_with_straggler, compare_orders
from planner.servers.parameter_servers import ParameterServers
from planner.servers.partition.costs import StageChoice, stage_split
from planner.servers.partition.layers import constants_for
from planner.servers.partition.search import PartitionRequest, partition, read_cost_s_per_byte
from planner.servers.partition.stages import stages_of
from planner.servers.synthesis import profile_for
from planner.servers.validation.prophet import GIVEN, PUSH_S, mean_step, worker_samples_per_s
from planner.servers.validation.yan import most_samples_within, samples_within
from planner.simulator import simulate
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


def ordering_speed() -> None:
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
            cluster = cluster_with_straggler(4, 1, 4 * size / compute_s / rho)
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
                cluster = cluster_with_straggler(given["workers"], 1, bandwidth)
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


def orders() -> None:
    ordering_speed()
    distance_from_best()
    sync_training()
    print()
    emit(validation_tables(validate(["ordering_abstract", "tictac"])))
    print("\nProphet (ICPP 2021)")
    prophet()


BEST_S, WORST_S = 11.88 * 60, 218.08 * 60
CLUSTER = "private-2xe5-2450-10gbe"
USUAL = PartitionRequest(1)  # machines are as many as a plan names


def paper() -> None:
    emit(validation_tables(validate(["yan"])))


def limits() -> None:
    """What the paper's own figures allow, whatever our widths and constants."""
    model, hardware = load_model("imagenet22k-adam"), load_hardware(CLUSTER)
    plans = partition(model, hardware, PartitionRequest(20, max_workers=4)).plans
    best, worst = plans[0], plans[-1]
    peak = most_samples_within(model, hardware, best.workers * best.replicas, BEST_S)
    print(f"images in 11.88 min: {peak:,.0f} on 16 workers at their peak (the data set: over 15,000,000)")
    images = samples_within(worst, WORST_S)
    print(
        f"images from the worst epoch, 218.08 min on {worst.name}: {images:,.0f}; the best, {best.name}, "
        f"then takes {images / best.samples_per_s / 60:.2f} min (published: 11.88)"
    )
    images = samples_within(best, BEST_S)
    print(
        f"images from the best epoch, 11.88 min on {best.name}: {images:,.0f}; the worst, {worst.name}, "
        f"then takes {images / worst.samples_per_s / 60:.1f} min (published: 218.08)"
    )
    print("output layer cut in 4 or in 4 copies, ms a sample: computing + activations + reading")
    for way in copy_readings("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4)):
        cut, copied = (
            " + ".join(f"{1e3 * part:.2f}" for part in parts) + f" = {1e3 * sum(parts):.2f}"
            for parts in (way.partitioned_s, way.replicated_s)
        )
        print(f"  {way.name}: parts {cut}, copies {copied}")
    inputs = copies_pay_below(CLUSTER, 22_000, (4, 4, 4))
    print(f"copies of a layer with 22,000 outputs pay below {inputs:.1f} inputs; ours has 3,000")


def copies_pay_below(hardware: str, outputs: int, shape: tuple[int, int, int]) -> float:
    """The number of inputs of a dense layer below which copies of it beat its parts, in the case best for
    copies: parts exchange all their inputs and, as equation 3 may be read, the error terms of all outputs
    instead of sums of them, at two latencies a sample. Both sides grow with the inputs but for the outputs'
    errors, while copies read inputs times outputs."""
    c = constants_for(load_hardware(hardware))
    workers = shape[0]
    remote = (workers - 1) / workers * BYTES_PER_ELEMENT / c.nic_bytes_per_s  # seconds an element
    latency = 2 * c.latency_s[-1] / c.threads
    read = (workers - 1) * outputs * BYTES_PER_ELEMENT
    price = read_cost_s_per_byte(c, USUAL, *shape)
    return (outputs * remote + latency) / (read * price - remote)


class CopyReading(NamedTuple):
    """One way to read the paper on partitioning against replicating a layer: computing, activations and
    reading of the layer in seconds a sample of a replica, with as many parts as workers or as many copies."""

    name: str
    partitioned_s: tuple[float, float, float]
    replicated_s: tuple[float, float, float]


def copy_readings(
    model: str,
    hardware: str,
    layer: str,
    shape: tuple[int, int, int],
) -> list[CopyReading]:
    """A dense layer behind one that is cut, alone, by every way that we see to read section 6.4 and equations
    6 and 10 to 12. From the second line on parts exchange all they can: their inputs, the errors of their
    inputs, all outputs (for the softmax) and the error terms of all outputs."""
    c = constants_for(load_hardware(hardware))
    stage = next(stage for stage in stages_of(load_model(model)) if stage.name == layer)
    workers, replicas, servers = shape
    element_s, latency_s = BYTES_PER_ELEMENT / c.nic_bytes_per_s, c.latency_s[-1] / c.threads
    remote = (workers - 1) / workers

    def computing(cache_bytes: float, partitions: int, replications: int) -> float:
        choice = StageChoice(partitions, replications, c.threads)
        return stage_split(replace(c, cache_bytes=cache_bytes), stage, choice).compute_s

    cut, copied = computing(c.cache_bytes, workers, 1), computing(c.cache_bytes, 1, workers)
    cached = computing(math.inf, workers, 1)
    inputs = 2 * (remote * stage.in_elements * element_s + latency_s)
    everything = inputs + 2 * (remote * stage.out_elements * element_s + latency_s)
    copies = (remote / workers + 1 / workers) * stage.in_elements * element_s + (1 + 1 / workers) * latency_s
    read = stage.weight_bytes / (c.nic_bytes_per_s * min(workers, servers) * USUAL.read_every)
    alone = stage.weight_bytes / (c.nic_bytes_per_s * USUAL.read_every * workers)
    turns, h = replicas * read, c.threads
    return [
        CopyReading("as we count", (cut, inputs, turns), (copied, copies, workers * turns)),
        CopyReading(
            "all outputs and errors travel", (cut, everything, turns), (copied, copies, workers * turns)
        ),
        CopyReading(
            "and threads do not share a wait",
            (cut, h * everything, turns),
            (copied, h * copies, workers * turns),
        ),
        CopyReading(
            "only the reading replica waits", (cut, everything, read), (copied, copies, workers * read)
        ),
        CopyReading(
            "each copy reads after its own samples, only it waits",
            (cut, everything, read),
            (copied, copies, alone),
        ),
        CopyReading("copies are read once", (cut, everything, turns), (copied, copies, turns)),
        CopyReading(
            "copies are read once, no cache effect", (cached, everything, turns), (cached, copies, turns)
        ),
    ]


def partition_speed() -> None:
    hardware = load_hardware(CLUSTER)
    partition(load_model("mnist-adam"), hardware, PartitionRequest(4))  # imports
    for name, machines, limit in (("inception3", 16, 2.0), ("resnet152", 64, 10.0)):
        model = load_model(name)
        start = time.process_time()
        result = partition(model, hardware, PartitionRequest(machines, samples=1_281_167))
        spent = time.process_time() - start
        gap = max(plan.gap for plan in result.plans[:20])
        print(
            f"{name} on {machines} machines: {spent:.2f} CPU s (limit {limit:.0f}), {result.considered} "
            f"configurations, 10^{result.combinations:.0f} ways to spread the layers, best "
            f"{result.plans[0].name}, at most {gap:.2%} from optimal"
        )


def layers() -> None:
    paper()
    limits()
    partition_speed()


DATA = Path(__file__).parents[2] / "planner" / "validation" / "data" / "served_machines.csv"
AGGREGATES = ("device", "machine")
MOST_DEVICES = 64  # more are in the table; a step of 128 workers that download 190 tensors each takes minutes


def rows() -> list[dict[str, str]]:
    with DATA.open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def computation(model: str, batch: int, machine: str, images_per_s: float) -> Computation:
    """The step of one GPU, as long as it was measured."""
    hardware = load_hardware(machine)
    once = synthesize_computation(load_model(model), batch, hardware)
    assert once.once_s is not None
    seconds = float(once.once_s.sum()) + once.optimizer_s
    factor = batch / images_per_s / seconds
    return replace(
        once,
        durations_s=once.durations_s * factor,
        once_s=once.once_s * factor,
        optimizer_s=once.optimizer_s * factor,
    )


def predict(row: dict[str, str], alone: float, choices: dict[str, Any]) -> float:
    """Images a second."""
    hardware, workers = load_hardware(row["machine"]), int(row["devices"])
    exchange = ParameterServers(
        servers=int(row["servers"]), host=None, placement=row["placement"], mode="sync", **choices
    )
    site = Site(hardware, workers, Market(network="burst"))
    case = exchange.lower(computation(row["model"], int(row["batch"]), row["machine"], alone), site)
    result = simulate(
        case.profile, case.cluster, case.policy, case.mode, joins=case.joins, max_steps=60, precision=0.03
    )
    return result.samples_per_s


def rate_of_one(row: dict[str, str], alone: float, choices: dict[str, Any]) -> float:
    """What one GPU would make by itself for a run to come out as measured."""
    measured, rate = float(row["images_per_s"]), alone
    for _ in range(2):
        rate *= measured / predict(row, rate, choices)
    return rate


def machines() -> None:
    series: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows():
        series[row["framework"], row["machine"], row["model"], row["batch"]].append(row)
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, entry in series.items():
        alone = next(float(row["images_per_s"]) for row in entry if row["devices"] == "1")
        full = load_hardware(entry[0]["machine"]).device_count
        in_one = next(row for row in entry if int(row["devices"]) == full)
        inside = {name: rate_of_one(in_one, alone, {"aggregate": name}) for name in AGGREGATES}
        for row in entry:
            devices = int(row["devices"])
            if not full <= devices <= MOST_DEVICES:
                continue
            cells = []
            for name in AGGREGATES:
                for base, rate in (("one GPU", alone), ("one machine", inside[name])):
                    if base == "one machine" and devices == full:
                        continue
                    error = predict(row, rate, {"aggregate": name}) / float(row["images_per_s"]) - 1
                    errors[name, base].append(abs(error))
                    cells.append(f"{name} {error:+6.1%}" if base == "one GPU" else f"({error:+6.1%})")
            print(f"{' '.join(key):45} {devices:4} GPUs  {row['servers']:>2} servers  {'  '.join(cells)}")
    for (name, base), values in errors.items():
        print(
            f"{name}, from {base}: mean error {np.mean(values):.1%} over {len(values)} runs, median "
            f"{np.median(values):.1%}, worst {max(values):.0%}"
        )


PARTS = {"orders": orders, "layers": layers, "machines": machines}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
