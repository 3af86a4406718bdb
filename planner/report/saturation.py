"""Page of `saturation`: throughput against workers, where it saturates, and how many servers pay off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from planner.answers.results import Saturation, SaturationPoint
from planner.answers.saturation import ENOUGH_SERVERS
from planner.report import charts
from planner.report.charts_curves import (
    memory_picture,
    servers_chart,
    step_picture,
    utilisation_by_workers_chart,
    workers_chart,
)
from planner.report.page import Column, Figure, Page, Picture, Remark, Table
from planner.report.phrases import (
    busiest_resource_words,
    comparison_words,
    other_plan_sentence,
    plan_figures,
    plan_page,
    single_device_sentence,
    speed_unit,
)
from planner.report.plan_rows import LABEL, MISSED, cost_columns, plan_columns, plan_row, what_if_spec
from planner.search.scored import Training, missed_limit, training_of
from planner.search.simulations import relative_gain
from planner.simulator.statistics import Prediction
from planner.units import count, format_count, percent, rate, signed_rate

FEW_POINTS = 14  # rows that a screen has room for


def saturation_page(result: Saturation, *, energy: bool = False) -> Page:
    """Page of a saturation curve."""
    request, chosen = result.request, result.chosen.scored
    training = training_of(request)
    rows = [
        {
            **plan_row(point.scored, chosen, request, training),
            **point.as_dict(request),
            "_label": _row_label(point, result),
            "_per_added_worker": _gain_per_added_worker(point, fewer),
        }
        for point, fewer in zip(result.points, (None, *result.points), strict=False)
    ]
    curve = [
        Column("efficiency", "efficiency", show=percent, spare=3),
        Column("exposed_communication", "exposed comm.", show=percent, spare=3),
        Column("_per_added_worker", "per added worker", show=signed_rate, spare=4),
    ]
    first = [LABEL, Column("workers")]
    turns = any(point.scored.plan.exchange.is_asynchronous for point in result.points)
    last_that_pays = result.saturation_workers or result.points[-1].workers  # the sentence above says it
    why = [
        "" if result.chosen.workers == last_that_pays else "The nearest worker count within the limits.",
        *_cheapest_sentences(result, training),
        _more_machines_sentence(result),
        single_device_sentence(chosen, result.baseline, training),
        slowdown_sentence([(p.workers, p.scored.prediction) for p in result.points], is_asynchronous=turns),
    ]
    columns = plan_columns(rows, request, energy=energy, first=first, between=curve)
    return plan_page(
        result,
        chosen,
        "So far" if result.partial else "Recommended",
        energy=energy,
        title=f"planner saturation: {chosen.plan.model}",
        why=[
            Remark("Saturation", [saturation_sentence(result, chosen.plan.machine)]),
            Remark("Limit", [_limiting_step_part_words(result)]),
            Remark("Why", why),
        ],
        tables=[
            Table(rows, columns, brief=_rows_for_screen(rows)),
            *([_server_counts_table(result)] if result.sizes else []),
        ],
        figures=[
            Figure("worth its cost up to", _worker_count_words(result.saturation_workers)),
            *plan_figures(chosen, request),
        ],
        what_if=lambda: what_if_spec(
            [*(p.scored for p in result.points), *(s for _, s in result.sizes)], chosen, request
        ),
        pictures=lambda: _pictures(result),
    )


def _gain_per_added_worker(point: SaturationPoint, fewer: SaturationPoint | None) -> float:
    """Samples/s, or tokens/s, that each worker adds since the point before."""
    added = point.workers - (0 if fewer is None else fewer.workers)
    return point.marginal_samples_per_s * (point.scored.sample_tokens or 1) / added


def _rows_for_screen(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Rows of a long curve for a terminal: both ends, labelled and evenly spread rows; None if all fit."""
    if len(rows) <= FEW_POINTS:
        return None
    kept = {0, len(rows) - 1, *(place for place, row in enumerate(rows) if row["_label"])}
    while len(kept) < FEW_POINTS:
        width, low = max((high - low, low) for low, high in pairwise(sorted(kept)))
        kept.add(low + width // 2)
    return [rows[place] for place in sorted(kept)]


def _more_machines_sentence(result: Saturation) -> str:
    """Sentence on the gain from twice the user's own machines; empty string if not computed."""
    if (more := result.beyond_owned) is None:
        return ""
    last = result.points[-1].scored
    there = f"You own {count(last.plan.machines, 'machine')}"
    return f"{there}; {more.plan.machines} would be {comparison_words(more, last)}."


def _cheapest_sentences(result: Saturation, training: Training | None) -> list[str]:
    """Sentence on the worker count with the lowest cost per sample; empty list if it is the choice."""
    if not result.points[0].scored.priced:
        return []
    best = min(result.points, key=lambda point: point.scored.usd_per_million_samples)
    name = f"Cheapest per {speed_unit(best.scored).singular}"
    return [] if best is result.chosen else [other_plan_sentence(name, training, best.scored)]


def _row_label(point: SaturationPoint, result: Saturation) -> str:
    """Label of a row: the choice, a turning point of the curve, or the missed limit."""
    if point is result.chosen:
        return "> recommended"
    priced, limit = (
        point.scored.priced,
        missed_limit(point.scored, result.request, training_of(result.request)),
    )
    turns = {
        result.saturation_workers: "last worth its cost" if priced else "last that pays",
        result.cost_doubles_workers: "cost doubles" if priced else "half as efficient",
        result.peak_workers: "peak",
    }
    labels = [words for workers, words in turns.items() if point.workers == workers]
    return ", ".join([*labels, *([MISSED[limit]] if limit else [])])


def saturation_sentence(curve: Saturation, hardware: str) -> str:
    """Sentences on the curve's turning points: where workers stop paying, where cost doubles, its peak."""
    last, batch = curve.points[-1], curve.request.global_batch
    priced, least, unit = last.scored.priced, curve.request.min_marginal_efficiency, speed_unit(last.scored)
    workers = curve.saturation_workers or last.workers
    these = f"{'Up to ' if workers > 1 else ''}{count(workers, 'worker')} on {hardware}"
    worth = "are worth their cost" if workers > 1 else "is worth its cost"
    if not priced:
        worth = f"{'add' if workers > 1 else 'adds'} at least {percent(least)} of the best speed per worker"
    if curve.saturation_workers is None or curve.most_step_samples is not None:
        divides = batch is not None and last.scored.plan.accumulate == 1
        budget = curve.request.budget_usd_per_hour
        is_over = budget is not None and 2 * last.scored.usd_per_hour > budget
        untried = "are over the budget" if is_over else "were not tried"
        end = f"; more do not divide a global batch of {batch:,}" if divides else f"; more {untried}"
        if (most := curve.most_step_samples) is not None:
            tokens = last.scored.sample_tokens
            step = f"{most:,} samples" if tokens is None else f"{format_count(most * tokens)} tokens"
            end = f"; more would exceed {step} per step, which may need more epochs"
    else:
        cost = f"; {unit.noun} added beyond that cost over {1 / least:.2g}x as much as the cheapest ones"
        end = cost if priced else ""
    begin = f"{these} {worth}{end}"
    doubles, peak = curve.cost_doubles_workers, curve.peak_workers
    doubling = f"The average cost per {unit.singular} doubles" if priced else "Throughput per worker halves"
    grows = f"throughput peaks at {peak:,}" if peak else f"throughput still grows at {last.workers:,}"
    if not peak and curve.saturation_workers in (None, last.workers):
        grows = ""  # the sentence before says how many were tried
    turns = f"{doubling} at {doubles:,} workers; {grows}" if doubles else grows[:1].upper() + grows[1:]
    return f"{begin}. {turns.removesuffix('; ')}{'.' if turns else ''}".strip()


def _limiting_step_part_words(curve: Saturation) -> str:
    """Text naming the longest step part other than compute, beyond the saturation point, with its share."""
    share = curve.limit_s / max(curve.breakdown.step_s, 1e-12)
    return f"{curve.limit}: {percent(share)} of the step beyond that point."


def slowdown_sentence(points: Iterable[tuple[int, Prediction]], *, is_asynchronous: bool = True) -> str:
    """Sentence on the first increase in workers that clearly lowers throughput; empty string if none.
    `is_asynchronous`: workers reach servers independently and can fall into lockstep (docs/simulator.md)."""
    for (few, before), (more, after) in pairwise(points):
        if after.samples_per_s_high < before.samples_per_s_low:
            share = 1 - after.samples_per_s / before.samples_per_s
            less = f"{more} workers are {percent(share)} slower than {few}: "
            if not is_asynchronous:
                return f"{less}exchanging gradients takes longer than another worker's compute saves."
            return (
                f"{less}they fall into lockstep. All download and then all upload, so each direction of the "
                f"servers' links idles half of the time. {few} workers stay out of phase."
            )
    return ""


def _server_counts_table(result: Saturation) -> Table:
    """Table of throughput by number of servers, and how many are enough."""
    words = result.sizes[0][1].plan.exchange.labels()
    rows = [
        {
            **scored.as_dict(),
            "_count": number,
            "_limit": busiest_resource_words(scored),
            "_placed": scored.plan.exchange.record().get(words.size_choice),
        }
        for number, scored in result.sizes
    ]
    workers = count(result.sizes[0][1].plan.workers, "worker")
    need = result.size_advised
    if need is None:
        title = _uncertain_server_gain_sentence(result, workers)
    else:
        adds = f"one more adds less than {percent(ENOUGH_SERVERS)}"
        title = f"{count(need, words.size_noun)} {'is' if need == 1 else 'are'} enough for {workers}: {adds}."
    columns = [
        Column("_count", f"{words.size_noun}s"),
        *([Column("_placed", f"best {words.size_choice}")] if words.size_choice else []),
        Column("samples_per_s", "samples/s", show=rate),
        *cost_columns([{**rows[0], "tokens_per_s": None}], None),
        Column("_limit", "busiest", spare=1),
    ]
    return Table(rows, columns, title=title)


def _uncertain_server_gain_sentence(result: Saturation, workers: str) -> str:
    """Sentence on a gain from one more server that lies within the error of simulation."""
    (fewer, now), (number, more) = result.sizes[-2:]
    noun = now.plan.exchange.labels().size_noun
    added, error = relative_gain(now.prediction, more.prediction)
    return (
        f"{count(fewer, noun)} may be enough for {workers}: {count(number, noun)} change throughput by "
        f"{100 * added:+.1f}% ± {100 * error:.1f}%, and {percent(ENOUGH_SERVERS)} would be worth it."
    )


def _worker_count_words(workers: int | None) -> str:
    """Number of workers as text; `not reached` for None."""
    return "not reached" if workers is None else count(workers, "worker")


def _pictures(result: Saturation) -> list[Picture]:
    """Charts of a saturation curve: throughput, servers, cost, memory and utilization."""
    points, chosen = result.points, result.chosen
    bars, names = [point.scored for point in points], [_worker_count_words(point.workers) for point in points]
    busy = f"Utilization of each resource with {_worker_count_words(chosen.workers)}"
    out = [Picture(lambda: workers_chart(result), plotted=True)]
    if result.sizes:
        out.append(Picture(lambda: servers_chart(result)))
    out += [
        Picture(lambda: replace(charts.utilisation_chart(chosen.scored), title=busy)),
        Picture(lambda: utilisation_by_workers_chart(result)),
    ]
    if chosen.scored.priced:
        out.append(Picture(lambda: charts.pareto_chart(bars, chosen=chosen.scored)))
        out.append(Picture(lambda: charts.cost_chart(bars, names, wide=True)))
    held = memory_picture(result.request, [chosen.scored], [_worker_count_words(chosen.workers)])
    return [*out, held, step_picture(result.request, chosen.scored)]
