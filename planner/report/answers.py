"""The four answers as people read them: a sentence, a table, what to change next, what was assumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.report.anatomy import anatomy_tables
from planner.report.answer_words import (
    bottleneck_words,
    interval,
    limit_words,
    plan_row,
    plan_words,
    rate,
    resource_words,
    saturation_words,
    several,
    so_far,
    usd,
    usd_or_never,
)
from planner.report.decision import (
    beside_words,
    busy_words,
    decision_lines,
    decision_row,
    job_columns,
    why_style,
)
from planner.report.output import Column, Section, Table
from planner.report.phases import falling
from planner.report.recommendation import (
    ENERGY,
    NARROW,
    comparison_tables,
    energy_words,
    recommendation_tables,
)
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.answers.questions import Simulation
    from planner.answers.results import Saturation, SaturationPoint
    from planner.search.scored import ScoredPlan

RATE = Column("samples_per_s", "samples/s", show=rate)
USD_PER_HOUR = Column("usd_per_hour", "USD/h", show=usd)
USD_PER_MILLION = Column("usd_per_million_samples", "USD/M", show=usd)


def saturation_tables(result: Saturation, *, energy: bool = False) -> list[Table]:
    from planner.answers.jobs import training_of

    request, chosen = result.request, result.chosen.scored
    training = training_of(request)
    rows = []
    for point in result.points:
        row = {**decision_row(point.scored, chosen, request, training), **point.as_dict(request)}
        row["_marks"] = "; ".join(_marks(point, result))
        rows.append(row)
    columns = [
        Column("_choice", "", style="bold green"),
        Column("workers", "workers"),
        RATE,
        *([Column("_range", "range", align="right", spare=True)] if rows[0]["_range"] else []),
        Column("efficiency", "efficiency", show=lambda v: f"{v:.0%}"),
        Column("marginal_samples_per_s", "last adds", show=_more),
        *(job_columns(chosen.priced) if training is not None else []),
        *_prices(
            result.points[0].scored,
            Column("marginal_usd_per_million_samples", "last USD/M", show=usd_or_never, spare=True),
            spare=training is not None,
        ),
        *(ENERGY if energy else []),
        Column("_limit", "busiest", spare=True),
        Column("_marks", "", style=why_style, enough=NARROW),
    ]
    lines = [
        *decision_lines(chosen, request, training, why=_why(result), baseline=result.baseline),
        *_cheaper(result, training),
        f"{saturation_words(result, chosen.plan.machine)} {limit_words(result)}",
    ]
    points = [(point.workers, point.scored.prediction) for point in result.points]
    turns = any(point.scored.plan.exchange.takes_turns for point in result.points)
    fall = falling(points, takes_turns=turns)
    title = so_far(result) + "\n".join(lines)
    tables = [Table(rows, columns, title=title, notes=[fall] if fall else [])]
    if result.sizes:
        tables.append(_sizes_table(result))
    notes = [*plan_words(chosen), *energy_words(chosen), *result.assumptions]
    tables.append(Table.of_notes(Section.ASSUMED, notes))
    return tables


def _why(result: Saturation) -> str:
    """Why so many workers."""
    if result.request.deadline_s is not None:
        return "the cheapest number of workers in time"
    if result.chosen.workers == result.saturation_workers:
        return "more workers hardly pay"
    return (
        "the most workers that were tried" if result.chosen is result.points[-1] else "the most within limits"
    )


def _cheaper(result: Saturation, training: Training | None) -> list[str]:
    """The number of workers with the lowest cost a sample, where it is another."""
    if not result.points[0].scored.priced:
        return []
    best = min(result.points, key=lambda point: point.scored.usd_per_million_samples)
    return [] if best is result.chosen else [beside_words("The cheapest", training, best.scored)]


def _marks(point: SaturationPoint, result: Saturation) -> list[str]:
    from planner.answers.jobs import missed, training_of

    training = training_of(result.request)
    limit = missed(point.scored, result.request, training)
    said = [] if limit is None else [limit.value]
    if point.workers == result.saturation_workers:
        said.append("saturation")
    if point is result.chosen:
        said.append("choice")
    return said


def _prices(scored: ScoredPlan, *more: Column, spare: bool = False) -> list[Column]:
    """The columns of prices, where there are any; `spare`: that of an hour goes where a screen is narrow."""
    return [replace(USD_PER_HOUR, spare=spare), USD_PER_MILLION, *more] if scored.priced else []


def _more(samples_per_s: float) -> str:
    return f"{samples_per_s:+,.0f}" if abs(samples_per_s) >= 1000 else f"{samples_per_s:+,.1f}"


def _sizes_table(result: Saturation) -> Table:
    """How many are enough of what the exchange can have more of, as servers."""
    words = result.sizes[0][1].plan.exchange.words()
    rows = [
        {
            **plan_row(one),
            "_count": count,
            "_limit": busy_words(one),
            "_choice": one.plan.exchange.record().get(words.size_choice),
        }
        for count, one in result.sizes
    ]
    some = several(result.sizes[0][1].plan.workers, "worker")
    need = result.size_advised
    if need is None:
        title = _close_call(result, some)
    else:
        adds = f"one more adds less than {result.threshold:.0%}"
        enough = several(need, words.size_noun)
        title = f"{enough} {'are' if need != 1 else 'is'} enough for {some}: {adds}."
    return Table(
        rows,
        [
            Column("_count", f"{words.size_noun}s"),
            *([Column("_choice", f"best {words.size_choice}")] if words.size_choice else []),
            RATE,
            *_prices(result.sizes[0][1]),
            Column("_limit", "busiest", spare=True),
        ],
        title=title,
    )


def _close_call(result: Saturation, some: str) -> str:
    from planner.search.rungs import gain

    (fewer, now), (count, more) = result.sizes[-2:]
    noun = now.plan.exchange.words().size_noun
    added, error = gain(now.prediction, more.prediction)
    return (
        f"Whether {several(fewer, noun)} {'are' if fewer != 1 else 'is'} enough for {some} is a close call: "
        f"{several(count, noun)} give {100 * added:+.1f} ± {100 * error:.1f}%, and what counts is "
        f"{result.threshold:.0%}."
    )


def _use(result: Simulation) -> list[tuple[str, str]]:
    """Range, tokens and share of the devices' arithmetic, where they are known."""
    from planner.device.mfu import model_flops_utilization
    from planner.search.request import model_of

    scored, plan = result.scored, result.scored.plan
    out = []
    if scored.range is not None and scored.error is not None:
        low, high = scored.range
        out.append(
            ("range", f"{rate(low)} to {rate(high)} samples/s in nine of ten runs ({scored.error.basis})")
        )
    if result.request.profile is not None:
        return out
    model = model_of(result.request)
    device = result.request.market.machine(plan.machine).device
    use = model_flops_utilization(model, scored.samples_per_s, plan.workers, device, plan.precision)
    if use is not None and device.kind == "gpu":
        again = result.anatomy.hfu if result.anatomy is not None else None
        twice = "" if again is None else f" (MFU); {again:.0%} with what is computed again (HFU)"
        out.append(("model FLOP use", f"{use:.0%} of the devices' {plan.precision.compute} peak{twice}"))
    return out


