"""Real PyTorch runs against predictions: `python benchmarks/accuracy/accuracy.py --ddp [--data FOLDER]`.

The comparison is `planner.validation.ddp`; here it becomes a table, with what must hold.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from planner.validation.ddp import DATA, DdpResult, compare

# What must hold: mean and worst error of DDP points, mean of every group, mean of either kind of FSDP.
MEAN, WORST, GROUP, FSDP, BLOCKING = 0.02, 0.08, 0.04, 0.04, 0.12


def table(results: list[DdpResult]) -> None:
    rows: dict[str, list[DdpResult]] = defaultdict(list)
    for result in results:
        rows[result.config.name].append(result)
    print(f"{'configuration':32} {'group':13} error of the predicted step time by number of workers")
    for name, entry in rows.items():
        cells = "  ".join(f"{match.point.workers}: {match.error:+5.1%}" for match in entry)
        print(f"{name:32} {entry[0].config.group:13} {cells}")


def summary(results: list[DdpResult]) -> bool:
    groups: dict[str, list[float]] = defaultdict(list)
    for result in results:
        groups[result.config.group].append(abs(result.error))
    ddp = [error for name, errors in groups.items() if not name.startswith("fsdp") for error in errors]
    print(f"\n{len(results)} points, {len(ddp)} of them DDP")
    checks: dict[str, bool] = {}
    if ddp:
        print(f"DDP mean {np.mean(ddp):.2%} worst {max(ddp):.1%}")
        checks[f"DDP: mean below {MEAN:.0%}"] = float(np.mean(ddp)) < MEAN
        checks[f"DDP: worst below {WORST:.0%}"] = max(ddp) < WORST
    for name, errors in sorted(groups.items()):
        mean = float(np.mean(errors))
        most = {"fsdp": FSDP, "fsdp2": BLOCKING}.get(name, GROUP)
        print(f"  {name:13} {len(errors):3} points  mean {mean:.2%}  worst {max(errors):.1%}")
        checks[f"{name}: mean below {most:.0%}"] = mean < most
    print()
    for what, holds in checks.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return all(checks.values())


def main(data: Path | None = None) -> int:
    results = compare(data or DATA)
    table(results)
    return 0 if summary(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
