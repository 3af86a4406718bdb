"""Choose the constant of fine-tuning on published step times, and again without each source.

    python benchmarks/fit/fine_tuning.py

The bytes of memory traffic that are as slow as dequantizing one nf4 weight are taken from a coarse grid:
those with the least mean error, sources counting the same. It prints the choices and writes
`planner/validation/data/finetune_left_out.csv`: what the choice without a row's source adds to
log(predicted), by the row's id.
"""

from __future__ import annotations

import csv
import math
import multiprocessing
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from planner.model import methods
from planner.validation.fine_tuning import MEMORY, compared_rows

GRID = (4.0, 6.0, 8.0, 9.5, 11.0, 13.0, 16.0)  # bytes
CAPPED = 0.5  # an error beyond which a run says nothing more
LEFT_OUT = Path(__file__).parents[2] / "planner/validation/data/finetune_left_out.csv"

Errors = dict[str, tuple[str, float]]  # by row, its source and a ratio or its logarithm


def main() -> None:
    shipped = methods.BASES["nf4"].dequantize_bytes
    ends = min(GRID), max(GRID)
    # models are memoized by value: each choice has a process of its own
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        low, high = pool.map(ratios_of, ends)
    errors = {nf4: between(low, high, (nf4 - ends[0]) / (ends[1] - ends[0])) for nf4 in (*GRID, shipped)}
    sources = sorted({source for source, _ in errors[shipped].values()})
    best = {left: min(errors, key=lambda nf4: loss(errors[nf4], left)) for left in ("", *sources)}
    for left, nf4 in best.items():
        print(f"without {left or 'none'}: {nf4} bytes;", losses(errors[nf4]))
    print(f"shipped: {shipped} bytes;", losses(errors[shipped]))
    with open(LEFT_OUT, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "shift"))
        for name, (source, error) in errors[shipped].items():
            writer.writerow((name, round(errors[best[source]][name][1] - error, 5)))


def ratios_of(nf4_bytes: float) -> Errors:
    """By row, its source and predicted / measured of its time."""
    methods.BASES["nf4"] = replace(methods.BASES["nf4"], dequantize_bytes=nf4_bytes)
    return {
        row.id: (row.source, row.predicted / row.measured)
        for row in compared_rows()[0]
        if row.part != MEMORY and "full" not in row.part
    }


def between(low: Errors, high: Errors, share: float) -> Errors:
    """By row, its source and log(predicted / measured): time is linear in the bytes per weight."""
    return {
        name: (source, math.log(ratio + share * (high[name][1] - ratio)))
        for name, (source, ratio) in low.items()
    }


def losses(errors: Errors) -> dict[str, float]:
    """The mean error of each source."""
    by_source: dict[str, list[float]] = defaultdict(list)
    for source, error in errors.values():
        by_source[source].append(min(abs(error), CAPPED))
    return {source: round(sum(found) / len(found), 4) for source, found in by_source.items()}


def loss(errors: Errors, left_out: str) -> float:
    """The mean over sources but one."""
    kept = [error for source, error in losses(errors).items() if source != left_out]
    return sum(kept) / len(kept)


if __name__ == "__main__":
    main()
