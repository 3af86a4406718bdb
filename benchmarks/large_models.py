"""Published runs of large models beside predictions, and the few constants that are chosen on them.

    python benchmarks/large_models.py            what the shipped constants give, seen and left out
    python benchmarks/large_models.py --write    choose again; store constants and left-out errors

Two frameworks are like `megatron` but for one or two constants: `transformer-engine` (Hopper: how much faster
its kernels are) and `megatron-deepspeed` (what launching and starting a kernel costs). The first is chosen on
all sources and without each; the second, of which there is one source, on all layouts and on those of the
models of the other width. Kernel rates were fitted to some of the runs too: what those lose when their source
is left out of that fit (`rates_left_out.csv`) is added.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from planner.errors import BadInput
from planner.rates import constants as stored
from planner.rates import times
from planner.validate import large_baselines, large_shapes
from planner.validate.figures import packed_table
from planner.validate.large_runs import LargeRun, read_runs, untuned
from planner.validate.large_steps import framework, predicted
from planner.validate.layout_runs import Layout, read_layouts
from planner.validate.suites.sharded import evidence_of
from planner.validate.training import training_rows

ROOT = Path(__file__).parent.parent / "planner"
CONSTANTS = ROOT / "rates" / "data" / "large_frameworks.toml"
LEFT_OUT = ROOT / "validate" / "data" / "large_left_out.csv"
RATES_LEFT_OUT = ROOT / "validate" / "data" / "rates_left_out.csv"
LIKE = "megatron"
ENGINE, DEEPSPEED = "transformer-engine", "megatron-deepspeed"
BASIS = {
    ENGINE: "Megatron-Core, NeMo and MLPerf with TransformerEngine on Hopper",
    DEEPSPEED: "Megatron-DeepSpeed of 2021 and 2022",
}
TIMES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)
FLOORS, FIXED = (40e-6, 50e-6, 60e-6, 70e-6, 80e-6, 90e-6, 100e-6), (5e-6, 10e-6, 20e-6)
MOST = 0.5  # an error above counts as this: a run that is off for reasons of its own must not decide
Chosen = Mapping[str, float]


def with_framework(name: str, chosen: Chosen) -> None:
    """Predict with other constants of a framework from now on."""
    now = stored.constants()
    like = msgspec.structs.replace(now.frameworks[LIKE], basis=BASIS[name], rows=0, **chosen)
    changed = msgspec.structs.replace(now, frameworks={**now.frameworks, name: like})
    times.constants = lambda: changed  # type: ignore[assignment]
    times._coefficients.cache_clear()
    times.computation_s.cache_clear()


def logs(runs: Sequence[LargeRun]) -> np.ndarray:
    """log(predicted / measured) of each run; nan where there is no prediction."""
    found = []
    for run in runs:
        try:
            step = predicted(run)
        except BadInput:
            step = None
        found.append(np.nan if step is None else np.log(step.seconds / run.step_s))
    return np.array(found)


def engine(runs: Sequence[LargeRun]) -> tuple[Chosen, dict[str, float]]:
    """The factor of all sources, and for each run what leaving its source out adds to its log."""
    tables = {}
    for value in TIMES:
        with_framework(ENGINE, {"time": value})
        tables[value] = logs(runs)
    sources = np.array([run.source for run in runs])

    def best(keep: np.ndarray) -> float:
        return min(TIMES, key=lambda value: float(np.nanmean(np.minimum(abs(tables[value][keep]), MOST))))

    everything = best(np.full(len(runs), True))
    shifts = {}
    for source in np.unique(sources).tolist():
        mine = sources == source
        value = best(~mine)
        print(f"{ENGINE}: time {value} without {source}")
        for at in np.flatnonzero(mine).tolist():
            shifts[runs[at].id] = float(tables[value][at] - tables[everything][at])
    return {"time": everything}, shifts


def deepspeed(layouts: Sequence[Layout]) -> tuple[Chosen, dict[str, float]]:
    """The same for layouts, by the spread of logs inside a group: what decides between layouts is how they
    compare, not how long all of them are. Left out are the models of a width."""
    runs = [one.run for one in layouts]
    grid = [{"floor_s": floor, "fixed_s": fixed} for floor in FLOORS for fixed in FIXED]
    tables = []
    for chosen in grid:
        with_framework(DEEPSPEED, chosen)
        tables.append(logs(runs))
    groups = np.unique([one.group for one in layouts], return_inverse=True)[1]
    width = np.array([run.series.split("x")[0] for run in runs])

    def cost(table: np.ndarray, keep: np.ndarray) -> float:
        spreads = []
        for group in np.unique(groups[keep]).tolist():
            mine = table[keep & (groups == group)]
            spreads += abs(mine - np.median(mine)).tolist()
        return float(np.mean(spreads))

    def best(keep: np.ndarray) -> int:
        return min(range(len(grid)), key=lambda at: cost(tables[at], keep))

    everything = best(np.full(len(runs), True))
    shifts = {}
    for one in np.unique(width).tolist():
        mine = width == one
        value = best(~mine)
        print(f"{DEEPSPEED}: {grid[value]} without models of width {one}")
        for at in np.flatnonzero(mine).tolist():
            shifts[f"layouts {runs[at].id}"] = float(tables[value][at] - tables[everything][at])
    return grid[everything], shifts


def of_rates(runs: Sequence[LargeRun]) -> dict[str, float]:
    """What runs of a source lose where kernel rates are fitted without it: the median of its runs in that
    fit, of the same device where there are any."""
    lost: dict[tuple[str, str], list[float]] = defaultdict(list)
    rows = {row["id"]: row for row in training_rows()}
    with RATES_LEFT_OUT.open(newline="") as file:
        for row in csv.DictReader(file):
            of = rows.get(row["id"])
            if of is None or of["arch"] != "llm" or not row["source"]:
                continue
            for key in (of["device"], ""):
                lost[of["source_id"], key].append(float(row["source"]) - float(row["seen"]))
    found = {}
    for run in runs:
        device = rows[run.id]["device"]
        values = lost.get((run.source, device)) or lost.get((run.source, ""))
        if values:
            found[run.id] = median(values)
    return found


def text_of(chosen: Mapping[str, tuple[Chosen, int]]) -> str:
    lines = [
        "# Written by benchmarks/large_models.py --write: frameworks of large models beside those of",
        "# rates.toml, each like another but for what runs of several devices show.",
    ]
    for name, (values, rows) in chosen.items():
        lines += ["", f"[frameworks.{name}]", f'like = "{LIKE}"']
        lines += [f"{key} = {value:g}" for key, value in values.items()]
        lines += [f'basis = "{BASIS[name]}"', f"rows = {rows}"]
    return "\n".join([*lines, ""])


def table(title: str, runs: Sequence[LargeRun], errors: np.ndarray, key: Callable[[LargeRun], str]) -> None:
    print(f"\n{title}")
    for name in dict.fromkeys(key(run) for run in runs):
        mine = np.array([key(run) == name for run in runs]) & np.isfinite(errors)
        if mine.any():
            off = np.expm1(errors[mine])
            print(
                f"  {name:34}{mine.sum():4}  {np.median(abs(off)):6.1%} / {np.quantile(abs(off), 0.9):6.1%}"
                f"  bias {np.median(off):+6.1%}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    runs, _ = read_runs(row for row in training_rows() if not untuned(row))
    if asked.write:
        write(runs)
    seen = logs(runs)
    shifts = {row["id"]: float(row["shift"]) for row in csv.DictReader(LEFT_OUT.open(newline=""))}
    left = seen + np.array([shifts.get(run.id, 0.0) for run in runs])
    for title, errors in (("seen", seen), ("source left out", left)):
        table(title, runs, errors, lambda run: run.kind)
    table("source left out, by source", runs, left, lambda run: f"{run.source} {run.kind}")
    print("\nbeside simple rules, sources left out")
    rows = evidence_of(training_rows()).rows
    print("\n".join(f"  {line}" for line in large_baselines.lines(large_baselines.beside(runs, rows))))
    print("\nshapes")
    print("\n".join(f"  {line}" for line in large_shapes.lines()))
    return 0


def write(runs: Sequence[LargeRun]) -> None:
    refused: Counter[str] = Counter()
    layouts = read_layouts(packed_table("layouts.csv.gz"), refused)
    mine = [run for run in runs if framework(run) == ENGINE]
    factor, engine_shifts = engine(mine)
    with_framework(ENGINE, factor)
    launch, layout_shifts = deepspeed(layouts)
    print(f"chosen: {ENGINE} {factor}, {DEEPSPEED} {launch}")
    CONSTANTS.write_text(text_of({ENGINE: (factor, len(mine)), DEEPSPEED: (launch, len(layouts))}))
    both: Counter[str] = Counter()
    for shifts in (engine_shifts, of_rates(runs), layout_shifts):
        both.update(shifts)  # type: ignore[arg-type]
    lines = [f"{id},{shift:.5f}" for id, shift in sorted(both.items()) if abs(shift) >= 5e-6]
    LEFT_OUT.write_text("\n".join(["id,shift", *lines, ""]))
    stored.constants.cache_clear()
    times.constants = stored.constants
    times._coefficients.cache_clear()
    times.computation_s.cache_clear()


if __name__ == "__main__":
    sys.exit(main())
