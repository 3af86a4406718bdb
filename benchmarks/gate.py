"""What a release would change: predictions of a grid of plans by two installed versions, side by side.

    python benchmarks/gate.py OLD NEW [--threshold 0.01] [--precision 0.01] [--only TEXT] [--output FILE]

OLD and NEW are virtual environments or their python executables, each with planner installed. Lists every
plan whose throughput or price per hour moved by more than the threshold, or that only one version accepts,
and exits with 1 if there are any. Each version is asked by itself (`gate_plans.py`), in a process that sees
nothing of the other and nothing of this checkout. Steps through servers by the Python API, and every
exchange and cut as `planner simulate` answers. About two minutes of CPU for each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PLANS = Path(__file__).absolute().parent / "gate_plans.py"


def ask(where: Path, precision: float, seed: int, only: str = "") -> dict[str, Any]:
    """The predictions of the version installed there."""
    python = where / "bin" / "python" if where.is_dir() else where
    if not python.exists():
        sys.exit(f"gate: no python at {python}; give a virtual environment or its python")
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run(
            [python.absolute(), "-I", PLANS, str(precision), str(seed), only],
            capture_output=True,
            text=True,
            check=False,
            cwd=nowhere,
        )
    if done.returncode:
        sys.exit(f"gate: {python} failed: {done.stderr.strip().splitlines()[-1]}")
    loads: dict[str, Any] = json.loads(done.stdout)
    return loads


def moved(old: dict[str, Any], new: dict[str, Any], threshold: float) -> list[str]:
    """A line for each plan that changed."""
    lines = []
    for name in dict.fromkeys([*old, *new]):
        before, now = old.get(name), new.get(name)
        if before is None or now is None:
            lines.append(f"{name}: only in the {'new' if before is None else 'old'} version's grid")
        elif "refused" in before or "refused" in now:
            if ("refused" in before) != ("refused" in now):
                which, why = ("now", now) if "refused" in now else ("no longer", before)
                lines.append(f"{name}: {which} refused ({why['refused']})")
        else:
            lines += _changed(name, before, now, threshold)
    return lines


def _changed(name: str, before: dict[str, Any], now: dict[str, Any], threshold: float) -> list[str]:
    lines = []
    for key, unit in (("samples_per_s", "samples/s"), ("usd_per_hour", "USD/h")):
        a, b = before[key], now[key]
        if abs(b / a - 1) > threshold:
            overlap = before["low"] <= now["high"] and now["low"] <= before["high"]
            note = "; the intervals overlap" if key == "samples_per_s" and overlap else ""
            lines.append(f"{name}: {a:.4g} to {b:.4g} {unit} ({b / a - 1:+.1%}{note})")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--threshold", type=float, default=0.01)
    parser.add_argument("--precision", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="plans whose name contains this")
    parser.add_argument("--output", type=Path, help="write all predictions of both versions as JSON")
    arguments = parser.parse_args()
    asked = arguments.precision, arguments.seed, arguments.only
    old, new = (ask(where, *asked) for where in (arguments.old, arguments.new))
    if arguments.output:
        arguments.output.write_text(json.dumps({"old": old, "new": new}, indent=2))
    lines = moved(old["plans"], new["plans"], arguments.threshold)
    for line in lines:
        print(line)
    print(
        f"planner {old['version']} to {new['version']}: {len(lines)} of {len(new['plans'])} plans moved "
        f"by more than {arguments.threshold:.1%}"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
