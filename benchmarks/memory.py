"""Peak memory of published training runs beside what `planner.holding` says.

    python benchmarks/memory.py --data dev.csv

`dev.csv` has a row for each run, with `memory_gib` where the peak was published. Printed are the median and
the 90th percentile of |predicted / measured - 1| by source and kind of network, and the share of runs refused
wrongly: they ran, and we would say that they do not fit on their device. Rows that say nothing of batch,
sequence or layout are left out, and counted.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

from planner.validate.memory_runs import MemoryPoint, points


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="dev.csv, or rows in its form")
    parser.add_argument("--rows", action="store_true", help="print every row")
    arguments = parser.parse_args()
    with arguments.data.open(newline="") as file:
        rows = list(csv.DictReader(file))
    left: Counter[str] = Counter()
    found = list(points(rows, left))
    groups: dict[str, list[MemoryPoint]] = defaultdict(list)
    for point in found:
        groups[point.group].append(point)
        groups["all"].append(point)
        groups["all transformers" if "ResNet" not in point.group else "all convolutional"].append(point)
    print(f"{'group':60} {'rows':>4} {'median':>7} {'90th':>6} {'worst':>6} {'bias':>6} {'refused':>8}")
    for name, members in groups.items():
        errors = sorted(abs(point.error) for point in members)
        ninth = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
        bias = statistics.median(point.error for point in members)
        refused = sum(point.refused for point in members) / len(members)
        print(
            f"{name:60} {len(members):4} {statistics.median(errors):7.1%} {ninth:6.1%} {errors[-1]:6.1%} "
            f"{bias:+6.1%} {refused:8.1%}"
        )
    if arguments.rows:
        for point in found:
            gib = f"{point.measured_gib:.2f} GiB, {point.predicted_gib:.2f} predicted ({point.error:+.1%})"
            print(f"{point.id} {point.group}: {gib}")
    print("left out: " + "; ".join(f"{count} x {why}" for why, count in left.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
