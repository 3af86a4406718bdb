"""The page of `simulate`: one plan's prediction, where the time goes and what a device holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.answers.anatomy import Anatomy
from planner.note import Note, Topic
from planner.report import charts
from planner.report.assumed import notes_of
from planner.report.charts_curves import step_picture
from planner.report.format import percent, rate, span
from planner.report.page import Column, Page, Picture, Remark, Table
from planner.report.phrases import (
    alone_words,
    bottleneck_words,
    energy_words,
    fact_lines,
    figures,
    headline,
    resource_words,
)
from planner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.answers.questions import Simulation


BAR = 24  # characters
PARTS = {
    "compute_s": "compute",
    "communication_s": "communication, exposed",
    "bubble_s": "pipeline bubble",
    "input_s": "waiting for input",
    "optimizer_s": "optimizer",
}


def anatomy_tables(anatomy: Anatomy | None) -> list[Table]:
    """Where a step goes and what a device holds, as far as they are known."""
    if anatomy is None:
        return []
    parts, whole = anatomy.parts, max(anatomy.parts.step_s, 1e-12)
    rows = []
    for name, words in PARTS.items():
        seconds = getattr(parts, name)
        if name == "compute_s" and parts.recompute_s:
            words = f"compute ({parts.recompute_s / max(seconds, 1e-12):.0%} of it recompute)"
        if seconds:
            rows.append(_row(words, seconds, seconds / whole))
    rows.append(_row("the step", whole, None))
    tables = [
        Table(
            rows,
            [
                Column("part", ""),
                Column("seconds", "seconds", show=format_seconds, align="right"),
                Column("share", "share", show=lambda v: "" if v is None else f"{v:.1%}", align="right"),
                Column("bar", ""),
            ],
            title="The step of a device",
        )
    ]
    if anatomy.memory is not None:
        tables.append(_memory_table(anatomy))
    return tables


def _memory_table(anatomy: Anatomy) -> Table:
    memory = anatomy.memory
    assert memory is not None
    total = memory.total_bytes
    rows = [
        {"part": kind, "bytes": size, "bar": "█" * round(BAR * size / total)}
        for kind, size in memory.bytes_by_kind.items()
    ]
    share = total / memory.usable_bytes
    rows.append(
        {"part": "in all", "bytes": total, "bar": f"{share:.0%} of {format_bytes(memory.usable_bytes)}"}
    )
    return Table(
        rows,
        [Column("part", ""), Column("bytes", "held", show=format_bytes, align="right"), Column("bar", "")],
        title="What a device holds",
    )


def _row(part: str, seconds: float, share: float | None) -> dict[str, object]:
    bar = "" if share is None else "█" * round(BAR * share)
    return {"part": part, "seconds": seconds, "share": share, "bar": bar}


def simulation_page(result: Simulation, *, energy: bool = False) -> Page:
    """The page of one simulated plan."""
    from planner.answers.jobs import training_of

    scored, prediction, request = result.scored, result.scored.prediction, result.request
    training = training_of(request)
    used = [
        {"resource": str(resource), "used": share, "what": resource_words(resource, scored.plan)}
        for resource, share in prediction.utilisation.items()
    ]
    rows = [{"figure": name, "value": value} for name, value in _figure_rows(result)]
    tables = [
        Table(rows, [Column("figure", ""), Column("value", "")], records=[_record(result)]),
        Table(
            used,
            [
                Column("what", "resource"),
                Column("used", "busy", show=percent),
                Column("resource", "key", spare=1),
            ],
            title="Utilization",
        ),
        *anatomy_tables(result.anatomy),
    ]
    alone = alone_words(scored, result.baseline, training)
    words = energy_words(scored)
    return Page(
        f"planner simulate: {scored.plan.model}",
        "Predicted",
        headline(scored.plan, request),
        fact_lines(scored, request, training),
        [Remark("Bottleneck", [bottleneck_words(scored)]), Remark("Scaling", [alone])],
        tables,
        (),
        [
            Note(Topic.PLAN, f"{scored.plan.exchange.labels().plan}."),
            *(Note(None, text) for text in prediction.notes),
            *([Note(Topic.ENERGY, words)] if words else []),
            *notes_of(result.assumptions),
        ],
        energy,
        figures(scored, request),
        None,
        [
            *(
                [Picture(lambda: charts.cost_split([scored], [scored.plan.cluster_text]), still=False)]
                if scored.priced
                else []
            ),
            Picture(lambda: charts.utilisation(scored)),
            step_picture(request, scored),
        ],
        data=result.as_dict,
    )


def _figure_rows(result: Simulation) -> list[tuple[str, str]]:
    """The figures of a prediction by name."""
    scored, prediction = result.scored, result.scored.prediction
    quantiles = ", ".join(
        f"{name} {format_seconds(value)}" for name, value in prediction.step_s_quantiles.items()
    )
    half = (prediction.samples_per_s_high - prediction.samples_per_s_low) / 2 / prediction.samples_per_s
    rows = []
    if scored.range is not None and scored.error is not None:
        rows.append(("90% range", f"{span(*scored.range)} samples/s ({scored.error.basis})"))
    if scored.tokens_per_s is not None:
        rows.append(("throughput", f"{rate(scored.samples_per_s)} samples/s"))
    rows += _mfu_row(result)
    rows += [
        (
            "upper bound",
            f"{rate(scored.bound_samples_per_s)} samples/s, {percent(scored.bound_share)} reached",
        ),
        ("step", f"{format_seconds(prediction.step_s)} mean; {quantiles}"),
    ]
    if prediction.staleness_max:
        rows.append(
            (
                "staleness",
                f"{prediction.staleness_mean:.1f} updates on average, {prediction.staleness_max} at most",
            )
        )
    rows.append(
        (
            "simulated",
            f"{prediction.runs} runs, {prediction.steps:,} steps, {prediction.events:,} events "
            f"({prediction.engine}); sampling error ±{half:.1%} ({percent(prediction.confidence)} interval)",
        )
    )
    return rows


def _mfu_row(result: Simulation) -> list[tuple[str, str]]:
    """MFU, and HFU where activations are recomputed."""
    anatomy, plan = result.anatomy, result.scored.plan
    if anatomy is None or anatomy.mfu is None:
        return []
    hfu = "" if anatomy.hfu is None else f"; HFU {percent(anatomy.hfu)} with recomputation"
    return [("MFU", f"{percent(anatomy.mfu)} of the {plan.precision.compute} peak{hfu}")]


def _record(result: Simulation) -> dict[str, Any]:
    """The row of CSV."""
    from planner.answers.jobs import training_of

    scored, prediction = result.scored, result.scored.prediction
    record = scored.as_dict() | {
        "precision": prediction.precision,
        **{f"step_s_{name}": value for name, value in prediction.step_s_quantiles.items()},
        "staleness_max": prediction.staleness_max,
        "runs": prediction.runs,
        "steps": prediction.steps,
        "events": prediction.events,
    }
    del record["marks"]  # of a plan among others
    if result.samples_per_epoch:
        epoch_s = result.samples_per_epoch / scored.samples_per_s * scored.time_factor
        spent = scored.usd_per_million_samples * result.samples_per_epoch / 1e6
        record |= {"epoch_s": epoch_s, "epoch_usd": spent if scored.priced else None}
    training = training_of(result.request)
    return record if training is None else record | training.figures(scored)
