"""Suites that compare published or a user's own runs with predictions.

    planner.validation.suites.evidence("sharded").parts

Titles and targets of suites are in `data/suites.toml`; this module selects each suite's runs, assigns them to
parts, and computes the figures stated besides errors. Runs that a suite cannot compare are in
`Evidence.skipped` with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import cast

import numpy as np

from planner.device.rates import constants, device_family, network_class
from planner.errors import unknown_name
from planner.validation import ddp, memory, scaling
from planner.validation.evidence import OTHER_KIND, Compared, Evidence, Statement, add_ranges, percentile_90
from planner.validation.predict import network_kind, predict_range, rule_of_thumb_s
from planner.validation.reader import published_runs
from planner.validation.row import load_figures, read_data_table
from planner.validation.rules import relative_errors
from planner.validation.run import LANGUAGE, CompleteRun, Run
from planner.validation.throughput import throughput_runs

OF_RUNS = ("allreduce", "throughput", "sharded", "devices", "memory")  # that a table of runs can feed
SUITES = ("papers", "servers", *OF_RUNS, "fine-tuning", "layouts")
NVIDIA = ("nvidia", "")
DEVICE_TARGET = (0.12, 0.35)  # of a device without runs
BIASED, MOST_BIAS, LEAST_RUNS = ("A100", "H100"), 0.10, 4
LOW, MOST_LOW, MOST_REFUSED = -0.15, 0.10, 0.03  # of memory
KINDS = {"sharded": "FSDP and ZeRO", "model_parallel": "tensor and pipeline", "plain": "plain replicas"}
APART = "adapters, frozen parts, inferred lengths"
SHAPED = "PyTorch over bandwidth-limited links (tc)"


def suite_evidence(name: str) -> Evidence:
    """Result of a suite on the shipped runs."""
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    if name in ("papers", "servers"):
        from planner.servers import validation as of_servers

        return of_servers.evidence(name)
    if name in ("layouts", "fine-tuning"):
        from planner.validation import fine_tuning, layouts

        return layouts.shipped_evidence() if name == "layouts" else fine_tuning.evidence()
    published, unread = published_runs()
    skipped = {entry.id: entry.reason for entry in unread}
    return evidence_from_runs(name, (*published, *throughput_runs()), skipped, shipped=True)


def evidence_from_runs(
    name: str, runs: Sequence[Run], skipped: Mapping[str, str] | None = None, *, shipped: bool = False
) -> Evidence:
    """Result of a suite on these runs; `skipped` has the rows that could not be read."""
    make = {
        "allreduce": _allreduce_evidence,
        "throughput": _throughput_evidence,
        "sharded": _sharded_evidence,
        "devices": _devices_evidence,
        "memory": _memory_evidence,
    }[name]
    result = make(runs, dict(skipped or {}))
    if name == "allreduce" and shipped:
        return replace(result, rows=add_ranges([*_measured_ddp(), *result.rows]))
    return result


def build_evidence(
    name: str, rows: Sequence[Compared], skipped: Mapping[str, str], statements: Sequence[Statement] = ()
) -> Evidence:
    """Result of a suite, with its titles and targets from `data/suites.toml`."""
    spec = load_figures("suites")[name]
    targets = {part: (values[0], values[1]) for part, values in spec.get("targets", {}).items()}
    return Evidence(
        suite=name,
        title=spec["title"],
        quantity=spec["quantity"],
        fitted=spec["fitted"],
        rule=spec.get("rule", ""),
        peers=spec.get("peers", ""),
        rows=rows,
        targets=targets,
        statements=statements,
        skipped=skipped,
        notes=spec.get("notes", []),
    )


def compare_runs(
    runs: Iterable[Run],
    skipped: dict[str, str],
    is_accepted: Callable[[Run], bool],
    part_of: Callable[[Run], str],
) -> list[Compared]:
    """Predictions of accepted runs beside their measurements; `skipped` gets reasons for all others."""
    rows = []
    for run in runs:
        if not is_accepted(run):
            skipped[run.id] = OTHER_KIND
            continue
        result = predict_range(run)
        if isinstance(result, str):
            skipped[run.id] = result
            continue
        assert run.step_s is not None
        rows.append(
            Compared(
                id=run.id,
                source=run.source,
                part=part_of(run),
                what=run_label(run),
                unit="s",
                measured=run.step_s,
                predicted=result.step.seconds,
                low=result.low_s,
                high=result.high_s,
                left_out=result.left_s,
                rule=rule_of_thumb_s(cast(CompleteRun, run)),
            )
        )
    return rows


def run_label(run: Run) -> str:
    """Label of a run: network, batch, devices, number format, parallelism and software."""
    layout = run.layout
    batch = f"batch {run.batch}" + (f" x {run.accumulate}" if run.accumulate > 1 else "")
    spread = ""
    if layout is not None and run.devices > 1:
        degrees = layout.mesh.label
        stage = f"ZeRO-{layout.stage}" if layout.stage else ""
        spread = ", ".join(filter(None, (degrees, stage)))
    precision = "" if run.precision is None else run.precision.name
    name = run.network if run.model is None else run.model.name
    devices = run.device_name if run.devices == 1 else f"{run.devices} x {run.device_name}"
    return ", ".join(filter(None, (name, batch, devices, precision, spread, run.software.tier)))


# devices


def is_without_network(run: Run) -> bool:
    """Whether a run measures devices, not a network between machines. True on one device, or for a language
    model in one machine, as nobody publishes large models on one device."""
    if run.devices == 1:
        return True
    sharded = run.layout is not None and run.layout.kind == "sharded"
    return sharded and run.arch == "llm" and run.machines == 1


def is_excluded_from_fit(run: Run) -> bool:
    """Whether the fit of kernel rates leaves a run out: frozen layers, or an inferred sequence length."""
    frozen = run.model is not None and run.model.has_frozen
    return frozen or any("tokens" in setting for setting in run.inferred)


def _device_part(run: Run) -> str:
    """Name of the table line that counts a run on devices, such as `CNN`."""
    assert run.device is not None
    assert run.model is not None
    if run.device.vendor not in NVIDIA:
        return "other vendors"
    return APART if is_excluded_from_fit(run) else network_kind(run.model)


def _devices_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of the suite on single devices and language models in one machine."""
    rows = compare_runs(runs, skipped, is_without_network, _device_part)
    by_id = {run.id: run for run in runs}
    mine = [by_id[row.id] for row in rows]
    return build_evidence(
        "devices", rows, skipped, [*_left_out_device_errors(mine), *_largest_bias(mine, rows)]
    )


