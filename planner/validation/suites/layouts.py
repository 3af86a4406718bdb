"""`layouts`: of all ways to cut a model over a machine, how good is the one that we would choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from planner.validation.evidence import Compared, Evidence, Statement
from planner.validation.figures import packed_table
from planner.validation.large_compared import compared
from planner.validation.large_runs import LargeRun
from planner.validation.layout_runs import LayoutChoice, choices, left_out_id, read_layouts

MEAN, WORST = 0.04, 0.25
PEERS = "regret: Calculon 9.7% mean, 53% worst; llm-analysis 33%, 136%; a rule of thumb cannot rank"


def found() -> Evidence:
    return evidence_of(packed_table("layouts.csv.gz"))


def evidence_of(table: Iterable[Mapping[str, str]]) -> Evidence:
    """Errors of the steps, and the regret of choosing by them."""
    refused: Counter[str] = Counter()
    layouts = read_layouts(table, refused)
    rows = [one for layout in layouts if (one := _compared(layout.run, refused)) is not None]
    groups = {layout.run.id: layout.group for layout in layouts}
    made = choices(rows, groups)
    apart = choices([replace(row, predicted=row.left_out or row.predicted) for row in rows], groups)
    return Evidence(
        suite="layouts",
        title="Layouts: one model cut in every way on one machine",
        quantity="step time",
        fitted="kernel rates, on these runs with all others; left out: on all others alone",
        rule="",
        peers=PEERS,
        rows=rows,
        statements=[*statements(made), *statements(apart, "left out: ")],
        refused=refused,
        notes=[f"{len(made)} choices between layouts of the same model, GPUs and batch."],
    )


def statements(made: list[LayoutChoice], prefix: str = "") -> list[Statement]:
    regrets = [one.regret for one in made]
    ranked = [one.correlation for one in made if one.correlation is not None]
    found = []
    if regrets:
        found.append(
            Statement(
                name=f"{prefix}mean regret", value=float(np.mean(regrets)), target=MEAN, peer="Calculon 9.7%"
            )
        )
        found.append(
            Statement(name=f"{prefix}worst regret", value=max(regrets), target=WORST, peer="Calculon 53%")
        )
        best = float(np.mean([regret < 1e-9 for regret in regrets]))
        found.append(Statement(name=f"{prefix}choices that are the best measured one", value=best))
    if ranked:
        found.append(
            Statement(
                name=f"{prefix}rank correlation, mean of groups", value=float(np.mean(ranked)), percent=False
            )
        )
    return found


def _compared(run: LargeRun, refused: Counter[str]) -> Compared | None:
    degrees = f"tensor {run.tensor}, data {run.replicas}, pipeline {run.pipeline}"
    return compared(
        run,
        refused,
        part=f"{run.devices} GPUs",
        what=f"{run.model.name}, batch {run.micro_batch} x {run.accumulate}, {degrees}",
        left_out_id=left_out_id(run),
    )
