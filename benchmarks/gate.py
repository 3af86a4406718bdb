"""What a release would change: predictions of a grid of plans by two installed versions, side by side.

    python benchmarks/gate.py OLD NEW [--threshold 0.01] [--precision 0.01] [--only TEXT] [--output FILE]

OLD and NEW are virtual environments or their python executables, each with planner installed. Lists every
plan whose throughput or price per hour moved by more than the threshold, or that only one version accepts,
and exits with 1 if there are any. Each version runs this file with `--predict`, in a process that sees
nothing of the other and nothing of this checkout, and only what is documented and what both versions share:
steps through servers by the Python API, every exchange and mesh as `planner simulate` answers. About two
minutes of CPU for each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import planner
from planner.hardware.catalog import load_hardware
from planner.servers.ordering import schedule
from planner.simulator import simulate


def ask(where: Path, precision: float, seed: int, only: str = "") -> dict[str, Any]:
    """The predictions of the version installed there."""
    python = where / "bin" / "python" if where.is_dir() else where
    if not python.exists():
        sys.exit(f"gate: no python at {python}; give a virtual environment or its python")
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run(
            [
                python.absolute(),
                "-I",
                Path(__file__).absolute(),
                "--predict",
                str(precision),
                str(seed),
                only,
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=nowhere,
        )
    if done.returncode:
        sys.exit(f"gate: {python} failed: {done.stderr.strip().splitlines()[-1]}")
    loads: dict[str, Any] = json.loads(done.stdout)
    return loads


def moved(old: dict[str, Any], new: dict[str, Any], threshold: float) -> list[str]:
    """A line for each plan that changed."""
    lines = []
    for name in dict.fromkeys([*old, *new]):
        before, now = old.get(name), new.get(name)
        if before is None or now is None:
            lines.append(f"{name}: only in the {'new' if before is None else 'old'} version's grid")
        elif "refused" in before or "refused" in now:
            if ("refused" in before) != ("refused" in now):
                which, why = ("now", now) if "refused" in now else ("no longer", before)
                lines.append(f"{name}: {which} refused ({why['refused']})")
        else:
            lines += _changed(name, before, now, threshold)
    return lines


def _changed(name: str, before: dict[str, Any], now: dict[str, Any], threshold: float) -> list[str]:
    lines = []
    for key, unit in (("samples_per_s", "samples/s"), ("usd_per_hour", "USD/h")):
        a, b = before[key], now[key]
        if abs(b / a - 1) > threshold:
            overlap = before["low"] <= now["high"] and now["low"] <= before["high"]
            note = "; the intervals overlap" if key == "samples_per_s" and overlap else ""
            lines.append(f"{name}: {a:.4g} to {b:.4g} {unit} ({b / a - 1:+.1%}{note})")
    return lines


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
    chosen = None
    if policy != "multiplexed":
        chosen = schedule(profile, policy, bandwidth_bytes_per_s=bandwidth).policy
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


def print_predictions(precision: float, seed: int, only: str) -> None:
    """What the installed version predicts, as JSON on stdout."""
    plans = {name: predicted(make, precision, seed) for name, make in grid().items() if only in name}
    plans |= {name: answered(asked, precision, seed) for name, asked in commands().items() if only in name}
    json.dump({"version": planner.__version__, "plans": plans}, sys.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threshold", type=float, default=0.01)
    parser.add_argument("--precision", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="plans whose name contains this")
    parser.add_argument("--output", type=Path, help="write all predictions of both versions as JSON")
    arguments = parser.parse_args()
    asked = arguments.precision, arguments.seed, arguments.only
    old, new = (ask(where, *asked) for where in (arguments.old, arguments.new))
    if arguments.output:
        arguments.output.write_text(json.dumps({"old": old, "new": new}, indent=2))
    lines = moved(old["plans"], new["plans"], arguments.threshold)
    for line in lines:
        print(line)
    print(
        f"planner {old['version']} to {new['version']}: {len(lines)} of {len(new['plans'])} plans moved "
        f"by more than {arguments.threshold:.1%}"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--predict"]:
        print_predictions(float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
