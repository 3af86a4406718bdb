"""Yan et al. (KDD 2015), section 6: the published result beside ours, and the speed of the search.

Run: python benchmarks/partition.py [paper] [speed]
"""

from __future__ import annotations

import sys
import time

from planner.catalog import load_hardware, load_model
from planner.partition.search import Request, partition
from planner.partition.stages import stages_of
from planner.partition.study import copies_pay_below
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.validate import validate

BEST_S = 11.88 * 60
CLUSTER = "private-2xe5-2450-10gbe"


def paper() -> None:
    emit(validation_tables(validate(["yan"])))


def limits() -> None:
    """What the paper's own figures allow, whatever our widths and constants."""
    model, hardware = load_model("imagenet22k-adam"), load_hardware(CLUSTER)
    stages = stages_of(model)
    passes = 3 * sum(stage.connections for stage in stages) - stages[0].connections  # none into the data
    peak = 16 * hardware.device.fp32_flops / (2 * passes)
    plans = partition(model, hardware, Request(20, max_workers=4)).plans
    images = BEST_S * plans[0].samples_per_s
    print(
        f"images in 11.88 min: {BEST_S * peak:,.0f} on 16 workers at their peak, {images:,.0f} by our model"
    )
    print(f"worst epoch with these: {images / plans[-1].samples_per_s / 60:.0f} min (published: 218.08)")
    inputs = copies_pay_below(CLUSTER, 22_000, (4, 4, 4))
    print(f"copies of a layer with 22,000 outputs pay below {inputs:.1f} inputs; ours has 3,000")


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
        limits()
    if "speed" in asked:
        speed()
