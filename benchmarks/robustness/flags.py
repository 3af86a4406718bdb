"""Extreme values for every flag of every command: one line or an answer, within 20 s of CPU and 2 GiB.

    python benchmarks/robustness/flags.py --count 4000 --seed 1
    python benchmarks/robustness/flags.py --command simulate --count 200

Each case runs in a forked child of a process that has loaded planner. Cases with a traceback, an unknown exit
status, an error of several lines, or more time or memory are printed with their commands; the exit status is
1.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_CPU_S = 20.0
MOST_WALL_S = 180.0  # on a machine that does other work too
MOST_MIB = 2048
PROGRESS = re.compile(r"planner: [\w ]+, \d+%")
STATUSES = (0, 1, 2, 3, 130)
ROOT = Path(__file__).resolve().parents[2]

NUMBERS = (
    *("0", "-1", "1", "-0", "2", "1.5", "0.999", "1e308", "-1e308", "1e-300", "1e-320", "5e-324", "1e400"),
    *("nan", "inf", "-inf", "9223372036854775807", "9223372036854775808", "10000000000000000000", "1e19"),
    *("99999999", "4096", "65537", "9" * 400, "9" * 5000, "0x10", "1_000", "\u0661\u0662", "", " ", "1,2"),
    *("+5", "1e", "--"),
)  # fmt: skip
TEXTS = (
    *("x", "*", "all", "none", "auto", ",", "," * 1000, "a" * 5000, "../../etc/passwd", "/", ".", "{}"),
    *("$(id)", "a\nb", "\x1b[2J", "\u2028", "\udcff", "1-4096", "1-99999999", "0-0", "5-1", "1,,2"),
    *("1-4,8,16-99999", "1e308 GB", "1e-320 B", "9223372036854775808 B", "1e308h", "1e-320s", "0h"),
    *("99999999h", "1e308Gbit/s", "1e-320Gbit/s", "1e308,1e308", "1e-320,1e-320", "T4,T4,T4", "p3.*"),
    *("x=1", "n=1e308", "fp64", "int1", "10B", "1e308B", "50%", "1000000%"),
)  # fmt: skip
PATHS = (
    *("", ".", "/", "/dev/full", "/dev/null", "no/such/folder/x.json", "x" * 300, "a\nb.html", "~nobody/x"),
    *("-", "x.toml", "x.sh", "x.k8s.yaml", "x.unknown", "\udcff.html", "sparse", "sparse.toml", "empty"),
    *("empty.json", "object.json"),
)  # fmt: skip
SIMULATE = "simulate --model vgg11 --hardware p3.2xlarge --workers 2"
BASES = (
    SIMULATE,
    f"{SIMULATE} --spot",
    f"{SIMULATE} --timeline t.json",
    f"{SIMULATE} --exchange ps --servers 1",
    "simulate --model llama3-8b --hardware p4d.24xlarge --workers 8 --train lora --epochs 1",
    "simulate --model resnet50 --hardware g5.xlarge --workers 4 --input jpeg",
    "recommend --model vgg11 --budget 5 --hardware g4dn.xlarge,p3.2xlarge",
    "recommend --model llama3-8b --train qlora --budget 3 --hardware g6e.xlarge,g5.xlarge",
    "recommend --model resnet50 --deadline 24h --epochs 10 --hardware g5.xlarge --workers 1-8",
    "compare --model resnet50 --gpu T4,L4",
    "saturation --model resnet50 --hardware g5.xlarge",
    "order --model alexnet --hardware p3.2xlarge",
    "partition --model vgg11 --hardware c4.8xlarge -n 4",
    "fit --model llama3-8b --gpu T4",
    "hardware show p3.2xlarge",
    "hardware show",
    "hardware new --gpu A100-SXM4-80GB --gpus 8",
    "models show resnet50",
    "models show llama3-8b --memory",
    "models import llama.json",
    "prices show p3.2xlarge",
    "prices import prices.csv",
    "profile show p.json",
    "profile import trace.json --batch 8",
    "check answer.json --measured 100",
    "check --list",
    "diff answer.json answer.json",
    "validate --runs runs.csv",
    "validate --suite ddp",
    "calibrate overhead capture.csv",
    "calibrate window p.json",
    "calibrate network 127.0.0.1 --port 9 --into own.toml",
    "record --steps 2 -- no_such_program.py",
)
# Flags that would run for minutes by themselves, or wait for a network.
LEFT_OUT = {"--cluster", "--serve", "--help", "--install-completion", "--show-completion"}
SWEEP = {
    "model": "alexnet", "hardware": "p3.2xlarge", "workers": "2", "exchange": "allreduce", "batch": "32",
    "precision": "fp32", "budget": "50",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A command with its files."""

    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        shown = " ".join(word if len(word) < 60 else f"{word[:20]}...({len(word)})" for word in self.words)
        return ascii(shown) + "".join(f" with {name}: {text[:300]!r}" for name, text in self.files)


