"""Long use: many plans in one process, killed sweeps, shared and damaged stores.

    python soak.py                        # all parts as below, about one hour of one core
    python soak.py plans --count 1000     # in one process: memory, open files, equal to a new process
    python soak.py kills --count 500      # of a sweep in all its phases: the same bytes
    python soak.py together --minutes 10  # two processes on one store, repeatedly
    python soak.py damage --count 200     # truncated stores, and stores with one bit flipped

The exit status is 1 if a part fails.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults import begun_in, command, done_in
from metamorphic import numbered, small_space

from planner.answers.questions import simulation_for
from planner.answers.recommend import recommend_for
from planner.answers.sweep import sweep, sweep_for
from planner.errors import Infeasible, PlannerError

SWEEP = """
model = ["alexnet", "resnet18"]
hardware = "p3.8xlarge"
server_hardware = "own"
exchange = ["servers", "allreduce", "sharded", "alone"]
workers = [1, 4, 8]
servers = [1, 2]
placement = "greedy"
policy = ["multiplexed", "tic"]
mode = ["async", "sync"]
batch = 16
precision = "fp16"
interval_width = 0.05
max_steps = 200
"""
FEW = (
    SWEEP.replace('["alexnet", "resnet18"]', '"alexnet"')
    .replace("[1, 4, 8]", "[4]")
    .replace('["multiplexed", "tic"]', '"multiplexed"')
)  # for kills: most of its time is the start and the end
SPARED = 0.2  # of the runs nobody kills, so that every few kills a result is compared
FRESH_EVERY = 10  # of the plans, one is asked again in a process of its own
AGAIN = 0.3  # of the plans are asked a second time, when all that is kept of them is there
GROWS_BY = 0.03  # of the memory held: what the second time may add
HANGS_S = 300


def answered(seed: int, number: int) -> str:
    """The digest of an answer: of one plan, sometimes of a small space or a sweep."""
    chance = random.Random(f"soak/{seed}/{number}")
    if number % 20 == 7:
        result: Any = None
        while result is None:
            try:
                result = recommend_for(small_space(chance), jobs=1, advice=False)
            except Infeasible:
                continue
    elif number % 20 == 13:
        with tempfile.TemporaryDirectory() as folder:
            result = swept(seed, number, Path(folder) / "s.db")
    else:
        result = simulation_for(numbered(seed, number))
    return hashlib.sha256(json.dumps(result.as_dict(), sort_keys=True).encode()).hexdigest()


def swept(seed: int, number: int, store: Path) -> Any:
    """The first question from a number on whose machines a sweep can fill, as a sweep."""
    while True:
        try:
            return sweep_for([numbered(seed, number)], store, jobs=1)
        except PlannerError:
            number += 20


def held_mib() -> float:
    """Memory of the process after freeing what it does not need."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # of glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def fresh(seed: int, number: int) -> str:
    """The same answer from a new process."""
    words = [sys.executable, __file__, "plans", "--seed", str(seed), "--only", str(number)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def plans(count: int, seed: int) -> bool:
    left_open: list[str] = []
    sys.unraisablehook = lambda problem: left_open.append(str(problem.exc_value))
    import warnings

    warnings.simplefilter("error", ResourceWarning)
    answered(seed, 0)
    files, held, digests = open_files(), [held_mib()], dict[int, str]()
    for number in range(count):
        digests[number] = answered(seed, number)
        if (number + 1) % (count // 10 or 1) == 0:
            held.append(held_mib())
            print(f"{number + 1} plans: {held[-1]:.0f} MiB, {open_files()} open files", flush=True)
    first = held[-1]
    again = range(int(AGAIN * count))
    changed = sum(answered(seed, number) != digests[number] for number in again)
    last, files_after = held_mib(), open_files()
    fresh_ones = sorted({*range(0, count, FRESH_EVERY), *range(7, count, 100), *range(13, count, 100)})
    differ = sum(fresh(seed, number) != digests[number] for number in fresh_ones)
    print(
        f"{count} plans in one process: {held[1]:.0f} MiB after a tenth, {held[len(held) // 2]:.0f} half, "
        f"{first:.0f} at the end; {last:.0f} after {len(again)} of them a second time, {changed} of which "
        f"differ; {files} files open before, {files_after} after, {len(left_open)} left to the collector; "
        f"{differ} of {len(fresh_ones)} differ from fresh processes"
    )
    good = differ == changed == 0 and files_after <= files and not left_open
    return good and last <= first * (1 + GROWS_BY)


def phase(store: Path, total: int) -> str:
    """The progress of a killed sweep."""
    if not store.exists():
        return "before the store"
    done = done_in(store)
    return "before the first result" if done == 0 else "between results" if done < total else "after the last"


def calm(folder: Path, text: str = SWEEP) -> tuple[Path, bytes, int, float]:
    """The sweep file, the result of an undisturbed run, its plans and its duration."""
    config = folder / "sweep.toml"
    config.write_text(text)
    begin = time.monotonic()
    subprocess.run(command(config, folder / "calm.db", folder / "calm.json"), check=True)
    took = time.monotonic() - begin
    return config, (folder / "calm.json").read_bytes(), len(begun_in(folder / "calm.db")), took


def forget(store: Path) -> None:
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()


def kills(count: int, seed: int) -> bool:
    chance = random.Random(seed)
    phases: Counter[str] = Counter()
    ended = differ = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, right, total, took = calm(folder, FEW)
        store, result = folder / "killed.db", folder / "killed.json"
        while phases.total() < count or store.exists():
            begin = time.monotonic()
            process = subprocess.Popen(command(config, store, result))
            if phases.total() < count and chance.random() > SPARED:
                wait_and_kill(process, store, total, chance, took)
            if process.wait() == -signal.SIGKILL:
                phases[phase(store, total)] += 1
                if phases.total() % 25 == 0:
                    words = ", ".join(f"{many} {where}" for where, many in phases.items())
                    print(
                        f"{phases.total()} kills ({words}), {ended} sweeps ended, {differ} differ", flush=True
                    )
                continue
            ended += 1
            took = min(took, time.monotonic() - begin)  # the machine is less busy than it was
            differ += result.read_bytes() != right
            forget(store)
            result.unlink()
    words = ", ".join(f"{many} {where}" for where, many in phases.items())
    print(f"{phases.total()} kills ({words}); {ended} sweeps of {total} plans ended, {differ} differ")
    return differ == 0


def wait_and_kill(
    process: subprocess.Popen[bytes], store: Path, total: int, chance: random.Random, took: float
) -> None:
    """Kill a run at a random moment, or at a given number of stored results."""
    when = chance.random()
    if when < 0.4:
        enough = total if when < 0.2 else chance.randrange(1, total)
        while process.poll() is None and done_in(store) < enough:
            time.sleep(0.002)
        if enough == total:
            time.sleep(chance.random() * 0.1)
    else:
        time.sleep(chance.random() * 2 * took)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)


def together(minutes: float, seed: int) -> bool:
    rounds = differ = twice = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, right, total, _ = calm(folder)
        store, end = folder / "shared.db", time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            results = [folder / f"{k}.json" for k in range(2)]
            both = [subprocess.Popen(command(config, store, result)) for result in results]
            codes = [process.wait() for process in both]
            differ += any(codes) or any(result.read_bytes() != right for result in results)
            twice += sum(begun_in(store)) - total
            rounds += 1
            forget(store)
    print(
        f"two processes on one store for {minutes:g} min: {rounds} sweeps of {total} plans, {differ} differ, "
        f"{twice} plans begun twice"
    )
    return differ == 0 and twice == 0


def half_done(store: Path) -> None:
    """Remove every second result of a store and leave one plan claimed by a dead process."""
    with sqlite3.connect(store) as db:
        db.execute("UPDATE plans SET result = NULL, owner = NULL WHERE number % 2 = 1")
        (owner,) = db.execute("SELECT owner FROM plans WHERE owner IS NOT NULL").fetchone()
        db.execute("UPDATE plans SET owner = ? WHERE number = 1", (owner,))
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    if chance.random() < 0.3:
        return data[:at]
    if chance.random() < 0.7:  # most of a file is empty: a bit of something
        while data[at] == 0:
            at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def damage(count: int, seed: int) -> bool:
    chance = random.Random(seed)
    ends: Counter[str] = Counter()
    said: Counter[str] = Counter()

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("hangs")

    signal.signal(signal.SIGALRM, stop)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, right, total, _ = calm(folder)
        whole, half = folder / "calm.db", folder / "half.db"
        with sqlite3.connect(whole) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        shutil.copyfile(whole, half)
        half_done(half)
        stores = [whole.read_bytes(), half.read_bytes()]
        for number in range(count):
            store = folder / "damaged.db"
            data = damaged(chance.choice(stores), chance)
            store.write_bytes(data)
            signal.alarm(HANGS_S)
            try:
                result = sweep(config, store)
                same = json.dumps(result.as_dict(), sort_keys=True) == json.dumps(
                    json.loads(right), sort_keys=True
                )
                end = "the right result" if same else "A WRONG RESULT"
            except PlannerError as error:
                end = "a sentence" if "\n" not in str(error) else "SEVERAL LINES"
                said[str(error).replace(str(store), "FILE")] += 1
            except Exception as error:
                end = f"{type(error).__name__.upper()}: {error}"
            signal.alarm(0)
            ends[end] += 1
            if end not in ("the right result", "a sentence"):
                print(f"  {number}: {end}", flush=True)
                kept = Path(tempfile.gettempdir()) / f"soak-damaged-{seed}-{number}.db"
                kept.write_bytes(data)
            forget(store)
    for words, many in said.most_common(8):
        print(f"  {many} x {words}")
    print(f"{count} damaged stores of {total} plans: {', '.join(f'{n} {end}' for end, n in ends.items())}")
    return set(ends) <= {"the right result", "a sentence"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=["plans", "kills", "together", "damage"])
    parser.add_argument("--count", type=int, help="plans, kills or damaged stores")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="of the plans, the answer to this one")
    args = parser.parse_args()
    if args.only is not None:
        print(answered(args.seed, args.only))
        return 0
    parts = {
        "plans": lambda: plans(args.count or 1000, args.seed),
        "kills": lambda: kills(args.count or 500, args.seed),
        "together": lambda: together(args.minutes, args.seed),
        "damage": lambda: damage(args.count or 200, args.seed),
    }
    good = [part() for name, part in parts.items() if args.part in (None, name)]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
