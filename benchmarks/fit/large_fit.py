"""Published runs of large models as the fit of kernel rates reads them: one stage of one device.

    step = (computation x repeated + exposed) x slower

Computation is that of a micro-batch on the slowest stage, by the formula that is fitted; repeated are the
micro-batches and those that the stage waits for; exposed is all the rest that the package predicts (sums,
sends, collectives that nothing hides) by the constants that are shipped, so that a fit after a fit settles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from planner.device.computation import WAIT
from planner.errors import BadInput
from planner.model.units import chain_of
from planner.parallel.data.fsdp import Sharded
from planner.parallel.mesh import data_parallel_group
from planner.parallel.replica import OPTIMIZER, stage_of
from planner.validation.figures import packed_table
from planner.validation.large_runs import LargeRun, read_runs, untuned
from planner.validation.large_steps import exchange_of, framework, predicted, site_of
from planner.validation.layout_runs import left_out_id, read_layouts
from planner.validation.rates import predicted_step_s
from planner.validation.training import Run, training_rows


def large_fit_runs() -> Iterator[Run]:
    """All that the package can predict."""
    runs, _ = read_runs(row for row in training_rows() if not untuned(row))
    for run in runs:
        try:
            if (found := fit_run(run)) is not None:
                yield found
        except BadInput:  # counted by `planner validate`
            continue


def layout_fit_runs() -> Iterator[Run]:
    """One model sharded in every way on one machine; small models, which launches and sums take long for."""
    for layout in read_layouts(packed_table("layouts.csv.gz"), Counter()):
        if (found := fit_run(layout.run)) is not None:
            yield replace(found, id=left_out_id(layout.run))


def fit_run(run: LargeRun) -> Run | None:
    """A run as one that computes a micro-batch on the layers of its slowest stage; None: no such machine."""
    site, step = site_of(run), predicted(run)
    if site is None or step is None:
        return None
    work, _ = stage_of(
        run.model,
        run.micro_batch,
        site,
        run.precision,
        recompute=run.recompute,
        framework=framework(run),
        sequence=run.sequence,
    )
    part = run.mesh.shard(run.model).model
    first, last = work.stages[work.stage], work.stages[work.stage + 1]
    layers = [
        layer for layer, unit in zip(part.layers, chain_of(part).unit, strict=True) if first <= unit < last
    ]
    waits = work.layout.work == WAIT
    repeated = run.accumulate + float(work.seconds[waits].sum() / work.seconds[~waits].sum())
    replicas = data_parallel_group(site)
    exchange = exchange_of(run, replicas) if replicas.workers > 1 else None
    shards = exchange.shards(replicas) if isinstance(exchange, Sharded) else 1
    alone = Run(
        run.id,
        run.source,
        run.series,
        replace(part, layers=tuple(layers)),
        run.micro_batch,
        site.hardware.device,
        run.precision,
        framework(run),
        OPTIMIZER,
        "synthetic",
        None,
        run.step_s,
        "",
        update_share=1 / shards / repeated,
        recompute=run.recompute,
    )
    exposed_s = step.seconds / step.slower - predicted_step_s(alone) * repeated
    return replace(alone, repeated=repeated, exposed_s=exposed_s, slower=step.slower)
