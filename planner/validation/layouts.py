"""One model in many parallel layouts on one machine: how good is the layout we would choose?

A table has measured iteration times by tensor, data and pipeline degree. The suite states the errors of the
predicted step times, and the regret of choosing the layout predicted fastest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.device.activations import find_recompute_mode
from planner.device.precision import find_precision
from planner.errors import BadInput
from planner.hardware.catalog import catalog_device_name
from planner.validation.evidence import Compared, Evidence, Statement
from planner.validation.networks import Dimensions, build_transformer, find_published_device
from planner.validation.reader import WHOLE_POSITIONS, UnreadableRow
from planner.validation.row import MOST_WHOLE, NUMBERS, TEXTS, WHOLE, read_packed_table
from planner.validation.run import Layout, Row, Run, software_of
from planner.validation.suites import build_evidence, compare_runs

MEAN_REGRET, WORST_REGRET = 0.04, 0.25
# vTrain's layouts: VIA-Research/vTrain data/ground_truth_single.csv @f8dda847 (MIT), GPT models with
# Megatron-DeepSpeed on up to 8 A100 with NVLink, fp16, full recomputation, attention that writes its scores.
LAYOUT_SOURCE = "VIA-Research/vTrain"
LAYOUT_DEFAULTS = {"device": "A100-SXM4-40GB", "precision": "fp16", "recompute": "full"}
LAYOUT_FRAMEWORK = "Megatron-DeepSpeed"
LAYOUT_VOCABULARY = 51200
LAYOUT_COUNTS = (
    *("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq_length"),
    *("tensor", "data", "pipeline"),
)


def read_layouts(rows: Iterable[Row], source: str) -> tuple[list[Run], list[UnreadableRow]]:
    """Reads a table of parallel layouts into runs, and the rows that cannot be read. Layouts of the same
    model, devices and batch share a `group`. A user's table may give `device`, `precision`, `recompute` and
    `framework` per row."""
    runs: list[Run] = []
    refused: list[UnreadableRow] = []
    for line, row in enumerate(rows, 2):
        layout_run = _layout_run(row, f"line {line}", source)
        if isinstance(layout_run, Run):
            runs.append(layout_run)
        else:
            refused.append(UnreadableRow(f"line {line}", source, layout_run))
    return runs, refused


def _layout_run(row: Row, id: str, source: str) -> Run | str:
    """Run that a row of layouts describes, or the reason why it cannot be read."""
    for key in (*LAYOUT_COUNTS, "iteration_ms"):
        if not row.get(key, "").strip():
            return f"no {key} is given"
    given = {key: row.get(key) or usual for key, usual in LAYOUT_DEFAULTS.items()}
    given["recompute"] = row.get("recompute") or row.get("checkpointing") or LAYOUT_DEFAULTS["recompute"]
    try:
        of = {key: int(float(row[key])) for key in LAYOUT_COUNTS}
        step_s = float(row["iteration_ms"]) / 1e3
    except (ValueError, OverflowError):
        return "a figure is no number"
    try:
        precision = find_precision(given["precision"])
    except BadInput:
        return f"the precision {given['precision']} is not modelled"
    if not (min(*of.values(), step_s) > 0 and max(*of.values(), step_s) <= MOST_WHOLE):
        return f"a figure is not above 0, or beyond {MOST_WHOLE:,}"
    if of["tensor"] * of["data"] * of["pipeline"] != of["gpus"]:
        return "tensor x data x pipeline are not its GPUs"
    if of["global_batch"] % (of["micro_batch"] * of["data"]):
        return "micro-batch x data does not divide the global batch"
    try:
        recompute = find_recompute_mode(given["recompute"], "megatron-deepspeed")
    except BadInput:
        return f"recompute {given['recompute']!r} is not known"
    text = row.get("framework") or LAYOUT_FRAMEWORK
    size = f"{of['hidden']}x{of['layers']}"
    flash = text != LAYOUT_FRAMEWORK
    dimensions = Dimensions("gpt", of["hidden"], of["layers"], of["heads"], LAYOUT_VOCABULARY, flash=flash)
    device_name = catalog_device_name(given["device"])
    words = {"framework": text, "source_id": source, "arch": "llm", "device": device_name}
    row = dict.fromkeys((*TEXTS, *WHOLE, *NUMBERS), "") | words | {"precision_norm": given["precision"]}
    model = build_transformer(dimensions, of["seq_length"], f"GPT {size}")
    device = find_published_device(device_name)
    return Run(
        id=id,
        fit_id=f"layouts {id}" if source == LAYOUT_SOURCE else None,
        source=source,
        series=size,
        arch="llm",
        network=model.name,
        model=model,
        parameters=model.parameters,
        device_name=device_name,
        device=device,
        devices=of["gpus"],
        layout=Layout(
            replicas=of["data"],
            tensor=of["tensor"],
            pipeline=of["pipeline"],
            whole_positions=bool(WHOLE_POSITIONS.search(text)),
        ),
        batch=of["micro_batch"],
        accumulate=of["global_batch"] // (of["micro_batch"] * of["data"]),
        precision=precision,
        recompute=recompute,
        software=software_of(row, model),
        step_s=step_s,
        group=f"GPT {size}, {of['seq_length']} tokens, {of['gpus']} GPUs, "
        f"batch {of['global_batch']}, {device_name}",
        unknown=() if device is not None else (f"the device {device_name} is not in the catalog",),
    )


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """Regret of choosing the layout with the least predicted time in one group. With the rank correlation
    (None below three layouts)."""

    group: str
    layouts: int
    regret: float
    correlation: float | None


def shipped_evidence() -> Evidence:
    """Result of the layouts suite on the shipped table."""
    runs, refused = read_layouts(read_packed_table("layouts.csv.gz"), LAYOUT_SOURCE)
    return layouts_evidence(runs, {entry.id: entry.reason for entry in refused})


def layouts_evidence(runs: Sequence[Run], skipped: dict[str, str]) -> Evidence:
    """Result of the layouts suite: errors of step times, and regret of choosing layouts by prediction."""
    rows = compare_runs(runs, skipped, lambda run: True, lambda run: f"{run.devices} GPUs")
    rows = [replace(row, rule=None) for row in rows]
    groups = {run.id: run.group for run in runs}
    made = layout_choices(rows, groups)
    apart = layout_choices([replace(row, predicted=row.left_out or row.predicted) for row in rows], groups)
    known = any(row.left_out is not None for row in rows)
    statements = [*regret_statements(made), *(regret_statements(apart, "left out: ") if known else [])]
    evidence = build_evidence("layouts", rows, skipped, statements)
    return replace(
        evidence, notes=[f"{len(made)} choices between layouts of the same model, GPUs and batch."]
    )


def layout_choices(rows: Sequence[Compared], groups: Mapping[str, str]) -> list[LayoutChoice]:
    """Choice by predicted time in each group of two or more layouts; `groups` maps row ids to groups."""
    members: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        members[groups[row.id]].append(row)
    parts = []
    for name, mine in members.items():
        if len(mine) < 2:
            continue
        chosen = min(mine, key=lambda row: row.predicted)
        best = min(row.measured for row in mine)
        ranked = _rank_correlation(mine) if len(mine) > 2 else None
        parts.append(LayoutChoice(name, len(mine), chosen.measured / best - 1, ranked))
    return parts


def _rank_correlation(rows: Sequence[Compared]) -> float:
    """Spearman rank correlation of predicted and measured times."""
    columns = [row.predicted for row in rows], [row.measured for row in rows]
    ranks = [np.argsort(np.argsort(values)) for values in columns]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def regret_statements(choices: Sequence[LayoutChoice], prefix: str = "") -> list[Statement]:
    """Mean and worst regret, the share of best choices, and the mean rank correlation."""
    regrets = [entry.regret for entry in choices]
    ranked = [entry.correlation for entry in choices if entry.correlation is not None]
    parts = []
    if regrets:
        mean, worst = float(np.mean(regrets)), max(regrets)
        best = float(np.mean([regret < 1e-9 for regret in regrets]))
        parts += [
            Statement(name=f"{prefix}mean regret", value=mean, target=MEAN_REGRET, peer="Calculon 9.7%"),
            Statement(name=f"{prefix}worst regret", value=worst, target=WORST_REGRET, peer="Calculon 53%"),
            Statement(name=f"{prefix}choices that are the best measured one", value=best),
        ]
    if ranked:
        name = f"{prefix}rank correlation, mean of groups"
        parts.append(Statement(name=name, value=float(np.mean(ranked)), percent=False))
    return parts
