"""The predictions of one installed version for `gate.py`, as JSON on stdout: `python -I gate_plans.py`.

Only what is documented and what old and new versions share: of steps through servers the Python API, of every
exchange the JSON answer of `planner simulate`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import planner
from planner.hardware.catalog import load_hardware
from planner.servers.ordering import order
from planner.simulator import simulate

MODELS = {"alexnet": 128, "vgg11": 64, "googlenet": 32, "inception3": 32, "resnet50": 64, "resnet152": 16}
MACHINES = ("p3.2xlarge", "g4dn.xlarge", "g5.xlarge", "c5.4xlarge")
SHAPES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))  # workers, servers
ORDERED_ON, ORDERED_SHAPE = "p3.2xlarge", (4, 1)
RUNS = {  # model: batch, number format
    "resnet50": (64, "fp16"),
    "bert-large": (16, "bf16"),
    "gpt2-xl": (2, "bf16"),
}
SITES = {"g5.12xlarge": (4, 8), "p4d.24xlarge": (8, 32), "p5.48xlarge": (8, 64)}
EXCHANGES = ("servers", "allreduce", "sharded", "sharded:stage=1", "owned")
CUT = ("llama3-8b", "1", "bf16", "p5.48xlarge", "32")
CUTS = (("--tensor", "8"), ("--pipeline", "2", "--accumulate", "8"), ("--tensor", "2", "--pipeline", "4"))

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
        *((*entry, "multiplexed", "async") for entry in itertools.product(MODELS, MACHINES, SHAPES)),
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


def commands() -> dict[str, list[str]]:
    """What `planner simulate` is asked, by a name that says everything."""

    def asked(model: str, batch: str, kind: str, machine: str, workers: str, *flags: str) -> list[str]:
        given = {"--model": model, "--batch": batch, "--precision": kind, "--hardware": machine}
        return [*itertools.chain(*given.items()), "--workers", workers, *flags]

    chosen = [
        *(
            asked(model, str(batch), kind, machine, "1", "--exchange", "alone")
            for model, (batch, kind) in RUNS.items()
            for machine in SITES
        ),
        *(
            asked(model, str(batch), kind, machine, str(workers), "--exchange", exchange)
            for (model, (batch, kind)), (machine, sizes), exchange in itertools.product(
                RUNS.items(), SITES.items(), EXCHANGES
            )
            for workers in sizes
        ),
        *(asked(*CUT, "--exchange", "sharded:stage=1", "--recompute", "full", *cut) for cut in CUTS),
    ]
    return {"simulate " + " ".join(entry): entry for entry in chosen}


def answered(asked: list[str], precision: float, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-m",
            "planner",
            "simulate",
            *asked,
            "--format",
            "json",
            "--quiet",
            "--interval-width",
            str(precision),
            "--seed",
            str(seed),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"refused": done.stderr.strip()}
    load = json.loads(done.stdout)["plan"]
    return {
        "samples_per_s": load["samples_per_s"],
        "low": load["samples_per_s_low"],
        "high": load["samples_per_s_high"],
        "usd_per_hour": load["usd_per_hour"],
    }


def predicted(make: Callable[[], Inputs], precision: float, seed: int) -> dict[str, Any]:
    try:
        profile, cluster, policy, mode = make()
        result = simulate(profile, cluster, policy, mode, seed=seed, precision=precision)
        price = sum(
            load_hardware(node.hardware or "").price.on_demand_usd_per_hour or 0.0 for node in cluster.nodes
        )
    except planner.PlannerError as error:
        return {"refused": str(error)}
    return {
        "samples_per_s": result.samples_per_s,
        "low": result.samples_per_s_low,
        "high": result.samples_per_s_high,
        "usd_per_hour": price,
    }


def main() -> None:
    precision, seed, only = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    plans = {name: predicted(make, precision, seed) for name, make in grid().items() if only in name}
    plans |= {name: answered(asked, precision, seed) for name, asked in commands().items() if only in name}
    json.dump({"version": planner.__version__, "plans": plans}, sys.stdout)


if __name__ == "__main__":
    main()