def _left_out_device_errors(runs: Sequence[Run]) -> list[Statement]:
    """Errors on NVIDIA devices when their family is left out of the fit."""
    known = {
        row["id"]: float(row["device"]) for row in read_data_table("rates_left_out.csv") if row["device"]
    }
    off = [
        abs(float(np.expm1(known[run.fit_id])))
        for run in runs
        if run.fit_id in known and run.device is not None and run.device.vendor in NVIDIA
    ]
    if not off:
        return []
    name = "NVIDIA device left out"
    return [
        Statement(name=f"{name}: median error", value=median(off), target=DEVICE_TARGET[0]),
        Statement(name=f"{name}: nine in ten", value=percentile_90(off), target=DEVICE_TARGET[1]),
    ]


def _largest_bias(runs: Sequence[Run], rows: Sequence[Compared]) -> list[Statement]:
    """Statement on the largest bias over the most rented devices and formats; empty without enough runs."""
    by: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, row in zip(runs, rows, strict=True):
        assert run.device is not None
        assert run.precision is not None
        by[device_family(run.device, constants()), run.precision.name].append(row.error)
    biases = [
        abs(median(errors))
        for (family, _), errors in by.items()
        if family in BIASED and len(errors) >= LEAST_RUNS
    ]
    if not biases:
        return []
    name = f"largest bias of {' or '.join(BIASED)} in a number format"
    return [Statement(name=name, value=max(biases), target=MOST_BIAS)]


# throughput: data-parallel runs from scratch


