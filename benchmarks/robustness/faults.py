"""Kill a sweep repeatedly, resume it, and compare its result with an undisturbed one.

python benchmarks/robustness/faults.py                    # 20 kills
python benchmarks/robustness/faults.py --kills 5 --seed 3
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SWEEP = """
model = ["alexnet", "vgg11"]
hardware = "p3.2xlarge"
server_hardware = "own"
workers = [1, 2, 4, 8]
servers = [1, 2]
placement = "greedy"
policy = ["multiplexed", "tic"]
mode = ["async", "sync"]
interval_width = 0.05
"""


def command(config: Path, store: Path, result: Path, *more: str) -> list[str]:
    words = ["sweep", str(config), "--store", str(store), "--format", "json", "--output", str(result)]
    return [sys.executable, "-m", "planner", *words, "--quiet", *more]


def done_in(store: Path) -> int:
    """The number of finished plans in a store."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=10) as db:
            return int(db.execute("SELECT COUNT(result) FROM plans").fetchone()[0])
    except sqlite3.Error:  # not there yet
        return 0


def begun_in(store: Path) -> list[int]:
    """The number of starts of each plan."""
    with sqlite3.connect(store) as db:
        return [tries for (tries,) in db.execute("SELECT tries FROM plans ORDER BY number")]


def disturbed(config: Path, store: Path, result: Path, kills: int, chance: random.Random) -> int:
    """Run a sweep to its end, killing it `kills` times; each time after a random number of further plans and
    a random moment more (at once, now and then: also the start must be safe). Returns the kills that met a
    running process."""
    met = 0
    for _ in range(kills):
        target = done_in(store) + chance.choice((-1, 0, 1, 2, 3))
        process = subprocess.Popen(command(config, store, result))
        while process.poll() is None and done_in(store) < target:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            met += 1
        process.wait()
    subprocess.run(command(config, store, result), check=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill sweeps and compare with an undisturbed one.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optuna", type=int, metavar="TRIALS", help="a study instead of a grid")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "sweep.toml"
        study = f'search = "optuna"\ntrials = {args.optuna}\n' if args.optuna else ""
        config.write_text(SWEEP + study)
        subprocess.run(command(config, folder / "calm.db", folder / "calm.json"), check=True)
        met = disturbed(
            config, folder / "killed.db", folder / "killed.json", args.kills, random.Random(args.seed)
        )
        same = (folder / "calm.json").read_bytes() == (folder / "killed.json").read_bytes()
        begun = begun_in(folder / "killed.db")
        again = sum(begun) - len(begun)
        print(f"{len(begun)} plans, {met} kills met a running sweep, {again} plans were begun again")
        print(f"in flight at most: {2 * (os.cpu_count() or 1)} a kill")
        print(f"the result {'is the same' if same else 'DIFFERS'}")
    return 0 if same and again <= met * 2 * (os.cpu_count() or 1) else 1


if __name__ == "__main__":
    sys.exit(main())
