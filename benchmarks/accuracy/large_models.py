"""Published runs of large models beside predictions, by kind, source and device.

    python benchmarks/accuracy/large_models.py            what the shipped constants give, seen and left out

Nothing is fitted here: `benchmarks/fit/calibrate_rates.py` fits kernel rates to these runs with all others
(`large_fit.py` says how it reads them) and stores what leaving a source out changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np

from planner.errors import BadInput
from planner.validation import large_baselines, large_shapes
from planner.validation.large_runs import LargeRun, read_runs, untuned
from planner.validation.large_steps import framework, left_out, predicted
from planner.validation.suites.sharded import evidence_of
from planner.validation.training import training_rows


def logs(runs: Sequence[LargeRun]) -> np.ndarray:
    """log(predicted / measured) of each run; nan where there is no prediction."""
    found = []
    for run in runs:
        try:
            step = predicted(run)
        except BadInput:
            step = None
        found.append(np.nan if step is None else np.log(step.seconds / run.step_s))
    return np.array(found)


def table(title: str, runs: Sequence[LargeRun], errors: np.ndarray, key: Callable[[LargeRun], str]) -> None:
    print(f"\n{title}")
    for name in dict.fromkeys(key(run) for run in runs):
        mine = np.array([key(run) == name for run in runs]) & np.isfinite(errors)
        if mine.any():
            off = np.expm1(errors[mine])
            print(
                f"  {name:34}{mine.sum():4}  {np.median(abs(off)):6.1%} / {np.quantile(abs(off), 0.9):6.1%}"
                f"  bias {np.median(off):+6.1%}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    runs, _ = read_runs(row for row in training_rows() if not untuned(row))
    seen = logs(runs)
    left = seen + np.array([left_out().get(run.id, 0.0) for run in runs])
    for title, errors in (("seen", seen), ("source left out", left)):
        table(title, runs, errors, lambda run: run.kind)
    table("source left out, by source", runs, left, lambda run: f"{run.source} {run.kind}")
    table("source left out, by framework", runs, left, framework)
    print("\nbeside simple rules, sources left out")
    rows = evidence_of(training_rows()).rows
    print("\n".join(f"  {line}" for line in large_baselines.lines(large_baselines.beside(runs, rows))))
    print("\nshapes")
    print("\n".join(f"  {line}" for line in large_shapes.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
