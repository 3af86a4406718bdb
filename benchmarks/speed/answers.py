"""How long answers take: `python benchmarks/speed/answers.py [--runs 3] [NAME...]`.

Each question is asked in a process of its own, as from a shell: wall-clock and CPU seconds with start-up, and
for `recommend` how long it takes until a first answer is on the screen. The targets are 5 s on two idle cores
and 2 s for the first answer; on a busy machine CPU seconds say more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

QUESTIONS = {
    "recommend resnet50": ["recommend", "--model", "resnet50"],
    "recommend vgg11": ["recommend", "--model", "vgg11"],
    "recommend vgg11 --budget 20": ["recommend", "--model", "vgg11", "--budget", "20"],
    "recommend bert-large": ["recommend", "--model", "bert-large"],
    "recommend resnet50 --spot": ["recommend", "--model", "resnet50", "--spot"],
    "compare resnet50, 4 GPUs": ["compare", "--model", "resnet50", "--gpu", "A100,H100,L4,T4"],
    "compare resnet50": ["compare", "--model", "resnet50"],
    "saturation resnet50": ["saturation", "--model", "resnet50", "--gpu", "A100"],
    "simulate resnet50": ["simulate", "--model", "resnet50", "--gpu", "A100", "--workers", "8"],
}
FIRST = "so far"


def ask(arguments: list[str]) -> None:
    """In a process of its own: the question, and when something was first known, on stderr."""
    from planner.cli._app import main
    from planner.cli._output import ProgressLog

    began, told = float(os.environ["BENCHMARK_BEGAN"]), []

    def found(watch: ProgressLog, words: str) -> None:
        if not told:
            told.append(words)
            print(f"{FIRST} {time.time() - began:.3f}", file=sys.stderr)

    ProgressLog.on_improvement = found  # type: ignore[method-assign]
    sys.argv = ["planner", *arguments]
    main()


def timed(arguments: list[str]) -> tuple[float, float, float | None]:
    """Wall-clock seconds, CPU seconds, seconds until the first answer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.time()
    run = subprocess.run(
        [sys.executable, __file__, "--ask", json.dumps(arguments)],
        env=os.environ | {"BENCHMARK_BEGAN": str(began)},
        capture_output=True,
        text=True,
        check=True,
    )
    wall_s = time.time() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    first = [float(line.split()[-1]) for line in run.stderr.splitlines() if line.startswith(FIRST)]
    return wall_s, cpu_s, first[0] if first else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="questions that begin with these words")
    parser.add_argument("--runs", type=int, default=1, help="the fastest of so many is shown")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask:
        ask(json.loads(asked.ask))
        return
    print(f"{'question':30}{'wall s':>8}{'CPU s':>8}{'first s':>9}   ({os.cpu_count()} cores)")
    for name, arguments in QUESTIONS.items():
        if asked.names and not any(name.startswith(word) for word in asked.names):
            continue
        wall_s, cpu_s, first_s = min(timed(arguments) for _ in range(asked.runs))
        print(
            f"{name:30}{wall_s:8.2f}{cpu_s:8.2f}{'' if first_s is None else f'{first_s:.2f}':>9}", flush=True
        )


if __name__ == "__main__":
    main()
