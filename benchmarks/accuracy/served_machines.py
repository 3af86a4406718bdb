"""Published parameter-server runs on machines with several GPUs: `python
benchmarks/accuracy/served_machines.py`.

TensorFlow's and MXNet's own tables (planner/validation/data/served_machines.csv): K80 machines of EC2,
servers beside the workers, synchronous. Both frameworks sum gradients inside a machine first (`machine`);
counting every GPU as a worker that talks to the servers (`device`) stands beside it. The larger runs are
predicted twice: from the run on one GPU, and those on several machines from the run on one machine, which
knows what its GPUs lose to each other: both frameworks summed on one GPU at that time, not in a ring. Prints
the error of throughput by framework and model.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.device.computation import Computation
from planner.device.computation.synthesis import computation_for
from planner.hardware import Market
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import Site
from planner.servers.parameter_servers import ParameterServers
from planner.simulator import simulate

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
    once = computation_for(load_model(model), batch, hardware)
    assert once.once_s is not None
    seconds = float(once.once_s.sum()) + once.optimizer_s
    factor = batch / images_per_s / seconds
    return computation_for(load_model(model), batch, hardware, compute_factor=factor)


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


def main() -> int:
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
