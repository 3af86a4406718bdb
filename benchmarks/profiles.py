"""How well synthesized profiles meet published single-device training throughputs.

    python benchmarks/profiles.py

Prints, for the kernel rates stored in hardware/kernels.toml: every fp32 row used (TensorFlow's, and MXNet's
ResNet-50 and Inception-v3, on V100, P100, K80 and M60), the errors of fits that have not seen a model, and
every other row. One factor a framework (a name and the era of its cuDNN), nothing a model. Exits with 1 when
the median error of the used rows is 8% or more, or the worst 20%.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict

import numpy as np
from calibration import (
    FITTED,
    HARDWARE,
    PEAKS,
    PUBLISHED,
    REFERENCE,
    Array,
    Fit,
    Row,
    errors,
    fit,
    leave_one_model_out,
    peak_costs,
    read_rows,
)

from planner.device.computation.work import KINDS
from planner.model.catalog import model_names

MEDIAN_BELOW, WORST_BELOW = 0.08, 0.20


def stored_costs() -> dict[str, Array]:
    """Costs of the GPUs in hardware/kernels.toml, and the V100's share of peak for those outside it."""
    kernels = tomllib.loads((HARDWARE / "kernels.toml").read_text())["kernels"]
    costs = {
        name: np.array([*(1 / table["rates"][kind] for kind in KINDS), table["overhead_s"]])
        for name, table in kernels.items()
        if name in PEAKS
    }
    shares = costs[FITTED[0]] / peak_costs(*PEAKS[FITTED[0]])
    return {name: peak_costs(*peak) * shares for name, peak in PEAKS.items()} | costs


def stored_fit(rows: list[Row]) -> Fit:
    """The stored rates with the factor of each framework that suits its rows best (the reference has 1)."""
    bare = Fit(stored_costs(), {})
    by_framework: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_framework[row.framework].append(row)
    factors = {
        name: float(np.exp(np.median(np.log1p(errors(bare, mine))))) for name, mine in by_framework.items()
    }
    return Fit(bare.costs, factors | {REFERENCE: 1.0})


def print_rows(fitted: Fit, rows: list[Row]) -> None:
    print(
        f"{'framework':30} {'device':16} {'model':11} {'batch':>5} {'measured':>9} {'predicted':>9}   error"
    )
    for row in sorted(rows, key=lambda r: (r.framework, r.device, r.model, r.batch, r.images_per_s)):
        predicted = fitted.images_per_s(row)
        batch = f"{row.batch}" if row.batch_known else f"{row.batch}?"
        note = "; ".join(filter(None, [row.precision if row.precision != "fp32" else "", row.note]))
        print(
            f"{row.framework:30} {row.device:16} {row.model:11} {batch:>5} {row.images_per_s:9.1f} "
            f"{predicted:9.1f} {predicted / row.images_per_s - 1:+7.1%}  {note}"
        )


def print_leave_one_out(rows: list[Row]) -> None:
    print("\nModels left out of the fit")
    for model, wrong in leave_one_model_out(rows).items():
        worst = wrong[np.argmax(abs(wrong))]
        print(f"  {model:11} {len(wrong):3} rows: median {np.median(abs(wrong)):5.1%}, worst {worst:+.1%}")


def print_forward(fitted: Fit) -> None:
    """Forward passes, which no fit has seen: they tell whether the split in forward and backward is right."""
    print("\nForward passes only (batch of 16 and more): median error")
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(PUBLISHED / "throughput_forward.csv"):
        if row.batch >= 16:
            by_model[row.model].append(row)
    for model, rows in sorted(by_model.items()):
        print(f"  {model:11} {len(rows):3} rows: {np.median(errors(fitted, rows)):+.1%}")


def main() -> int:
    every = [row for row in read_rows() if row.model in model_names()]
    used = [row for row in every if row.role == "fit"]
    fitted = stored_fit(used)
    print("Rows that the kernel rates were fitted to\n")
    print_rows(fitted, used)
    wrong = abs(errors(fitted, used))
    print(f"\n{len(used)} rows: median error {np.median(wrong):.1%}, worst {wrong.max():.1%}")
    for name, factor in sorted(fitted.factors.items()):
        print(f"  {name}: {factor:.3f} times the reference's time")
    again = abs(errors(fit(used), used))
    print(f"a fresh fit: median error {np.median(again):.1%}, worst {again.max():.1%}")
    print_leave_one_out(used)
    print_forward(fitted)
    print("\nAll other rows: no factor of their own; a batch with ? is not published; devices outside the")
    print("catalogue get the V100's share of their peaks\n")
    print_rows(fitted, [row for row in every if row.role != "fit"])
    return 0 if np.median(wrong) < MEDIAN_BELOW and wrong.max() < WORST_BELOW else 1


if __name__ == "__main__":
    sys.exit(main())