def simulation_tables(result: Simulation, *, energy: bool = False) -> list[Table]:
    from planner.answers.jobs import training_of

    scored, prediction = result.scored, result.scored.prediction
    plan = scored.plan
    spread = prediction.step_s_quantiles
    quantiles = ", ".join(f"{name} {format_seconds(value)}" for name, value in spread.items())
    million, priced = usd(scored.usd_per_million_samples), scored.priced
    stale = f"{prediction.staleness_mean:.1f} updates by others in a step, {prediction.staleness_max} at most"
    figures: list[tuple[str, str]] = [
        ("upper bound", f"{rate(scored.bound_samples_per_s)} samples/s, {scored.bound_share:.0%} reached"),
        ("step", f"{format_seconds(prediction.step_s)} mean; {quantiles}"),
        ("price", f"${scored.usd_per_hour:.2f} an hour, ${million} a million samples" if priced else "-"),
        ("bottleneck", bottleneck_words(scored)),
        *([("staleness", stale)] if prediction.staleness_max else []),
        (
            "simulated",
            f"{prediction.runs} runs, {prediction.steps:,} steps, {prediction.events:,} events "
            f"({prediction.engine}); their mean is {interval(plan_row(scored))} "
            f"({prediction.confidence:.0%} interval of the simulation alone)",
        ),
    ]
    figures[0:0] = _use(result)
    record: dict[str, Any] = scored.as_dict() | {
        "precision": prediction.precision,
        **{f"step_s_{name}": value for name, value in spread.items()},
        "staleness_max": prediction.staleness_max,
        "runs": prediction.runs,
        "steps": prediction.steps,
        "events": prediction.events,
    }
    del record["marks"]  # of a plan among others
    if result.samples_per_epoch:
        epoch = result.samples_per_epoch / scored.samples_per_s * scored.time_factor
        spent = scored.usd_per_million_samples * result.samples_per_epoch / 1e6
        record |= {"epoch_s": epoch, "epoch_usd": spent if priced else None}
    rows = [{"figure": name, "value": value} for name, value in figures]
    used = [
        {"resource": str(resource), "used": share, "what": resource_words(resource, plan)}
        for resource, share in prediction.utilisation.items()
    ]
    training = training_of(result.request)
    title = "\n".join(decision_lines(scored, result.request, training, baseline=result.baseline))
    if training is not None:
        record |= training.figures(scored)
    return [
        Table(rows, [Column("figure", ""), Column("value", "")], title=title, records=[record]),
        Table(
            used,
            [Column("resource"), Column("used", show=lambda v: f"{v:.0%}"), Column("what", "")],
            title="Where the time goes",
        ),
        *anatomy_tables(result.anatomy),
        Table.of_notes(
            Section.ASSUMED,
            [*plan_words(scored), *prediction.notes, *energy_words(scored), *result.assumptions],
        ),
    ]


def tables_of(result: Any) -> list[Table]:
    """The tables of any result."""
    from planner.answers.questions import Simulation
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.answers.sweep import SweepResult
    from planner.report.sweep import sweep_tables
    from planner.servers.order_request import OrderAnswer
    from planner.servers.report.orders import answer_tables

    kinds: dict[type, Callable[[Any], list[Table]]] = {
        OrderAnswer: answer_tables,
        Recommendation: recommendation_tables,
        Comparison: comparison_tables,
        Saturation: saturation_tables,
        Simulation: simulation_tables,
        SweepResult: sweep_tables,
    }
    return kinds[type(result)](result)
