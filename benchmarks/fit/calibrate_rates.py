"""Writes data/rates.toml of planner.device.rates: shares, factors and errors of the compute model
(docs/compute.md).

    python calibrate_rates.py          fits and prints the figures
    python calibrate_rates.py --write  also leaves out every source, every device and every kind of
                                                  network of a device, and writes the file and its errors
    python calibrate_rates.py --fit-only  writes the file with the errors that were found before
    python calibrate_rates.py --sources-only  leaves out sources, and keeps the errors of the other groups

Takes a minute: one fit for each group that is left out. What large models spend beside computing is known by
the constants that are shipped, so calibrate until nothing moves. devices.py prints what was found.
"""

from __future__ import annotations

import argparse
import csv
import io
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from fit_runs import FitRun as Run
from fit_runs import data_parallel_runs, large_fit_runs, layout_fit_runs, one_machine_runs, single_device_runs
from rates_fit import FRAMEWORKS, Array, Prior, Problem, Solver, of_framework, prior

from planner.calibrate.accelerator import to_toml
from planner.device.rates import (
    CLASS,
    RateConstants,
    basis_from_rows,
    device_family,
    network_class,
    parse_rate_constants,
)
from planner.files.regular_file import shipped_folder, write_file

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGET = ROOT / "planner" / "device" / "rates" / "data" / "rates.toml"
LEFT_OUT = ROOT / "planner" / "validation" / "data" / "rates_left_out.csv"
SETTINGS = tomllib.loads((HERE / "rates_settings.toml").read_text())
FLOORS = {name: entry.get("floor_share", 1.0) for name, entry in SETTINGS["frameworks"].items()}
HEAD = "# Written by benchmarks/fit/calibrate_rates.py; docs/compute.md tells what the figures mean.\n\n"
NETWORKS = {"all": ("cnn", "transformer")}
OF_SCRIPTS = ("stops_early", "even_stages", "summed_bytes", "gradients")  # known from code, not fitted
LEAST_OF_A_KIND = 5  # runs of a device that are worth a fit without them
LEAST_ROWS = 10  # of a kind of network, for errors of its own
LAYOUTS = "layouts "  # how ids of layouts begin (`planner.validation.reader`)
RECORDED_SIGMA = 0.02  # between steps of one recording (docs/compute.md: 1.1% to 2.5%)


def matmul_share() -> dict[str, float]:
    """The usual share of the dense peak that large products were measured to reach, by format."""
    by_name: dict[str, list[float]] = {}
    devices = tomllib.loads((shipped_folder("hardware") / "devices.toml").read_text())["devices"]
    for entry in devices.values():
        for format, reached in entry.get("matmul_tflops", {}).items():
            if format in entry["tflops"]:
                by_name.setdefault(format, []).append(reached / entry["tflops"][format])
    return {format: round(float(np.median(shares)), 3) for format, shares in by_name.items()}


def unfitted() -> dict[str, Any]:
    """The tables of the file before a fit."""
    frameworks = {
        name: {
            "traffic": 1.0,
            "fixed_s": 30e-6,
            "floor_s": 40e-6,
            "time": entry.get("time", 1.0),
            "exposed_sums": entry.get("exposed_sums", 1.0),
            **{key: entry[key] for key in OF_SCRIPTS if key in entry},
            "channels_last": entry["channels_last"],
            "basis": entry["words"],
        }
        for name, entry in SETTINGS["frameworks"].items()
    }
    return {
        "as_of": date.today().isoformat(),
        "rows": 0,
        "memory_share": 0.8,
        "old_memory_share": 1.0,
        "fast_memory_bytes_per_s": 1e15,
        "fast_flops": 1e18,
        "board_share": 1.0,
        "overlap": SETTINGS["overlap"],
        "small_rows": 100.0,
        "small_sides": 100.0,
        "layout_passes": 1.0,
        "update_launches": SETTINGS["update_launches"],
        "loader_images_per_s": 1e9,
        "shares": {},
        "matmul_share": matmul_share(),
        "families": SETTINGS["families"],
        "cache_bytes": {name: size * 1e6 for name, size in SETTINGS["cache_mbytes"].items()},
        "frameworks": frameworks,
        "devices": {},
        "errors": {},
    }


def attention() -> dict[str, float]:
    """By family, what attention alone reaches of what products do, beside A100's; later families that nobody
    measured have the least."""
    devices = tomllib.loads((shipped_folder("hardware") / "devices.toml").read_text())["devices"]
    share = {}
    for name, entry in SETTINGS["attention_tflops"].items():
        matmul = devices[name]["matmul_tflops"]
        share[SETTINGS["families"][name]] = entry / matmul.get("fp16", matmul.get("bf16"))
    by_name = {family: one / share["A100"] for family, one in share.items()}
    return by_name | {
        family: min(by_name.values()) for family in SETTINGS["as_latest"] if family not in by_name
    }