def _throughput_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of the suite on data-parallel image training."""

    def takes_run(run: Run) -> bool:
        """Whether the suite compares a run: plain replicas on several devices, no language model."""
        plain = run.layout is None or run.layout.kind == "plain"
        return run.devices > 1 and run.arch not in LANGUAGE and plain

    def part_of(run: Run) -> str:
        """Name of the line of the results table that a run belongs to."""
        machines = "one machine" if run.machines == 1 else "several machines"
        return f"{_device_part(run)}, {machines}"

    return build_evidence("throughput", compare_runs(runs, skipped, takes_run, part_of), skipped)


# large models


def _sharded_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of the suite on language models and sharded training."""

    def takes_run(run: Run) -> bool:
        """Whether the suite compares a run: language models on any devices, others with ZeRO on several."""
        stage = run.layout is not None and run.layout.stage > 0
        return run.arch in LANGUAGE or (stage and run.devices > 1)

    def part_of(run: Run) -> str:
        """Name of the line of the results table that a run belongs to."""
        return APART if is_excluded_from_fit(run) or run.layout is None else KINDS[run.layout.kind]

    rows = compare_runs(runs, skipped, takes_run, part_of)
    by_id = {run.id: run for run in runs}
    return build_evidence("sharded", rows, skipped, relative_errors([by_id[row.id] for row in rows], rows))


# all-reduce


def _measured_ddp() -> list[Compared]:
    """Compared steps of DDP and FSDP over bandwidth-limited links, predicted from a trace of one rank."""
    results = ddp.compare_points()
    alone = {result.config.name: result.point.step_s for result in results if result.point.workers == 1}
    return [
        Compared(
            id=f"{result.config.name}-w{result.point.workers}",
            source=result.config.name,
            part=SHAPED,
            what=f"{result.config.name}, {result.point.workers} ranks",
            unit="s",
            measured=result.point.step_s,
            predicted=result.predicted_s,
            rule=alone.get(result.config.name),
        )
        for result in results
    ]


def _allreduce_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of comparing each series' larger runs with predictions from its smallest run. Settings that no
    row states are chosen on all sources, and with the run's own left out."""
    stored = load_figures("scaling")
    everything = scaling.Settings(**stored["all"])
    rows = []
    for pair in scaling.pair_runs(runs, skipped):
        run, base = pair.run, pair.base
        without = stored["without"].get(run.source)
        assert run.precision is not None
        rows.append(
            Compared(
                id=run.id,
                source=run.source,
                part=_scaling_part(run),
                what=f"{run.network} {run.precision.name}, {base.devices} to {run.devices} devices, "
                f"{scaling.link_label(run)}",
                unit="s",
                measured=pair.run_s,
                predicted=scaling.predict_pair_s(pair, everything),
                left_out=scaling.predict_pair_s(pair, scaling.Settings(**without)) if without else None,
                rule=pair.linear_s,
            )
        )
    return build_evidence("allreduce", add_ranges(rows), skipped)


def _scaling_part(run: Run) -> str:
    """Name of the table line that counts a run on scaling."""
    if run.recalled:
        return "tables without samples/s or parameter count"
    if run.machines == 1:
        return "one machine"
    known = ", gradients' width known" if run.software.gradient_bytes else ""
    return f"several machines{known}"


# memory


def _memory_part(run: Run) -> str:
    """Name of the table line that counts a run on peak memory."""
    assert run.model is not None
    if is_excluded_from_fit(run):
        return APART
    return {"cnn": "convolutional", "transformer": "transformers", "other": "other networks"}[
        network_class(run.model)
    ]


def _memory_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of the suite on peak memory."""
    compared = []
    for run in runs:
        gib = memory.peak_gib(run)
        if isinstance(gib, str):
            skipped[run.id] = gib
        else:
            compared.append((run, gib))
    left_out = memory.left_out_peaks_gib([run for run, _ in compared])
    rows = [
        Compared(
            id=run.id,
            source=run.source,
            part=_memory_part(run),
            what=memory.group_label(run),
            unit="GiB",
            measured=run.memory_gib or 0.0,
            predicted=gib,
            left_out=without,
        )
        for (run, gib), without in zip(compared, left_out, strict=True)
    ]
    ranged = zip(add_ranges(rows), compared, strict=True)
    rows = [memory.widen_range(row, run) for row, (run, _) in ranged]
    verdicts = [memory.is_predicted_out_of_memory(run) for run in runs]
    refused = [verdict for verdict in verdicts if verdict is not None]
    statements = []
    if rows:
        low, name = [row.error < LOW for row in rows], "runs under-predicted by more than 15%"
        statements.append(Statement(name=name, value=sum(low) / len(low), target=MOST_LOW))
    if refused:
        name = f"runs that fitted and are refused, of {len(refused):,}"
        statements.append(Statement(name=name, value=sum(refused) / len(refused), target=MOST_REFUSED))
    return build_evidence("memory", rows, skipped, statements)
