"""One model cut in many ways on one machine: measured iterations by tensor, data and pipeline degree.

`data/layouts.csv.gz` is VIA-Research/vTrain data/ground_truth_single.csv @f8dda847 (MIT): GPT models with
Megatron-DeepSpeed on up to 8 A100 with NVLink, fp16, full recomputation, attention that writes its scores. A
user's table has the same columns; `device`, `precision` and `recompute` may be given a row, and are those
of the shipped table where they are not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.device.precision import precision_named
from planner.device.recompute import RECOMPUTE_MODES, Recompute
from planner.validation.evidence import Compared
from planner.validation.large_runs import LargeRun
from planner.validation.shapes import Dimensions, transformer

SOURCE = "VIA-Research/vTrain"
DEVICE, PRECISION, RECOMPUTED, FRAMEWORK = "A100-SXM4-40GB", "fp16", "full", "Megatron-DeepSpeed"
VOCABULARY = 51200
COUNTS = (
    "gpus",
    "global_batch",
    "micro_batch",
    "hidden",
    "heads",
    "layers",
    "seq_length",
    "tensor",
    "data",
    "pipeline",
)


MOST = 10**7  # of any count: beyond it is a slip of the pen


@dataclass(frozen=True, slots=True)
class RankedLayout:
    """A measured layout; `group` is what the layouts of one choice share: model, devices, batch."""

    run: LargeRun
    group: str


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A group: how much slower the layout that we would choose is than the best, and how well all of them are
    ranked (None for fewer than three)."""

    group: str
    layouts: int
    regret: float
    correlation: float | None


def read_layouts(rows: Iterable[Mapping[str, str]], refused: Counter[str]) -> list[RankedLayout]:
    """Layouts of a table; what cannot be read is counted by the reason."""
    found = []
    for at, row in enumerate(rows, 2):
        one = _layout(row, at)
        if isinstance(one, str):
            refused[one] += 1
        else:
            found.append(one)
    return found


def _layout(row: Mapping[str, str], line: int) -> RankedLayout | str:
    for key in (*COUNTS, "iteration_ms"):
        if not row.get(key, "").strip():
            return f"no {key} is given"
    try:
        of = {key: int(float(row[key])) for key in COUNTS}
        step_s = float(row["iteration_ms"]) / 1e3
        precision = precision_named(row.get("precision") or PRECISION)
    except (ValueError, OverflowError):
        return "a figure is no number"
    if not (min(*of.values(), step_s) > 0 and max(*of.values(), step_s) <= MOST):
        return f"a figure is not above 0, or beyond {MOST:,}"
    if of["tensor"] * of["data"] * of["pipeline"] != of["gpus"]:
        return "tensor x data x pipeline are not its GPUs"
    if of["global_batch"] % (of["micro_batch"] * of["data"]):
        return "micro-batch x data does not divide the global batch"
    said = row.get("recompute") or row.get("checkpointing") or RECOMPUTED
    if said not in RECOMPUTE_MODES:
        return f"recompute {said!r} is not known"
    recompute: Recompute = said
    dimensions = Dimensions("gpt", of["hidden"], of["layers"], of["heads"], VOCABULARY, flash=False)
    size = f"{of['hidden']}x{of['layers']}"
    run = LargeRun(
        f"line {line}",
        SOURCE,
        size,
        transformer(dimensions, of["seq_length"], f"GPT {size}"),
        row.get("device") or DEVICE,
        of["gpus"],
        8,
        None,
        of["data"],
        of["tensor"],
        of["pipeline"],
        1,
        0,
        of["micro_batch"],
        of["global_batch"] // (of["micro_batch"] * of["data"]),
        recompute,
        precision,
        FRAMEWORK,
        step_s,
        None,
        sequence=False,
    )
    group = f"GPT {size}, {of['seq_length']} tokens, {of['gpus']} GPUs, batch {of['global_batch']}"
    return RankedLayout(run, f"{group}, {run.device}")


def left_out_id(run: LargeRun) -> str:
    """What a layout of the shipped table is called among runs of the fit."""
    return f"layouts {run.id}"


def choices(rows: Sequence[Compared], groups: Mapping[str, str]) -> list[LayoutChoice]:
    """What we would choose in each group of at least two layouts; `groups` by the rows' ids."""
    members: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        members[groups[row.id]].append(row)
    found = []
    for name, mine in members.items():
        if len(mine) < 2:
            continue
        chosen = min(mine, key=lambda row: row.predicted)
        best = min(row.measured for row in mine)
        ranked = _correlation(mine) if len(mine) > 2 else None
        found.append(LayoutChoice(name, len(mine), chosen.measured / best - 1, ranked))
    return found


def _correlation(rows: Sequence[Compared]) -> float:
    """Spearman's, of predicted and measured times."""
    ranks = [np.argsort(np.argsort(values)) for values in _columns(rows)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _columns(rows: Sequence[Compared]) -> tuple[list[float], list[float]]:
    return [row.predicted for row in rows], [row.measured for row in rows]