def fitted_tables(z: Array, prior: Prior, runs: Sequence[Run], figures: RateConstants) -> dict[str, Any]:
    """The parameters as the tables of the file."""
    tables = unfitted()
    value = dict(zip(prior.names, np.exp(z).tolist(), strict=True))
    tables |= {
        "rows": sum(run.fitted for run in runs),
        "memory_share": value["memory"],
        "old_memory_share": value["old_memory"],
        "fast_memory_bytes_per_s": value["fast_memory"],
        "fast_flops": value["fast_products"],
        "board_share": value["board"],
        "small_rows": value["rows"],
        "small_sides": value["sides"],
        "layout_passes": value["layout"],
    }
    for name in FRAMEWORKS:
        tables["frameworks"][name] |= {
            "traffic": value["traffic"] * value[of_framework("traffic", name)],
            "fixed_s": value["fixed"] * value[of_framework("fixed", name)],
            "floor_s": value["floor"] * value[of_framework("floor", name)],
            "rows": sum(run.fitted and run.framework == name for run in runs),
        }
        own = {kind: value[f"{kind}/{name}"] for kind in ("matmul", "attention") if f"{kind}/{name}" in value}
        tables["frameworks"][name] |= own
    for name, entry in SETTINGS["frameworks"].items():
        if "like" in entry:
            same = ("traffic", "fixed_s", "floor_s")
            tables["frameworks"][name] |= {key: tables["frameworks"][entry["like"]][key] for key in same}
    for name, number in value.items():
        what, *rest = name.split("/")
        if what == "share":
            tables["shares"].setdefault(rest[0], {})[rest[1]] = number
        elif what == "device" and len(rest) == 3:
            device = tables["devices"].setdefault(rest[0], {})
            device.setdefault("shares", {}).setdefault(rest[1], {})[rest[2]] = number
        elif what == "device":
            tables["devices"].setdefault(rest[0], {})[rest[1]] = number
    for (family, kind_class, network), rows in known_rows(runs, figures).items():
        table = tables["devices"][family].setdefault("rows", {})
        table.setdefault(kind_class, {})[network] = rows
    return tables


def known_rows(runs: Sequence[Run], figures: RateConstants) -> Counter[tuple[str, str, str]]:
    return Counter(
        (device_family(run.device, figures), CLASS[run.precision.compute], network_class(run.model))
        for run in runs
        if run.fitted
    )


def usable(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.unexplained and run.input != "files"]


Key = Callable[[Run], str]


def leave_out(key: Key, runs: Sequence[Run], solver: Solver, start: Array) -> Array:
    """Errors of each run by a fit that has seen none of its group."""
    out = np.full(len(runs), np.nan)
    groups = np.array([key(run) for run in runs])
    for group in sorted(set(groups) - {""}):
        mine = groups == group
        out[mine] = solver.log_errors(solver.fit(~mine, start))[mine]
        print(f"  without {group:45} {summary(out[mine])}", flush=True)
    return out


def bases_without(key: Key, runs: Sequence[Run], figures: RateConstants) -> list[str]:
    """On what basis each run is predicted by a fit that has seen none of its group; "": it has no group."""
    out = [""] * len(runs)
    for group in {key(run) for run in runs} - {""}:
        rows = known_rows([run for run in runs if key(run) != group], figures)
        for at, run in enumerate(runs):
            if key(run) == group:
                out[at] = _basis(run, rows, figures)
    return out


def _basis(run: Run, rows: Counter[tuple[str, str, str]], figures: RateConstants) -> str:
    family, kind_class = device_family(run.device, figures), CLASS[run.precision.compute]
    left = {network: rows[family, kind_class, network] for network in ("cnn", "transformer")}
    known = {network: number for network, number in left.items() if number}
    return basis_from_rows(run.device, run.precision, network_class(run.model), known)


def summary(errors: Array) -> str:
    """Of throughputs: median, 90th percentile and worst of their errors, and the median bias."""
    off = abs(np.expm1(-errors)) * 100
    return (
        f"{len(errors):4} runs {np.median(off):5.1f} / {np.quantile(off, 0.9):5.1f} / {off.max():6.1f} %"
        f"  bias {np.expm1(-np.median(errors)):+6.1%}"
    )


def spreads(runs: Sequence[Run], found: dict[str, Array], bases: dict[str, list[str]]) -> dict[str, Any]:
    """Quantiles of |log error| by basis and kind of network; none is more certain than where runs were
    fitted."""
    recorded = {"median": RECORDED_SIGMA * 0.674, "q90": RECORDED_SIGMA * 1.645, "rows": 0, "sources": 0}
    tables: dict[str, Any] = {"recorded": {"all": recorded}}
    rows = [
        (bases[name][at], network_class(run.model), run.source, abs(float(found[name][at])))
        for name in found
        for at, run in enumerate(runs)
        if (run.fitted or network_class(run.model) == "other") and not np.isnan(found[name][at])
    ]
    for basis in sorted({row[0] for row in rows}):
        for network in ("all", "cnn", "transformer", "other"):
            mine = [row for row in rows if row[0] == basis and row[1] in NETWORKS.get(network, (network,))]
            if network == "all" or len(mine) >= LEAST_ROWS:
                off = [row[3] for row in mine]
                tables.setdefault(basis, {})[network] = {
                    "median": float(np.median(off)),
                    "q90": float(np.quantile(off, 0.9)),
                    "rows": len(mine),
                    "sources": len({row[2] for row in mine}),
                }
    for table in tables.values():  # nothing is fitted to other networks, whatever is known of a device
        if "all" in table and table is not tables["recorded"]:
            other = table.get("other", tables["new kind"]["other"])
            table["other"] = max(other, tables["new kind"]["other"], key=lambda spread: spread["q90"])
    for basis in ("new kind", "matmul", "peaks"):
        for network, spread in tables[basis].items():
            spread["q90"] = max(spread["q90"], tables["fitted"].get(network, spread)["q90"])
    return tables


