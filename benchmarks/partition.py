"""Yan et al. (KDD 2015), section 6: the published result beside ours, and the speed of the search.

Run: python benchmarks/partition.py [paper] [speed]
"""

from __future__ import annotations

import sys
import time

from planner.catalog import load_hardware, load_model
from planner.partition.search import Request, partition
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.validate import validate

CLUSTER = "private-2xe5-2450-10gbe"


def paper() -> None:
    emit(validation_tables(validate(["yan"])))


def speed() -> None:
    hardware = load_hardware(CLUSTER)
    partition(load_model("mnist-adam"), hardware, Request(4))  # imports
    for name, machines, limit in (("inception3", 16, 2.0), ("resnet152", 64, 10.0)):
        model = load_model(name)
        start = time.process_time()
        result = partition(model, hardware, Request(machines, samples=1_281_167))
        spent = time.process_time() - start
        gap = max(plan.gap for plan in result.plans[:20])
        print(
            f"{name} on {machines} machines: {spent:.2f} CPU s (limit {limit:.0f}), {result.considered} "
            f"configurations, 10^{result.combinations:.0f} ways to spread the layers, best "
            f"{result.plans[0].name}, at most {gap:.2%} from optimal"
        )


if __name__ == "__main__":
    asked = sys.argv[1:] or ["paper", "speed"]
    if "paper" in asked:
        paper()
    if "speed" in asked:
        speed()
