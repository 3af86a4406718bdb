"""How fast the engine is: ratios of CPU time, all measured in this one run, medians of five.

    python benchmarks/speed/engine.py            # everything, about a minute
    python benchmarks/speed/engine.py --json     # the same for machines

Graphs have the sizes of the paper's: AlexNet's about 100 ops, Inception-v3's about 2,000, ResNet-152's 4,700.
"General" graphs break the conditions of the fast path by one edge: what ran ahead may have to be undone.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from planner.simulator import reference
from planner.simulator.cluster import Cluster
from planner.simulator.inputs import Inputs, prepare_inputs
from planner.simulator.policy import Joins, Multiplexed
from planner.simulator.run import RunOptions, run_with_engine
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile

REPEATS = 5
BANDWIDTH_BYTES_PER_S = 1.25e9


@dataclass(frozen=True)
class Size:
    name: str
    tensors: int
    compute_ops: int
    branches: int
    parameter_bytes: int
    compute_s: float


SIZES = (
    Size("alexnet", 16, 52, 1, 249_000_000, 0.2),
    Size("inception3", 190, 1430, 4, 95_000_000, 0.3),
    Size("resnet152", 467, 3300, 2, 241_000_000, 0.5),
)


def step_graph(size: Size, servers: int = 1, general: bool = False, rows: int = 20) -> Profile:
    """Downloads, a forward and a backward pass of `compute_ops` ops in all, uploads, updates."""
    rng = np.random.default_rng(1)
    ops: list[Op] = []

    def add(name: str, resource: int, server: int = -1, size: int = 0, deps: tuple[int, ...] = ()) -> int:
        tensor = int(name.split("/")[1]) if resource != WORKER else -1
        ops.append(Op(name, resource, server, size, deps, tensor))
        return len(ops) - 1

    weights = rng.pareto(1.2, size.tensors) + 0.01
    sizes = np.maximum(1024, size.parameter_bytes * weights / weights.sum()).astype(int)
    load = [0] * servers
    server_of = []
    for i in range(size.tensors):  # greedy by bytes
        server_of.append(int(np.argmin(load)))
        load[server_of[-1]] += int(sizes[i])
    down = [add(f"down/{i}", DOWNLINK, server_of[i], int(sizes[i])) for i in range(size.tensors)]
    half = size.compute_ops // 2
    starts = {i * half // size.tensors: i for i in range(size.tensors)}  # compute op -> the tensor it uses
    forward = [add("f/00000", WORKER, deps=(down[0],))]
    inputs, ends = forward[0], [forward[0]] * size.branches
    for i in range(1, half):  # modules of parallel branches, three ops long, which the next module joins
        place = (i - 1) % (3 * size.branches + 1)
        tensor = (down[starts[i]],) if i in starts else ()
        if place == 3 * size.branches:
            inputs = add(f"f/{i:05}", WORKER, deps=(*dict.fromkeys(ends), *tensor))
            ends = [inputs] * size.branches
        else:
            branch = place % size.branches
            previous = inputs if place < size.branches else ends[branch]
            ends[branch] = add(f"f/{i:05}", WORKER, deps=(previous, *tensor))
    back = add("loss", WORKER, deps=tuple(dict.fromkeys(ends)))
    for i in reversed(range(half)):
        back = add(f"b/{i:05}", WORKER, deps=(back,))
        if i in starts:
            tensor_up = starts[i]
            up = add(f"up/{tensor_up}", UPLINK, server_of[tensor_up], int(sizes[tensor_up]), (back,))
            add(f"update/{tensor_up}", PS, server_of[tensor_up], 0, (up,))
    if general:  # a computation that waits for an update
        updates = tuple(i for i, op in enumerate(ops) if op.resource == PS)[-1:]
        add("bookkeeping", WORKER, deps=updates)
    compute = np.array([op.resource == WORKER for op in ops])
    durations = rng.gamma(2.0, 1.0, (rows, len(ops))) * compute
    durations *= size.compute_s / durations.sum(axis=1, keepdims=True)
    return Profile.build(
        ops,
        durations,
        model=size.name,
        batch=32,
        servers=servers,
        tensors=[str(i) for i in range(size.tensors)],
    )


def cpu_s(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def inputs_for(profile: Profile, workers: int, steps: int, **options: object) -> Inputs:
    cluster = Cluster.uniform(workers, profile.servers, BANDWIDTH_BYTES_PER_S)
    run = RunOptions(steps=steps, **options)  # type: ignore[arg-type]
    return prepare_inputs(profile, cluster, Multiplexed(), Joins.none(profile.ops), run)


def engine_s_per_event(inputs: Inputs) -> float:
    events = 0

    def go() -> None:
        nonlocal events
        events = run_with_engine(inputs).events

    seconds = cpu_s(go)
    return seconds / events


def median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))


def steps_for(profile: Profile, workers: int, events: int) -> int:
    return max(2, math.ceil(events / (profile.ops * workers)))


def against_reference() -> Iterator[dict[str, object]]:
    """Events per second of the engine over those of the reference."""
    for size in SIZES:
        for general in (True, False):
            profile = step_graph(size, general=general)
            for workers in (1, 8, 32):
                slow = inputs_for(profile, workers, steps_for(profile, workers, 20_000))
                fast = inputs_for(profile, workers, steps_for(profile, workers, 3_000_000))
                path = run_with_engine(slow).path

                def ratio(slow: Inputs = slow, fast: Inputs = fast) -> float:
                    events = 0

                    def go() -> None:
                        nonlocal events
                        events = reference.run(slow).events

                    seconds = cpu_s(go)
                    return seconds / events / engine_s_per_event(fast)

                target = 250 if path.startswith("lazy") and profile.ops > 3000 else 100
                yield {
                    "what": f"{size.name} ({profile.ops} ops), W={workers}, {path}: engine / reference",
                    "ratio": median(ratio),
                    "at_least": target,
                    "engine_ns_per_event": 1e9 * engine_s_per_event(fast),
                }


def against_one_server() -> Iterator[dict[str, object]]:
    """CPU time of the same model on 2 to 4 servers over one server's, a step of a worker."""
    for size in SIZES:
        for workers in (8, 32):
            result = step_graph(size)
            steps = steps_for(result, workers, 1_000_000)
            first = inputs_for(result, workers, steps)
            for servers in (2, 3, 4):
                many = inputs_for(step_graph(size, servers), workers, steps)
                yield {
                    "what": f"{size.name}, W={workers}, {servers} servers / 1",
                    "ratio": median(lambda m=many, f=first: engine_s_per_event(m) / engine_s_per_event(f)),  # type: ignore[misc]
                    "at_most": 1.5,
                    "engine_ns_per_event": 1e9 * median(lambda m=many: engine_s_per_event(m)),  # type: ignore[misc]
                }


