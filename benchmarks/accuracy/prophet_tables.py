"""Prophet's tables beside ours (`planner validate prophet`), and what other readings of the paper would give.

Run: python benchmarks/accuracy/prophet_tables.py

`planner/servers/validation/prophet.py` states how we read the paper.
"""

from __future__ import annotations

import numpy as np

from planner.report.output import emit
from planner.report.validation import validation_tables
from planner.servers.orders import machines
from planner.servers.validation.prophet import GIVEN, PUSH_S, rate, step
from planner.units import GBIT_BYTES_PER_S
from planner.validation import validate


def alternatives() -> None:
    """Mean error of Table 2 by column under other readings."""
    given = GIVEN["table2"]
    profile = step(given["model"], given["batch"])
    print("\nmean error of Table 2 under other readings   Prophet  ByteScheduler     P3")

    def row(what: str, push_s: float, pull_s: float = 0.0, **instead: str) -> None:
        cells = []
        for system in given["systems"]:
            errors = []
            for gbit, published in zip(given["gbit_per_s"], given[system], strict=True):
                bandwidth = gbit * GBIT_BYTES_PER_S
                cluster = machines(given["workers"], 1, bandwidth)
                result = rate(
                    profile, instead.get(system, system), cluster, bandwidth, push_s=push_s, pull_s=pull_s
                )
                errors.append(result / published - 1)
            cells.append(f"{np.mean(np.abs(errors)):>10.1%}")
        print(f"  {what:<40}{''.join(cells)}")

    for push_s in (0.0, 0.001, 0.0015, 0.002, 0.0025, 0.003):
        row(f"{push_s * 1e3:.1f} ms a push", push_s)
    row("2 ms a push and a pull", PUSH_S, PUSH_S)
    row("ByteScheduler with priorities and credit", PUSH_S, bytescheduler="credit")


def main() -> None:
    rows = validate(["prophet"])
    emit(validation_tables(rows))
    errors = [abs(row.error) for row in rows if row.error is not None]
    print(f"mean error of {len(errors)} figures: {np.mean(errors):.1%}")
    alternatives()


if __name__ == "__main__":
    main()
