"""Yan et al. (KDD 2015), section 6: the published result beside ours, and the speed of the search.

Run: python benchmarks/partition.py [paper] [speed]
"""

from __future__ import annotations

import sys
import time

from planner.catalog import load_hardware, load_model
from planner.partition.search import Request, partition
from planner.partition.study import fixed, layer_choice

CLUSTER = "private-2xe5-2450-10gbe"
BEST_MIN, WORST_MIN = 11.88, 218.08


def row(what: str, published: str, ours: str, holds: bool | None) -> None:
    mark = {True: "holds", False: "DOES NOT HOLD", None: ""}[holds]
    print(f"{what:58} {published:26} {ours:40} {mark}")


def speedups(model: str, shapes: list[tuple[int, int, int]]) -> list[float]:
    times = [fixed(model, CLUSTER, *shape).epoch_s for shape in shapes]
    return [times[0] / t for t in times]


def numbers(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def paper() -> None:
    hardware = load_hardware(CLUSTER)
    row("20 machines, at most 4 workers a replica", "published", "ours", None)
    for name, best in (("mnist-adam", "<2,9,2>"), ("imagenet22k-adam", "<4,4,4>")):
        result = partition(load_model(name), hardware, Request(20, max_workers=4))
        top = ", ".join(plan.name for plan in result.plans[:3])
        row(f"{name}: best configuration", best, top, result.plans[0].name == best)
    first, last = result.plans[0], result.plans[-1]
    ratio = last.epoch_s / first.epoch_s
    row(
        "imagenet22k: worst over best epoch",
        f"{WORST_MIN / BEST_MIN:.1f}, more than 10",
        f"{ratio:.1f} ({last.name} over {first.name})",
        ratio > 10,
    )
    images = BEST_MIN * 60 * first.samples_per_s
    row("imagenet22k: best epoch, 15 million images", "11.88 min", f"{first.epoch_s / 60:,.0f} min", False)
    row("  images that 11.88 min allow on this model", "not printed", f"{images:,.0f}", None)
    worst = WORST_MIN * 60 * last.samples_per_s
    error = images / worst - 1
    row(
        "  worst epoch with so many images",
        "218.08 min",
        f"{images / last.samples_per_s / 60:.1f} min ({error:+.0%})",
        abs(error) < 0.25,
    )
    for name, words, holds in (
        ("mnist-adam", "2, then below 4", lambda s: s[1] > 1.9 and s[2] < 3.8),
        ("imagenet22k-adam", "above 2 and 4", lambda s: s[1] > 2 and s[2] > 4),
    ):
        got = speedups(name, [(1, 4, 4), (2, 4, 4), (4, 4, 4)])
        row(f"{name}: 1, 2, 4 workers a replica", words, numbers(got), holds(got))
    for name in ("mnist-adam", "imagenet22k-adam"):
        got = speedups(name, [(4, 1, 4), (4, 2, 4), (4, 4, 4)])
        row(f"{name}: 1, 2, 4 replicas", "about linear", numbers(got), got[2] > 3.4)
    small = speedups("mnist-adam", [(4, 4, 1), (4, 4, 2), (4, 4, 4)])
    large = speedups("imagenet22k-adam", [(4, 4, 1), (4, 4, 2), (4, 4, 4)])
    row("mnist-adam: 1, 2, 4 servers", "no speedup", numbers(small), small[2] < 1.1)
    row("imagenet22k-adam: 1, 2, 4 servers", "speedup, diminishing", numbers(large), large[2] > 1.3)
    two, one = fixed("mnist-adam", CLUSTER, 2, 9, 2), fixed("mnist-adam", CLUSTER, 1, 18, 2)
    gain = one.split.reading_s - two.split.reading_s
    row(
        "mnist: <2,9,2> beats <1,18,2> by reading from the servers",
        "yes",
        f"{two.epoch_s:.2f} s, {one.epoch_s:.2f} s; reading {two.split.reading_s:.2f}, "
        f"{one.split.reading_s:.2f}",
        two.epoch_s < one.epoch_s and gain > one.epoch_s - two.epoch_s,
    )
    rates = [
        partition(
            load_model("imagenet22k-adam"),
            hardware,
            Request(20, read_every=every, workers=4, replicas=4, servers=4),
        )
        .plans[0]
        .epoch_s
        for every in (35, 70, 150)
    ]
    row(
        "imagenet22k: reading after 35, 70, 150 images",
        "less often is faster",
        numbers([rates[1] / rate for rate in rates]) + " of the speed at 70",
        rates[0] > rates[1] > rates[2],
    )
    choice = layer_choice("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4))
    row(
        "imagenet22k: output layer, 4 workers, ms a sample",
        "replicated is faster",
        f"partitioned {choice.partitioned_s * 1e3:.1f}, replicated {choice.replicated_s * 1e3:.1f}",
        choice.replicated_s < choice.partitioned_s,
    )
    row(
        "  activations: partitioned, replicated",
        "higher, lower",
        f"{choice.partitioned_activations_s * 1e3:.2f}, {choice.replicated_activations_s * 1e3:.2f} ms",
        choice.partitioned_activations_s > choice.replicated_activations_s,
    )
    row(
        "  reading: partitioned, replicated",
        "lower, higher",
        f"{choice.partitioned_reading_s * 1e3:.1f}, {choice.replicated_reading_s * 1e3:.1f} ms",
        choice.partitioned_reading_s < choice.replicated_reading_s,
    )
    row("  copies are better from", "", f"{choice.break_even_read_every:,.0f} images between reads", None)


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
