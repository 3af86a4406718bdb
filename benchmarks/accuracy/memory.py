"""Peak memory of published training runs beside what `planner.device.memory` says.

    python benchmarks/accuracy/memory.py [--data dev.csv] [--left-out]

`dev.csv` has a row for each run, with `memory_gib` where the peak was published; without it the rows that the
package ships are taken. `--left-out` chooses the constants again (both fragmentations and the buffers of a
group of devices, by the mean error of sources that count the same) without the source of each run. Printed
are the median and the 90th percentile of |predicted / measured - 1| by source and kind of network, and the
share of runs refused wrongly: they ran, and we would say that they do not fit on their device. Rows that say
nothing of batch, sequence or layout are left out, and counted.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from planner.device.memory import FRAMEWORK_BYTES
from planner.validation.large_runs import read_run
from planner.validation.memory_runs import MemoryPoint, points, predicted_peak
from planner.validation.training import training_rows

GIB = 2**30
CHOICES = list(
    itertools.product(np.arange(1.0, 1.13, 0.01), np.arange(1.0, 1.31, 0.025), np.arange(0.5, 3.1, 0.25))
)  # fragmentation, that where layers are cut, GiB of a group
CAPPED = 0.5  # a run that is farther off says nothing more


def left_out(rows: dict[str, dict[str, str]], found: list[MemoryPoint]) -> None:
    """Errors with constants that were chosen without the source of a run."""
    held, groups, cut = [], [], []
    for point in found:
        row = rows[point.id]
        part = predicted_peak(row)
        run = read_run(row) if row["arch"] == "llm" else None
        tensor, pipeline = (run.tensor, run.pipeline) if run else (1, 1)
        replicas = run.replicas if run else int(row["devices"])
        known = part.states_bytes + part.buffers_bytes + part.activations_bytes + part.workspace_bytes
        held.append(known / GIB)
        groups.append((replicas > 1) + (tensor > 1) + (pipeline > 1))
        cut.append(tensor * pipeline > 1)
    many, of_group, measured = np.array(held), np.array(groups), np.array([p.measured_gib for p in found])
    source = np.array([point.source for point in found])

    def predicted(choice: tuple[float, float, float]) -> np.ndarray:
        whole, where_cut, group_gib = choice
        return np.where(cut, where_cut, whole) * many + FRAMEWORK_BYTES["gpu"] / GIB + group_gib * of_group

    off = np.minimum(np.abs(np.log([predicted(choice) / measured for choice in CHOICES])), CAPPED)
    error = np.zeros(len(found))
    for name in np.unique(source):
        others = [other for other in np.unique(source) if other != name]
        best = CHOICES[int(np.argmin(sum(off[:, source == other].mean(1) for other in others)))]
        mine = source == name
        error[mine] = (predicted(best) / measured - 1)[mine]
        print(f"without {name}: " + ", ".join(f"{value:.3g}" for value in best))
    transformers = np.array(["ResNet" not in point.group for point in found])
    for words, mine in (("all", np.full(len(found), True)), ("transformers", transformers)):
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
    if arguments.data is None:
        rows = [dict(row) for row in training_rows()]
    else:
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
    if arguments.left_out:
        left_out({row["id"]: row for row in rows}, found)
    print("left out: " + "; ".join(f"{count} x {why}" for why, count in left.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