def loader_images_per_s(runs: Sequence[Run], z: Array, prior: Prior, figures: RateConstants) -> float:
    """What eight processes that decode files give, where the device would be at least 1.5 times as fast."""
    files = [run for run in runs if run.input == "files" and run.device.vendor == "nvidia"]
    per_s = np.array([run.per_s for run in files])
    possible = per_s * np.exp(-Problem(files, prior, figures).log_errors(z))
    return float(np.median(per_s[possible > 1.5 * per_s]))


def group_keys(runs: Sequence[Run], figures: RateConstants) -> dict[str, Key]:
    """What is left out together: a source, a family of devices, a kind of network of a family in a format."""
    rows = known_rows(runs, figures)

    def kind(run: Run) -> str:
        """ "": the family has runs of no other kind in the format, or too few of this."""
        family, kind_class = device_family(run.device, figures), CLASS[run.precision.compute]
        network = network_class(run.model)
        other = "transformer" if network == "cnn" else "cnn"
        both = rows[family, kind_class, other] and rows[family, kind_class, network] >= LEAST_OF_A_KIND
        return f"{family} {kind_class} {network}" if both else ""

    return {
        "source": lambda run: run.source,
        "device": lambda run: device_family(run.device, figures),
        "kind": kind,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fit-only", action="store_true", help="write, with the errors found before")
    parser.add_argument("--sources-only", action="store_true", help="write, with new errors of sources alone")
    asked = parser.parse_args()
    all_runs = (*single_device_runs(), *one_machine_runs())
    known = {run.id for run in all_runs}
    larger = [run for run in large_fit_runs() if run.id not in known]
    runs = usable((*all_runs, *larger, *layout_fit_runs(), *data_parallel_runs()))
    figures = parse_rate_constants(unfitted())
    every = prior(runs, figures, attention(), FLOORS)
    solver = Solver(runs, every, figures)
    seen = np.array([run.fitted for run in runs])
    z = solver.fit()
    errors = solver.log_errors(z)
    print("in-sample", summary(errors[seen]))
    print("several devices, not in the fit", summary(errors[~seen]))
    for name, number in zip(every.names, np.exp(z), strict=True):
        if not name.startswith("device/"):
            print(f"  {name:28} {number:.4g}")
    loader = loader_images_per_s(all_runs, z, every, figures)
    print(f"  eight processes decode {loader:.0f} images/s")
    if not (asked.write or asked.fit_only or asked.sources_only):
        return
    by_name = {}
    for name, key in group_keys(runs, figures).items():
        stored = asked.fit_only or (asked.sources_only and name != "source")
        by_name[name] = read_left_out(name, runs) if stored else leave_out(key, runs, solver, z)
        if name != "source":  # hundreds of runs of one device and one source must not set other ranges
            by_name[name][[run.id.startswith(LAYOUTS) or not run.fitted for run in runs]] = np.nan
        print(f"leave one {name} out", summary(by_name[name][~np.isnan(by_name[name])]))
    bases = {name: bases_without(key, runs, figures) for name, key in group_keys(runs, figures).items()}
    tables = fitted_tables(z, every, runs, figures)
    tables |= {"loader_images_per_s": loader, "errors": spreads(runs, by_name, bases)}
    parse_rate_constants(tables)
    write_file(TARGET, HEAD + to_toml(tables))
    write_left_out(runs, errors, by_name, bases)
    print(f"wrote {TARGET} and {LEFT_OUT}")


def read_left_out(name: str, runs: Sequence[Run]) -> Array:
    """Errors that an earlier run of this program has found."""
    with LEFT_OUT.open(newline="") as file:
        known = {row["id"]: float(row[name] or "nan") for row in csv.DictReader(file)}
    return np.array([known.get(run.id, np.nan) for run in runs])


def write_left_out(
    runs: Sequence[Run], errors: Array, found: dict[str, Array], bases: dict[str, list[str]]
) -> None:
    """log(predicted step / published step) of every run, with all seen and with its group left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "seen", *(f"{name}{what}" for name in found for what in ("", "_basis"))])
    for at, run in enumerate(runs):
        cells = [run.id, f"{errors[at]:.4f}"]
        for name, left in found.items():
            missing = np.isnan(left[at])
            cells += ["", ""] if missing else [f"{left[at]:.4f}", bases[name][at]]
        writer.writerow(cells)
    write_file(LEFT_OUT, text.getvalue())


if __name__ == "__main__":
    main()
