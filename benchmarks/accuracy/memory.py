"""Peak memory of published training runs beside what `planner.device.memory` says.

    python benchmarks/accuracy/memory.py [--data dev.csv] [--left-out]

`dev.csv` has a row for each run, with `memory_gib` where the peak was published; without it the rows that the
package ships are taken. `--left-out` chooses the constants again (fragmentation and the buffers of a group of
devices, by the mean error of sources that count the same) without the source of each run. Printed
are the median and the 90th percentile of |predicted / measured - 1| by source and kind of network, and the
share of runs refused wrongly: they ran, and we would say that they do not fit on their device. Rows that say
nothing of batch, sequence or layout are left out, and counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from planner.validation import memory
from planner.validation.own import read_user_rows
from planner.validation.reader import published_runs, read_rows
from planner.validation.run import Run

Points = list[tuple[Run, float]]  # with the predicted peak in GiB


def left_out(points: Points) -> None:
    """Errors with constants that were chosen without the source of a run."""
    measured = np.array([run.memory_gib for run, _ in points])
    error = np.array(memory.left_out_peaks_gib([run for run, _ in points])) / measured - 1
    transformers = np.array([run.arch != "cnn" for run, _ in points])
    for words, mine in (("all", np.full(len(points), True)), ("transformers", transformers)):
        size = np.abs(error[mine])
        print(
            f"source left out, {words}: median {np.median(size):.1%}, 90th {np.quantile(size, 0.9):.1%}, "
            f"{np.mean(error[mine] < -0.15):.1%} more than 15% low"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="dev.csv, or rows in its form")
    parser.add_argument("--left-out", action="store_true", help="constants without the source of each run")
    parser.add_argument("--rows", action="store_true", help="print every row")
    arguments = parser.parse_args()
    runs = published_runs()[0] if arguments.data is None else read_rows(read_user_rows(arguments.data)[0])[0]
    left: Counter[str] = Counter()
    points: Points = []
    for run in runs:
        peak_gib = memory.peak_gib(run)
        if isinstance(peak_gib, str):
            left[peak_gib] += run.memory_gib is not None
        else:
            points.append((run, peak_gib))
    groups: dict[str, Points] = defaultdict(list)
    for run, gib in points:
        kind = "all convolutional" if run.arch == "cnn" else "all transformers"
        for name in (memory.group_label(run), "all", kind):
            groups[name].append((run, gib))
    print(f"{'group':60} {'rows':>4} {'median':>7} {'90th':>6} {'worst':>6} {'bias':>6} {'refused':>8}")
    for name, members in groups.items():
        signed = [gib / (run.memory_gib or 1.0) - 1 for run, gib in members]
        errors = sorted(map(abs, signed))
        ninth = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
        refused = sum(bool(memory.is_predicted_out_of_memory(run)) for run, _ in members) / len(members)
        print(
            f"{name:60} {len(members):4} {statistics.median(errors):7.1%} {ninth:6.1%} {errors[-1]:6.1%} "
            f"{statistics.median(signed):+6.1%} {refused:8.1%}"
        )
    if arguments.rows:
        for run, gib in points:
            print(f"{run.id} {memory.group_label(run)}: {run.memory_gib:.2f} GiB, {gib:.2f} predicted")
    if arguments.left_out:
        left_out(points)
    print("left out: " + "; ".join(f"{count} x {why}" for why, count in left.most_common() if count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
