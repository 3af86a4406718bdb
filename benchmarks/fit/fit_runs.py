"""Published runs as the fit of kernel rates reads them: what one device computes, and what is added to it.

    step = (max(computation, communication) + taken x min(both)) x repeated + exposed, x slower

Of runs of one device all but the computation is nothing; those that are sharded over one machine gather and
reduce parameters beside it. Runs of large models are one stage of one device: computation is that of a
micro-batch on the slowest stage, by the formula that is fitted; repeated are the
micro-batches and those that the stage waits for; exposed is all the rest that the package predicts (sums,
sends, collectives that nothing hides) by the constants that are shipped, so that a fit after a fit settles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from planner.device.activations import recompute_flags
from planner.device.computation import WAIT
from planner.device.rates import network_class
from planner.device.rates.times import computation_s, find_framework
from planner.errors import BadInput
from planner.model import group_into_units
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.joint import ACCESSES, MEMORY_SHARE, slowest_factor, usual_sigma
from planner.parallel.mesh import data_parallel_group
from planner.parallel.replica import OPTIMIZER, slowest_stage
from planner.validation.layouts import LAYOUT_SOURCE, read_layouts
from planner.validation.predict import RunStep, exchange_of, exclusion_reason, predict_step, site_of
from planner.validation.reader import published_runs
from planner.validation.row import read_packed_table
from planner.validation.run import LANGUAGE, Run
from planner.validation.suites import is_excluded_from_fit, is_without_network
from planner.validation.throughput import throughput_runs

if TYPE_CHECKING:
    from planner.device.activations import Recompute
    from planner.device.precision import Precision
    from planner.hardware import Device
    from planner.model import Model
    from planner.validation.run import Run


# Bytes per second that all-gather and reduce-scatter move between the devices of one machine (bus bandwidth).
FABRIC_GBYTE_PER_S = {
    **{"A100": 235, "H100": 367, "H200": 367, "B200": 682, "GB200": 682},
    **{"MI300X": 313, "MI325X": 313},
}


@dataclass(frozen=True)
class FitRun:
    """One published run of one device. `unexplained`: why no setting explains it, "" where one does."""

    id: str
    source: str
    series: str
    model: Model
    batch: int
    device: Device
    precision: Precision
    framework: str
    optimizer: str
    input: str
    channels_last: bool | None
    step_s: float
    note: str
    update_share: float = 1.0  # of an optimizer's pass that falls to one batch on one device
    communication_s: float = 0.0  # of one batch, between the devices of one machine, beside the computation
    taken: float = 0.0  # of the time of that communication, what computing loses to it
    recompute: Recompute = "none"
    flash: bool | None = None
    repeated: float = 1.0  # micro-batches of a step, and those that a pipeline's stage waits for
    exposed_s: float = 0.0  # of a step, that no computation hides
    slower: float = 1.0  # that the slowest of several devices is than their mean
    unexplained: str = ""
    fitted: bool = True  # False: predicted by every fit and seen by none

    @property
    def per_s(self) -> float:
        return self.batch / self.step_s


@cache
def alone() -> tuple[FitRun, ...]:
    runs = (*published_runs()[0], *throughput_runs())
    return tuple(made for run in runs if is_without_network(run) and (made := fit_run_of(run)) is not None)


def single_device_runs() -> tuple[FitRun, ...]:
    """Runs of one device that the catalog's networks and devices can express."""
    return tuple(run for run in alone() if not run.communication_s)


def one_machine_runs() -> tuple[FitRun, ...]:
    """Transformers that are sharded over the devices of one machine with a fast fabric."""
    return tuple(run for run in alone() if run.communication_s)


def fit_run_of(run: Run) -> FitRun | None:
    """A run of one device, or sharded over those of a machine; None where the package cannot express it."""
    if run.model is None or run.device is None or run.precision is None or run.layout is None:
        return None
    if run.batch is None or run.step_s is None or (not run.doubtful and exclusion_reason(run)):
        return None
    rate = FABRIC_GBYTE_PER_S.get(run.device_name.split("-")[0], 0) * 1e9
    if run.devices > 1 and not rate:
        return None
    communication_s = taken = 0.0
    if run.devices > 1:
        passes = 3.0 if run.layout.stage == 3 else 2.0 / run.accumulate
        sent = 2 * run.model.parameters * (run.devices - 1) / run.devices
        communication_s = passes * sent / rate
        taken = min(ACCESSES * rate / (MEMORY_SHARE * (run.device.memory_bytes_per_s or rate)), 1.0)
    several = run.devices > 1
    return FitRun(
        run.id,
        run.source,
        run.series,
        run.model,
        run.batch,
        run.device,
        run.precision,
        run.software.tier,
        run.software.optimizer,
        run.software.input,
        run.software.channels_last,
        run.step_s / run.accumulate,
        run.note,
        update_share=1 / run.accumulate / run.devices,
        communication_s=communication_s,
        taken=taken,
        recompute=run.recompute,
        flash=run.software.flash,
        slower=slowest_factor(usual_sigma(run.step_s, run.accumulate), run.devices) if several else 1.0,
        unexplained=run.doubtful,
        fitted=is_fitted(run),
    )


def is_fitted(run: Run) -> bool:
    """Whether the fit may see a run: not those of other networks, nor those that suites list apart."""
    assert run.model is not None
    return network_class(run.model) != "other" and not is_excluded_from_fit(run)


def predicted_step_s(run: FitRun) -> float:
    """Seconds of a step: computation, its part of the update, communication beside it, for each of its
    batches; and what nothing hides."""
    time = computation_s(
        run.model,
        run.batch,
        run.device,
        run.precision,
        run.framework,
        optimizer=run.optimizer,
        input="files" if run.input == "files" else "synthetic",
        channels_last=run.channels_last,
        flash=run.flash,
    )
    step_s = time.step_s - (1 - run.update_share) * time.optimizer_s
    again = recompute_flags(run.model, run.recompute, find_framework(run.framework).stops_early)
    step_s += float(time.forward_s[again].sum())
    beside_s = run.communication_s
    step_s = max(step_s, beside_s) + run.taken * min(step_s, beside_s)
    return (step_s * run.repeated + run.exposed_s) * run.slower


def log_error(run: FitRun) -> float:
    """log(predicted step / published step)."""
    return float(np.log(predicted_step_s(run) / run.step_s))


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
    shards = exchange.shard_count(replicas) if isinstance(exchange, Sharded) else 1
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
