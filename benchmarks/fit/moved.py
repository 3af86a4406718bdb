"""Published runs moved from one device to another, and from one batch to another, as recordings are.

    python moved.py          prints how far off they are (planner/validation/data/moved.csv)
    python moved.py --write  fits rates without the device, the source, and both, for each of them,
                                        and writes that file and planner/device/rates/data/moved.toml; minutes

A pair are two runs of one source with the same network, batch, format, framework and settings, on devices of
two families. `moved` is the published time on the first times the ratio of the synthesized times on both;
`synthesis` is the synthesized time on the second alone; `peaks` is the published time times the ratio of the
published peaks. Rates are fitted without what is left out: the second device, as if nobody had published a
run of it; the source, as a user's own runs are in no fit; or both. Where the second device is left out and
both are relatives (`planner.device.recorded.rescale`), the first has no factors of its own either: what one
does better or worse than the mean of all is expected of the other.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from calibrate_rates import FLOORS, attention, unfitted, usable
from fit_runs import FitRun as Run
from fit_runs import large_fit_runs, layout_fit_runs, one_machine_runs, single_device_runs
from rates_fit import Array, Solver, prior

from planner.calibrate.accelerator import to_toml
from planner.device.rates import device_family, network_class, parse_rate_constants
from planner.device.recorded.rescale import is_comparable
from planner.files.regular_file import write_file
from planner.validation.predict import network_kind

ROOT = Path(__file__).parents[2]
PAIRS = ROOT / "planner" / "validation" / "data" / "moved.csv"
TARGET = ROOT / "planner" / "device" / "rates" / "data" / "moved.toml"
HEAD = (
    "# Written by benchmarks/fit/moved.py: |log(moved / published)| of published runs, docs/recording.md.\n\n"
)
LEFT_OUT = ("device", "source", "both")
COLUMNS = (
    *(
        "kind",
        "source",
        "network",
        "from",
        "to",
        "from_device",
        "to_device",
        "vendors",
        "kind_of",
        "doublings",
    ),
    *(f"{what}_{left}" for left in LEFT_OUT for what in ("moved", "synthesis")),
    "peaks",
)
MOST_DOUBLINGS = (1, 2, 3, 5)

Errors = Mapping[str, Array]  # by what is left out: of every run


def settings(run: Run) -> tuple[object, ...]:
    """What two runs have in common but for their device or their batch."""
    return (
        *(run.source, run.model.name, run.precision.name, run.framework, run.optimizer, run.channels_last),
        *(run.flash, run.recompute, run.input, run.communication_s > 0),
    )


def device_pairs(runs: Sequence[Run], families: Sequence[str]) -> list[tuple[int, int]]:
    return _pairs(
        runs, lambda run: (*settings(run), run.batch), lambda item, other: families[item] != families[other]
    )


def batch_pairs(runs: Sequence[Run]) -> list[tuple[int, int]]:
    return _pairs(
        runs,
        lambda run: (*settings(run), run.device.name, run.series),
        lambda item, other: runs[item].batch != runs[other].batch,
    )


def _pairs(
    runs: Sequence[Run], key: Callable[[Run], Any], differ: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    groups: dict[Any, list[int]] = {}
    for at, run in enumerate(runs):
        groups.setdefault(key(run), []).append(at)
    return [
        (entry, other) for mine in groups.values() for entry in mine for other in mine if differ(entry, other)
    ]


def rows_of(
    runs: Sequence[Run], families: Sequence[str], without: Callable[[str, int, int | None], Array]
) -> list[dict[str, Any]]:
    """A row for each pair; `without` gives the errors of all runs by a fit without what the second run is of,
    and without the first one's device where that carries over."""
    out = []
    for kind, pairs in (("device", device_pairs(runs, families)), ("batch", batch_pairs(runs))):
        for entry, other in pairs:
            a, b = runs[entry], runs[other]
            row: dict[str, Any] = {
                "kind": kind,
                "source": b.source,
                "network": network_class(b.model),
                "from": a.id,
                "to": b.id,
                "from_device": families[entry],
                "to_device": families[other],
                "vendors": len({a.device.vendor or "nvidia", b.device.vendor or "nvidia"}),
                "kind_of": network_kind(b.model),
                "doublings": round(math.log2(b.batch / a.batch), 3),
            }
            for left in LEFT_OUT if kind == "device" else ("source",):
                carried = left != "source" and is_comparable(a.device, b.device)
                errors = without(left, other, entry if carried else None)
                row[f"moved_{left}"] = round(float(errors[other] - errors[entry]), 4)
                row[f"synthesis_{left}"] = round(float(without(left, other, None)[other]), 4)
            peaks = [run.device.flops.get(run.precision.compute) for run in (a, b)]
            if all(peaks):  # of one device: as many times as long as the batch is larger
                ratio = a.step_s / b.step_s * float(peaks[0] or 1) / float(peaks[1] or 1)
                ratio *= b.batch / a.batch
                row["peaks"] = round(math.log(ratio), 4)
            out.append(row)
    return out


