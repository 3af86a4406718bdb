"""The predictions of one installed version for `gate.py`, as JSON on stdout: `python -I gate_plans.py`.

Only the documented Python API, which old and new versions share.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import planner
from planner.cost.price import cluster_usd_per_hour
from planner.ordering import order

MODELS = {"alexnet": 128, "vgg11": 64, "googlenet": 32, "inception3": 32, "resnet50": 64, "resnet152": 16}
MACHINES = ("p3.2xlarge", "g4dn.xlarge", "g5.xlarge", "c5.4xlarge")
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))  # workers, servers
ORDERED_ON, ORDERED_SHAPE = "p3.2xlarge", (4, 1)

Inputs = tuple[Any, Any, Any, Any]


def plan(model: str, machine: str, shape: tuple[int, int], policy: str, mode: str) -> Inputs:
    workers, servers = shape
    hardware = planner.load_hardware(machine)
    profile = planner.profile_for(planner.load_model(model), MODELS[model], hardware, servers=servers)
    cluster = planner.cluster_of(hardware, workers, servers=servers)
    bandwidth = cluster.nodes[0].egress_bytes_per_s
    chosen = None if policy == "multiplexed" else order(profile, policy, bandwidth_bytes_per_s=bandwidth)
    return profile, cluster, chosen, mode


def grid() -> dict[str, Callable[[], Inputs]]:
    """What is predicted, by a name that says everything."""
    chosen = [
        *((*one, "multiplexed", "async") for one in itertools.product(MODELS, MACHINES, SHAPES)),
        *itertools.product(
            MODELS, (ORDERED_ON,), (ORDERED_SHAPE,), ("fifo", "tic", "tac"), ("async", "sync")
        ),
    ]
    return {
        f"{model} b{MODELS[model]}, {shape[0]} x {machine}, {shape[1]} server(s), {policy}, {mode}": partial(
            plan, model, machine, shape, policy, mode
        )
        for model, machine, shape, policy, mode in chosen
    }


def predicted(make: Callable[[], Inputs], precision: float, seed: int) -> dict[str, Any]:
    try:
        profile, cluster, policy, mode = make()
        found = planner.simulate(profile, cluster, policy, mode, seed=seed, precision=precision)
        price = cluster_usd_per_hour(cluster)
    except planner.PlannerError as error:
        return {"refused": str(error)}
    return {
        "samples_per_s": found.samples_per_s,
        "low": found.samples_per_s_low,
        "high": found.samples_per_s_high,
        "usd_per_hour": price,
    }


def main() -> None:
    precision, seed, only = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    plans = {name: predicted(make, precision, seed) for name, make in grid().items() if only in name}
    json.dump({"version": planner.__version__, "plans": plans}, sys.stdout)


if __name__ == "__main__":
    main()