def growth() -> Iterator[dict[str, object]]:
    """CPU time at W over W log W, relative to W = 32: at most 1 if it grows no faster."""
    profile = step_graph(SIZES[1])

    def seconds(workers: int) -> float:
        inputs = inputs_for(profile, workers, 10)
        return cpu_s(lambda: run_with_engine(inputs)) / (workers * math.log2(workers))

    for workers in (128, 512):
        yield {
            "what": f"inception3, CPU / (W log W), W={workers} against W=32",
            "ratio": median(lambda w=workers: seconds(w) / seconds(32)),  # type: ignore[misc]
            "at_most": 1.0,
        }


def timeline() -> Iterator[dict[str, object]]:
    """A general graph with the timeline off over on: what a caller without one does not pay."""
    profile = step_graph(SIZES[1], general=True)
    off = inputs_for(profile, 8, 40)
    on = replace(off, options=replace(off.options, timeline=True))
    yield {
        "what": "inception3, W=8: timeline off / on",
        "ratio": median(lambda: engine_s_per_event(off) / engine_s_per_event(on)),
        "at_most": 1.0,
    }


def threads() -> Iterator[dict[str, object]]:
    """Simulations per wall-clock second of two threads over one (needs two free cores)."""
    profile = step_graph(SIZES[1])
    jobs = [inputs_for(profile, 8, 40, run=i) for i in range(16)]

    def wall_s(pool: ThreadPoolExecutor) -> float:
        start = time.perf_counter()
        list(pool.map(run_with_engine, jobs))
        return time.perf_counter() - start

    with ThreadPoolExecutor(1) as handle, ThreadPoolExecutor(2) as two:
        yield {
            "what": "16 simulations, two threads against one",
            "ratio": median(lambda: wall_s(handle) / wall_s(two)),
            "at_least": 1.7,
        }
        # On a busy machine that says little; this shows that threads do not get in each other's way.
        yield {
            "what": "16 simulations, CPU of two threads against one",
            "ratio": median(lambda: cpu_s(lambda: wall_s(two)) / cpu_s(lambda: wall_s(handle))),
            "at_most": 1.15,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="a part: reference, servers, growth, timeline, threads")
    arguments = parser.parse_args()
    parts = {
        "reference": against_reference,
        "servers": against_one_server,
        "growth": growth,
        "timeline": timeline,
        "threads": threads,
    }
    rows = []
    for name, part in parts.items():
        if arguments.only and name != arguments.only:
            continue
        for row in part():
            ratio = float(row["ratio"])  # type: ignore[arg-type]
            row["holds"] = bool(
                ratio >= row.get("at_least", ratio) and ratio <= row.get("at_most", ratio)  # type: ignore[operator]
            )
            rows.append(row)
            if not arguments.json:
                limit = f">= {row['at_least']}" if "at_least" in row else f"<= {row['at_most']}"
                extra = f"  {row['engine_ns_per_event']:.0f} ns/event" if "engine_ns_per_event" in row else ""
                verdict = "" if row["holds"] else "  FALLS SHORT"
                print(f"{row['what']:<72} {ratio:8.2f}  ({limit}){extra}{verdict}", flush=True)
    if arguments.json:
        json.dump(rows, sys.stdout, indent=1)
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