class Fits:
    """Errors of all runs by fits that have not seen some of them, each made once."""

    def __init__(self) -> None:
        figures = parse_rate_constants(unfitted())
        self.runs = usable((*single_device_runs(), *one_machine_runs()))
        here = {run.id for run in self.runs}
        larger = [run for run in (*large_fit_runs(), *layout_fit_runs()) if run.id not in here]
        fitted = (*self.runs, *usable(larger))
        self.families = [device_family(run.device, figures) for run in fitted]
        self.sources = [run.source for run in fitted]
        self.solver = Solver(fitted, prior(fitted, figures, attention(), FLOORS), figures)
        self.start = self.solver.fit()
        self.known: dict[tuple[frozenset[str], str], Array] = {}

    def without(self, left: str, at: int, other: int | None = None) -> Array:
        out = () if left == "source" else (at,) if other is None else (at, other)
        families = frozenset(self.families[entry] for entry in out)
        source = self.runs[at].source if left != "device" else ""
        if (families, source) not in self.known:
            seen = ~np.isin(self.families, list(families)) & (np.array(self.sources) != source)
            self.known[families, source] = self.solver.log_errors(self.solver.fit(seen, self.start))
            print(f"  without {' and '.join(families) or 'no device'}, {source or 'no source'}", flush=True)
        return self.known[families, source]


def write(rows: Sequence[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(PAIRS, text.getvalue())
    tables = spreads([{key: str(value) for key, value in row.items()} for row in rows])
    write_file(TARGET, HEAD + to_toml({"as_of": date.today().isoformat(), **tables}))


def spreads(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Quantiles of |log error|: to a device with runs in the fit, to one without, to another vendor's."""
    devices = [row for row in rows if row["kind"] == "device"]
    same = [row for row in devices if row["vendors"] == "1"]
    groups = {
        "fitted": ("moved_source", same),
        "unseen": ("moved_both", same),
        "other vendor": ("moved_both", [row for row in devices if row["vendors"] != "1"]),
    }
    device = {
        name: {
            network: _spread([row for row in mine if network in ("all", row["network"])], column)
            for network in ("all", "cnn", "transformer")
        }
        for name, (column, mine) in groups.items()
    }
    batches = [row for row in rows if row["kind"] == "batch"]
    batch = {
        str(most): _spread([row for row in batches if abs(float(row["doublings"])) <= most], "moved_source")
        for most in MOST_DOUBLINGS
    }
    plain = {
        str(most): _spread([row for row in batches if abs(float(row["doublings"])) <= most], "peaks")
        for most in MOST_DOUBLINGS
    }
    return {"device": device, "batch": batch, "batch_unrated": plain}


def _spread(rows: Sequence[Mapping[str, str]], column: str) -> dict[str, Any]:
    rows = [row for row in rows if row.get(column)]
    off = [abs(float(row[column])) for row in rows]
    return {
        "median": float(np.median(off)),
        "q90": float(np.quantile(off, 0.9)),
        "rows": len(off),
        "sources": len({row["source"] for row in rows}),
    }


def table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Median and 90th percentile of |predicted / published - 1| in %."""
    devices = [row for row in rows if row["kind"] == "device"]
    out = [
        "| moved to | pairs | left out | moved by kind | synthesis alone | ratio of peaks |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for name, mine in (
        ("all", devices),
        *((kind, [row for row in devices if row["kind_of"] == kind]) for kind in ("CNN", "BERT", "LLM")),
        ("other vendor", [row for row in devices if row["vendors"] != "1"]),
        *(
            (device, [row for row in devices if row["to_device"] == device])
            for device in sorted({row["to_device"] for row in devices})
        ),
    ):
        for left in LEFT_OUT if name in ("all", "CNN", "BERT", "LLM", "other vendor") else ("device",):
            columns = (f"moved_{left}", f"synthesis_{left}", "peaks")
            cells = " | ".join(_cell([row[column] for row in mine if row[column]]) for column in columns)
            out.append(
                f"| {name} | {len(mine)} | {'device and source' if left == 'both' else left} | {cells} |"
            )
    return out


def batch_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    batches = [row for row in rows if row["kind"] == "batch"]
    out = ["| to a batch within a factor of | pairs | by kind | as the batch |", "|---|---:|---:|---:|"]
    for most in MOST_DOUBLINGS:
        mine = [row for row in batches if abs(float(row["doublings"])) <= most]
        cells = " | ".join(
            _cell([row[name] for row in mine if row[name]]) for name in ("moved_source", "peaks")
        )
        out.append(f"| {2**most} | {len(mine)} | {cells} |")
    return out


def _cell(values: Sequence[str]) -> str:
    if not values:
        return "-"
    off = [100 * abs(math.expm1(float(value))) for value in values]
    return f"{np.median(off):.1f} / {np.quantile(off, 0.9):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        fits = Fits()
        write(rows_of(fits.runs, fits.families, fits.without))
    with PAIRS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    print(
        "\n".join(["|predicted / published - 1| of step times in %, median / 90th percentile", *table(rows)])
    )
    print("\n".join(["", "another batch on the same device, source left out:", *batch_table(rows)]))


if __name__ == "__main__":
    main()
