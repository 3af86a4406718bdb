"""Do runs finish within the time that is stated at 90% confidence? `python confidence.py`.

For every published run that was compared with its source left out (`planner validate`), the stated time is
that of the left-out prediction at the width of its range (`planner.search.rank`). The share of runs that
finish within it should lie between 85 and 97%; the exit status is 1 if that of any suite does not.
"""

from __future__ import annotations

import math
import sys

from planner.search.rank import CONFIDENCE, RANGE_SIGMAS, confident_share
from planner.validation.evidence import Compared
from planner.validation.suites import evidence

SUITES = ("devices", "sharded", "throughput")
LEAST, MOST = 0.85, 0.97


def finishes_in_time(row: Compared) -> bool | None:
    """Whether a run was no slower than stated; None where no range is stated."""
    if row.low is None or row.high is None:
        return None
    predicted = row.predicted if row.left_out is None else row.left_out
    share = confident_share(math.log(row.high / row.low) / (2 * RANGE_SIGMAS), CONFIDENCE)
    if row.unit.endswith("/s"):
        return row.measured >= predicted * share
    return row.measured <= predicted / share


def main() -> int:
    missed = False
    for name in SUITES:
        verdicts = [verdict for row in evidence(name).rows if (verdict := finishes_in_time(row)) is not None]
        share = sum(verdicts) / max(len(verdicts), 1)
        missed |= not LEAST <= share <= MOST
        print(f"{name:12} {len(verdicts):5} runs  {share:6.1%} finish in the time stated at {CONFIDENCE:.0%}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
