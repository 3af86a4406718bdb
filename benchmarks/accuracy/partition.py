"""Yan et al. (KDD 2015), section 6: the published result beside ours, and the speed of the search.

Run: python benchmarks/accuracy/partition.py [paper] [speed]
"""

from __future__ import annotations

import sys
import time

from copies import copies_pay_below, copy_readings

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.servers.partition.search import PartitionRequest, partition
from planner.servers.validation.yan import most_samples_within, samples_within
from planner.validation import validate

BEST_S, WORST_S = 11.88 * 60, 218.08 * 60
CLUSTER = "private-2xe5-2450-10gbe"


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


def speed() -> None:
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


if __name__ == "__main__":
    asked = sys.argv[1:] or ["paper", "speed"]
    if "paper" in asked:
        paper()
        limits()
    if "speed" in asked:
        speed()