def options_of(words: list[str]) -> list[Any]:
    """The options of a command."""
    from planner.cli._app import load_command

    command = load_command(words[0])
    inner = getattr(command, "commands", {})
    if inner:
        command = inner[words[1]]
    return [param for param in command.params if param.opts[0].startswith("-")]


def values_for(option: Any) -> tuple[str, ...]:
    """Extreme values for an option."""
    kind = str(getattr(option, "type_descriptor", ""))
    if "pathlib" in kind:
        return PATHS
    return NUMBERS if "'int'" in kind or "'float'" in kind else NUMBERS + TEXTS


def without(words: list[str], name: str) -> list[str]:
    """The words of a command without an option and its value."""
    if name not in words:
        return words
    at = words.index(name)
    valued = at + 1 < len(words) and not words[at + 1].startswith("--")
    return words[:at] + words[at + 1 + valued :]


def random_case(chance: random.Random, bases: list[str]) -> Case:
    """A command with one or two flags of extreme values, sometimes a sweep."""
    if "sweep" in bases and chance.random() < 0.08:
        return sweep_case(chance)
    words = shlex.split(chance.choice([base for base in bases if base != "sweep"]))
    options = [option for option in options_of(words) if not LEFT_OUT & set(option.opts)]
    for option in chance.sample(options, k=chance.choice((1, 1, 1, 2)) if len(options) > 1 else len(options)):
        name = option.opts[0]
        if getattr(option, "is_flag", False):
            words.append(name)
        else:
            words = [*without(words, name), name, chance.choice(values_for(option))]
    return Case(tuple(words))


def sweep_case(chance: random.Random) -> Case:
    """A sweep with extreme values of one or two flags."""
    import json

    from planner.flags import flags_of
    from planner.search.request import Request

    scenario = dict(SWEEP)
    for flag in chance.sample(list(flags_of(Request)), k=2):
        scenario[flag.name] = chance.choice(NUMBERS + TEXTS)
    literals = []
    for name, value in scenario.items():
        number = (
            value if value.lstrip("+-").replace(".", "").replace("e", "").replace("-", "").isdigit() else ""
        )
        plain = number if number and value.isascii() and chance.random() < 0.5 else json.dumps(value)
        literals.append(f"{name} = {plain}")
    grid = f"workers = [1, 2, {chance.choice(('3', '4096', '99999999', '-1', '1e308'))}]"
    text = "\n".join([*(line for line in literals if not line.startswith("workers ")), "[grid]", grid, ""])
    words = ["sweep", "s.toml", *(["--store", "s.store"] if chance.random() < 0.5 else [])]
    return Case(
        (*words, *(["--jobs", chance.choice(NUMBERS)] if chance.random() < 0.3 else [])), (("s.toml", text),)
    )


