"""Published scaling against predictions: `python benchmarks/accuracy/scaling.py [--write]`.

The comparison is `planner.validation.scaling`; here the settings that no row states are chosen, for all
sources and without each of them, and with `--write` stored in `planner/validation/data/scaling.toml` for
`planner validate`. `--data FILE` takes another table of the same columns.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from planner.validation import scaling
from planner.validation.own import read_user_rows
from planner.validation.reader import published_runs, read_rows
from planner.validation.run import Run
from planner.validation.scaling import Pair, Settings, link_label, predict_pair_s

# What must hold, median and 90th percentile: in one machine, and across machines.
ONE_MACHINE, ACROSS = (0.03, 0.12), (0.05, 0.20)
JITTERS = (0.01, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05)
JITTERS_S = (0.0, 0.001, 0.002, 0.003, 0.004)
WIDTHS = (2, 4)
GRID = tuple(Settings(*values) for values in product(JITTERS, JITTERS_S, WIDTHS))
STORED = Path(__file__).parents[2] / "planner" / "validation" / "data" / "scaling.toml"


@dataclass(frozen=True)
class ScalingResult:
    """A pair with the step that some settings predict."""

    pair: Pair
    predicted_s: float

    @property
    def run(self) -> Run:
        return self.pair.run

    @property
    def error(self) -> float:
        return abs(self.predicted_s / self.pair.run_s - 1)

    @property
    def linear(self) -> float:
        """The error of scaling without loss."""
        return abs(self.pair.linear_s / self.pair.run_s - 1)


def chosen(errors: dict[Settings, list[ScalingResult]], keep: Callable[[Run], bool]) -> Settings:
    """The settings with the least mean error, large errors cut at a fifth: a run that is far off for reasons
    of its own must not decide."""

    def cost(settings: Settings) -> float:
        kept = [min(entry.error, 0.2) for entry in errors[settings] if keep(entry.run)]
        return float(np.mean(kept))

    return min(errors, key=lambda settings: (cost(settings), settings.jitter, settings.jitter_s))


def leave_one_source_out(
    errors: dict[Settings, list[ScalingResult]],
) -> dict[str, tuple[Settings, list[ScalingResult]]]:
    """For each source the settings that the others choose, and its results with them."""
    sources = {entry.run.source for entry in next(iter(errors.values()))}
    by_name = {}
    for source in sorted(sources):
        settings = chosen(errors, lambda run, source=source: run.source != source)  # type: ignore[misc]
        by_name[source] = settings, [entry for entry in errors[settings] if entry.run.source == source]
    return by_name


def middle(values: Iterable[float]) -> tuple[float, float]:
    listed = list(values)
    return float(np.median(listed)), float(np.quantile(listed, 0.9))


def line(name: str, results: Sequence[ScalingResult]) -> None:
    ours, linear = middle(result.error for result in results), middle(result.linear for result in results)
    print(
        f"{name:38} {len(results):4}  {ours[0]:6.1%} / {ours[1]:6.1%}   {linear[0]:6.1%} / {linear[1]:6.1%}"
    )


def table(results: list[ScalingResult]) -> bool:
    print(f"{'median / 90th percentile of the error':38} {'runs':>4}  {'predicted':>15}   {'linear':>15}")
    groups: dict[str, list[ScalingResult]] = defaultdict(list)
    for result in results:
        groups[link_label(result.run)].append(result)
    for name, entry in sorted(groups.items()):
        line(name, entry)
    inside = [result for result in results if result.run.machines == 1]
    across = [result for result in results if result.run.machines > 1]
    print()
    line("one machine", inside)
    line("several machines, network known", across)
    known = [entry for entry in across if entry.run.software.gradient_bytes]
    line("  and width of gradients known", known)
    print()
    holds = True
    for name, entry, most in (("one machine", inside, ONE_MACHINE), ("machines", known, ACROSS)):
        reached = middle(match.error for match in entry)
        good = all(value <= limit for value, limit in zip(reached, most, strict=True))
        print(f"{'holds' if good else 'FAILS'}: {name}: at most {most[0]:.0%} / {most[1]:.0%}")
        holds = holds and good
    return holds


def stored(everything: Settings, without: dict[str, Settings]) -> str:
    """The settings as a table: those of all sources, and those without each."""

    def line(of: Settings) -> str:
        return f"{{ jitter = {of.jitter}, jitter_s = {of.jitter_s}, width = {of.width} }}"

    lines = [
        "# Written by `python benchmarks/accuracy/scaling.py --write`:",
        "# what no published row states, chosen on all sources and without each of them.",
        f"all = {line(everything)}",
        "",
        "[without]",
    ]
    return "\n".join([*lines, *(f'"{name}" = {line(of)}' for name, of in without.items()), ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="CSV with the columns of training.csv.gz")
    parser.add_argument("--write", action="store_true", help="store the settings for `planner validate`")
    parser.add_argument("--worst", type=int, default=0, help="list so many of the worst runs")
    arguments = parser.parse_args()
    runs = published_runs()[0] if arguments.data is None else read_rows(read_user_rows(arguments.data)[0])[0]
    pairs = [pair for pair in scaling.pair_runs(runs, {}) if not pair.run.recalled]
    errors = {
        settings: [ScalingResult(pair, predict_pair_s(pair, settings)) for pair in pairs] for settings in GRID
    }
    everything = chosen(errors, lambda run: True)
    print(f"settings by all sources: {everything}\n")
    left_out = leave_one_source_out(errors)
    if arguments.write:
        STORED.write_text(stored(everything, {name: settings for name, (settings, _) in left_out.items()}))
    results = [match for _, found in left_out.values() for match in found]
    holds = table(results)
    for worst in sorted(results, key=lambda result: -result.error)[: arguments.worst]:
        print(
            f"{worst.run.id} {worst.run.source} {worst.run.arch} {worst.pair.base.devices} -> "
            f"{worst.run.devices}: {worst.predicted_s / worst.pair.run_s - 1:+.0%}, {link_label(worst.run)}"
        )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
