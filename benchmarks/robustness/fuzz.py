"""Fuzz every reader: any file gives an object or one of planner's errors.

    python fuzz.py --inputs 100000                  # random mutations of structure and bytes
    python fuzz.py --inputs 100000 --engine atheris # guided by coverage (pip install atheris)
    python fuzz.py --reader pytorch --inputs 2000 --seed 7

Inputs with other outcomes, or that take more than `--slow` seconds of CPU, are written to
tests/data/fuzz/<reader>/, where a test replays them; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

MOST_MIB = 1024  # of the process that reads
CORPUS = Path(__file__).resolve().parents[2] / "tests" / "data" / "fuzz"


class Fuzzer:
    """Feeds inputs to one reader, counts outcomes and keeps inputs that fail."""

    def __init__(self, name: str, folder: str, slow_s: float, keep: bool = True) -> None:
        from readers import READERS

        self.reader = READERS[name]
        self.path = Path(folder) / f"input{self.reader.suffix}"
        self.slow_s = slow_s
        self.kept = keep
        self.ends: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.slowest_s = 0.0

    def one(self, data: bytes) -> str:
        """Read `data`; return `read`, `refused` or the failure."""
        self.path.write_bytes(data)
        began_s = time.perf_counter()
        end = self._read()
        took_s = time.perf_counter() - began_s
        if took_s > self.slow_s / 2:  # asking for CPU time may take longer than reading
            self.path.write_bytes(data)
            began_s = time.process_time()
            self._read()
            took_s = time.process_time() - began_s
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > self.slow_s:
            end = f"slow: {took_s:.1f} s"
        self.ends[end.partition(":")[0]] += 1
        if end not in ("read", "refused"):
            self.keep(data, end)
        return end

    def _read(self) -> str:
        from planner.errors import PlannerError

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a warning of numpy is a number that nobody checked
                self.reader.read(self.path)
        except PlannerError as error:
            return "refused" if "\n" not in str(error).strip() else "a message of several lines"
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {str(error)[:90]}"
        return "read"

    def keep(self, data: bytes, end: str) -> None:
        place = end.partition(":")[0] if end.startswith("slow") else " ".join(end.split()[:3])
        if place in self.failures:
            return
        self.failures[place] = end
        if not self.kept:
            return
        folder = CORPUS / self.reader.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{hashlib.sha256(data).hexdigest()[:12]}{self.reader.suffix}").write_bytes(data)
        print(f"  {self.reader.name}: {end}", flush=True)


def fuzz(fuzzer: Fuzzer, inputs: int, seed: int) -> None:
    """Mutate real files at random; accepted results may be mutated further."""
    from mutations import mutate

    chance = random.Random(f"{fuzzer.reader.name}/{seed}")
    seeds = list(fuzzer.reader.seeds())
    pool = list(seeds)
    for _ in range(inputs):
        data = mutate(chance.choice(pool), fuzzer.reader.form, chance, seeds)
        if fuzzer.one(data) == "read" and len(pool) < 300 and len(data) < 2 * max(map(len, seeds)):
            pool.append(data)


def fuzz_with_atheris(fuzzer: Fuzzer, inputs: int, seed: int) -> None:
    """Mutate guided by coverage; atheris ends the process itself."""
    import atheris
    from mutations import mutate

    seeds = list(fuzzer.reader.seeds())

    def mutator(data: bytes, max_size: int, number: int) -> bytes:
        if number % 3 == 0:
            return bytes(atheris.Mutate(data, max_size))
        chance = random.Random(number)
        start = chance.choice(seeds) if chance.random() < 0.5 else data  # most of the corpus is refused early
        return mutate(start, fuzzer.reader.form, chance, seeds)[:max_size]

    corpus = fuzzer.path.parent / "corpus"
    corpus.mkdir()
    for k, data in enumerate(seeds):
        (corpus / f"seed{k}").write_bytes(data)
    size = 2 * max(map(len, seeds))
    options = [
        f"-runs={2 * inputs}",
        f"-max_len={size}",
        f"-seed={seed + 1}",
        "-verbosity=0",
        "-rss_limit_mb=0",
    ]

    def one(data: bytes) -> None:
        fuzzer.one(bytes(data))
        if fuzzer.ends.total() >= inputs:
            report(fuzzer)
            os._exit(int(bool(fuzzer.failures)))

    atheris.Setup(["fuzz", *options, str(corpus)], one, custom_mutator=mutator)
    atheris.Fuzz()


def report(fuzzer: Fuzzer) -> None:
    """Print one line: outcomes, CPU time, the slowest input and peak memory."""
    total = sum(fuzzer.ends.values())
    ends = ", ".join(f"{count:,} {end}" for end, count in fuzzer.ends.most_common())
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if peak_mib > MOST_MIB:
        fuzzer.failures["memory"] = f"{peak_mib} MiB"
    used = f"{time.process_time():.0f} s of CPU, slowest {fuzzer.slowest_s:.2f} s, at most {peak_mib:,} MiB"
    print(f"{fuzzer.reader.name:14} {total:9,} inputs: {ends}; {used}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz every reader of files.")
    parser.add_argument("--reader", help="one reader instead of all")
    parser.add_argument("--inputs", type=int, default=2000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=10.0, help="seconds of CPU that one input may take")
    parser.add_argument("--engine", choices=["own", "atheris"], default="own")
    args = parser.parse_args()
    if args.reader is None:  # one process each: a reader that takes the process down takes only itself
        from readers import READERS

        codes = [
            subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--reader", name], check=False
            ).returncode
            for name in READERS
        ]
        return int(any(codes))
    if args.engine == "atheris":
        import atheris

        # The sources themselves: atheris cannot follow the loader of an editable install.
        sys.path.insert(0, str(CORPUS.parents[2]))
        sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
        with atheris.instrument_imports(include=["planner"]):
            pass
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        fuzzer = Fuzzer(args.reader, folder, args.slow)
        (fuzz if args.engine == "own" else fuzz_with_atheris)(fuzzer, args.inputs, args.seed)
        report(fuzzer)
    return int(bool(fuzzer.failures))


if __name__ == "__main__":
    sys.exit(main())