def write_files(folder: Path) -> None:
    """Write the files that the commands read: real ones, an empty one, and a sparse one of 20 GiB."""
    import gzip
    import json

    sys.path.insert(0, str(Path(__file__).parent))
    from readers import READERS

    seeds = {
        "answer.json": ("answer", 0), "p.json": ("profile", 0), "trace.json": ("pytorch", 0),
        "llama.json": ("hugging_face", 0), "prices.csv": ("prices", 2), "runs.csv": ("runs", 0),
        "capture.csv": ("transfers", 0), "own.toml": ("hardware", 0),
    }  # fmt: skip
    for name, (reader, index) in seeds.items():
        data = READERS[reader].seeds()[index]
        (folder / name).write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    for name in ("empty", "empty.json"):
        (folder / name).write_bytes(b"")
    (folder / "object.json").write_text(json.dumps({}))
    for name in ("sparse", "sparse.toml"):
        with (folder / name).open("wb") as file:
            file.truncate(20 * 2**30)


def run(case: Case) -> tuple[str, float, float]:
    """Run a case; return its verdict, seconds of CPU and peak MiB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        for file, text in case.files:
            (folder / file).write_text(text, errors="surrogateescape")
        pid = os.fork()
        if pid == 0:
            _run_in_child(case, folder)
        began_s, killed = time.monotonic(), False
        while True:
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() - began_s > MOST_WALL_S and not killed:
                os.kill(pid, signal.SIGKILL)
                killed = True
            time.sleep(0.002)
        errors = (folder / ".stderr").read_text(errors="replace")
    cpu_s, mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return _verdict(status, killed, errors, cpu_s, mib), cpu_s, mib


def _run_in_child(case: Case, folder: Path) -> None:
    code: Any = 99
    try:
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, ".stdout"), (2, ".stderr")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
        resource.setrlimit(resource.RLIMIT_CPU, (int(3 * MOST_CPU_S), int(3 * MOST_CPU_S) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (4 * MOST_MIB * 2**20, 4 * MOST_MIB * 2**20))
        os.environ |= {"PLANNER_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
        sys.argv = ["planner", *case.words]
        from planner.cli import main

        try:
            main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _verdict(status: int, killed: bool, errors: str, cpu_s: float, mib: float) -> str:
    if "Traceback (most recent call last)" in errors:
        return "traceback: " + errors.strip().rpartition("\n")[2][:160]
    if killed or cpu_s > MOST_CPU_S:
        return "slow"
    if mib > MOST_MIB:
        return "memory"
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    if code not in STATUSES:
        return f"exit status {code}: {errors[-160:]!r}"
    said = [line for line in errors.splitlines() if line.strip() and not PROGRESS.match(line)]
    if code == 2 and len(said) > 1 and not any(line.startswith("Usage:") for line in said):
        return f"several lines: {errors[:300]!r}"
    if code == 2 and not said:
        return "no message"
    return f"exit status {code}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", help="one command instead of all")
    args = parser.parse_args()
    bases = [base for base in (*BASES, "sweep") if args.command in (None, base.split()[0])]
    for module in ("cli.answers", "cli.models", "answers.questions", "answers.recommend", "report.recommend"):
        importlib.import_module(f"planner.{module}")  # children inherit what is loaded
    chance = random.Random(args.seed)
    ends: Counter[str] = Counter()
    failures = 0
    most_s = most_mib = 0.0
    for _ in range(args.count):
        case = sweep_case(chance) if bases == ["sweep"] else random_case(chance, bases)
        end, cpu_s, mib = run(case)
        most_s, most_mib = max(most_s, cpu_s), max(most_mib, mib)
        known = end.startswith("exit status") and len(end) < 16
        ends[end if known else end.partition(":")[0]] += 1
        if not known:
            failures += 1
            print(f"{end} ({cpu_s:.1f} s, {mib:,.0f} MiB)\n  planner {case}", flush=True)
    print(f"{sum(ends.values()):,} commands: {dict(ends.most_common())}")
    print(f"slowest {most_s:.1f} s of CPU, at most {most_mib:,.0f} MiB; {failures} to look at")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
