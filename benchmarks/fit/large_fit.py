"""Published runs of large models as the fit of kernel rates reads them: one stage of one device.

    step = (computation x repeated + exposed) x slower

Computation is that of a micro-batch on the slowest stage, by the formula that is fitted; repeated are the
micro-batches and those that the stage waits for; exposed is all the rest that the package predicts (sums,
sends, collectives that nothing hides) by the constants that are shipped, so that a fit after a fit settles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fit_runs import FitRun, fit_run_of, is_fitted, predicted_step_s

from planner.device.computation import WAIT
from planner.errors import BadInput
from planner.model import group_into_units
from planner.parallel.data.fsdp import Sharded
from planner.parallel.mesh import data_parallel_group
from planner.parallel.replica import OPTIMIZER, slowest_stage
from planner.validation.layouts import LAYOUT_SOURCE, read_layouts
from planner.validation.predict import RunStep, exchange_of, predict_step, site_of
from planner.validation.reader import published_runs
from planner.validation.row import read_packed_table
from planner.validation.run import LANGUAGE, Run

SEVERAL_ONLY = ("mlperf",)  # frameworks without runs of one device


def large_fit_runs() -> Iterator[FitRun]:
    """All that the package can predict."""
    for run in published_runs()[0]:
        if run.arch != "llm":
            continue
        try:
            if (result := fit_run(run)) is not None:
                yield result
        except BadInput:  # counted by `planner validate`
            continue


def data_parallel_runs() -> Iterator[FitRun]:
    """Plain replicas of other networks: computation, and the exchange that nothing hides. The fit sees those
    of one machine whose software nobody publishes on one device; the others are predicted only."""
    for run in published_runs()[0]:
        plain = run.layout is not None and run.layout.kind == "plain" and run.arch not in LANGUAGE
        step = predict_step(run) if plain and run.devices > 1 else ""
        if not isinstance(step, RunStep) or run.step_s is None:
            continue
        alone = fit_run_of(run.read_as(devices=1))
        if alone is not None:
            alone = replace(alone, id=run.id, step_s=run.step_s, repeated=run.accumulate)
            exposed_s = step.seconds / step.slower - predicted_step_s(alone)
            fitted = alone.fitted and run.software.tier in SEVERAL_ONLY and run.machines == 1
            yield replace(alone, exposed_s=exposed_s, slower=step.slower, fitted=fitted)


def layout_fit_runs() -> Iterator[FitRun]:
    """One model sharded in every way on one machine; small models, which launches and sums take long for."""
    for run in read_layouts(read_packed_table("layouts.csv.gz"), LAYOUT_SOURCE)[0]:
        if (result := fit_run(run)) is not None:
            assert run.fit_id is not None
            yield replace(result, id=run.fit_id)


def fit_run(run: Run) -> FitRun | None:
    """A run as one that computes a micro-batch on the layers of its slowest stage; None: not expressed."""
    step = predict_step(run)
    if not isinstance(step, RunStep) or run.model is None or run.layout is None or run.precision is None:
        return None
    assert run.batch is not None
    assert run.step_s is not None
    site, tier = site_of(run), run.software.tier
    work, _ = slowest_stage(
        run.model, run.batch, site, run.precision, recompute=run.recompute, framework=tier
    )
    part = run.layout.mesh.shard(run.model).model
    schedule = work.schedule
    first, last = schedule.ends[schedule.slowest : schedule.slowest + 2]
    layers = [
        layer
        for layer, unit in zip(part.layers, group_into_units(part).unit, strict=True)
        if first <= unit < last
    ]
    waits = work.layout.work == WAIT
    repeated = run.accumulate + float(work.seconds[waits].sum() / work.seconds[~waits].sum())
    replicas = data_parallel_group(site)
    exchange = exchange_of(run, replicas) if replicas.workers > 1 else None
    shards = exchange.workers_sharing(replicas) if isinstance(exchange, Sharded) else 1
    alone = FitRun(
        run.id,
        run.source,
        run.series,
        replace(part, layers=tuple(layers)),
        run.batch,
        site.hardware.device,
        run.precision,
        tier,
        OPTIMIZER,
        "synthetic",
        None,
        run.step_s,
        "",
        update_share=1 / shards / repeated,
        recompute=run.recompute,
        fitted=is_fitted(run),
    )
    exposed_s = step.seconds / step.slower - predicted_step_s(alone) * repeated
    return replace(alone, repeated=repeated, exposed_s=exposed_s, slower=step.slower)
