"""Pages of `recommend` and `compare`: what to run, why, alternatives, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.answers.results import Change, Comparison, Recommendation
from planner.note import Note, Topic
from planner.report import charts
from planner.report.charts_curves import memory_picture, step_picture, workers_chart
from planner.report.page import Chart, Column, Page, Picture, Remark, Table
from planner.report.phrases import (
    CLOSE,
    bottleneck_words,
    comparison_words,
    idle_words,
    is_async,
    other_plan_sentence,
    plan_page,
    single_device_sentence,
    speed_unit,
    strategy_words,
    tied_plans_sentence,
)
from planner.report.plan_rows import LABEL, MISSED, plan_columns, plan_row, what_if_spec
from planner.report.saturation import saturation_sentence
from planner.search.request import Request
from planner.search.scored import ScoredPlan, best_of, missed_limit, training_of
from planner.units import count, limit_usd, money, percent, ratio, usd

MOST_ROWS = 6
FEWEST_ROWS = 4  # filled up with the best plans of other machines
MOST_BARS = 12
VERDICTS = {"fastest": "Fastest", "cheapest": "Cheapest", "balanced": "Recommended"}
BASELINE = "one device"
BEST = {"fastest": "Fastest", "cheapest": "Cheapest per sample", "balanced": "Best trade-off"}


def recommendation_page(result: Recommendation, *, energy: bool = False) -> Page:
    """Page of a recommendation."""
    chosen, request = result.chosen, result.request
    rows = _plan_rows(_alternative_plans(result), result)
    shown = _add_baseline_row(rows, result)
    lost = "".join(f", {number:,} {reason}" for reason, number in result.pruned.items())
    searched = f"{result.considered:,} plans considered{lost}; {result.simulated:,} simulated."
    return plan_page(
        result,
        chosen,
        "So far" if result.partial else "Recommended",
        energy=energy,
        notes=[Note(Topic.SEARCH, searched)],
        title=f"planner recommend: {chosen.plan.model}",
        why=[Remark("Why", _why_sentences(result))],
        tables=[Table(shown, plan_columns(shown, request, energy=energy, first=[LABEL]), records=rows)],
        then=[Remark("Bottleneck", [bottleneck_words(chosen)]), Remark("Next", _next_sentences(result))],
        what_if=lambda: what_if_spec([*result.plans, *result.everything], chosen, request, request.goal),
        pictures=lambda: _pictures(result),
    )


def comparison_page(result: Comparison, *, energy: bool = False) -> Page:
    """Page of a comparison: the best plan per machine."""
    request, best = result.request, result.chosen
    training = training_of(request)
    cheapest, fastest = _cheapest_and_fastest(result)
    unmarked = [replace(scored, marks=()) for scored in result.rows]
    ends = {"cheapest": cheapest, "fastest": fastest}
    named = [
        replace(scored, marks=tuple(name for name, end in ends.items() if end.plan.key == scored.plan.key))
        for scored in result.rows
    ]
    simulated = [replace(scored, marks=()) for scored in result.everything]
    known = zip(_plan_rows(named, result), result.as_dict()["plans"], strict=True)
    records = [{**row, **record} for row, record in known]
    offers = {scored.plan.key for scored in _offers_for_screen(result)}
    brief = [row for scored, row in zip(result.rows, records, strict=True) if scored.plan.key in offers]
    candidates = len(brief)
    rows, brief = _add_baseline_row(records, result), _add_baseline_row(brief, result)
    columns = plan_columns(rows, request, energy=energy, first=[LABEL])
    if any(row.get("usd_per_million_samples_spot") for row in rows):
        columns.insert(-1, _spot_column(rows))
    of = f" of {count(candidates, 'candidate')}" if candidates > 1 else ""
    why = _cheapest_fastest_sentences(
        f"{BEST[request.goal]}{of}{_budget_words(request)}", best, cheapest, fastest, request
    )
    why += [f"No row for {subject}: {reason}." for subject, reason in result.missing.items()]
    if not request.all_offers and len(request.hardware_words) > candidates:
        of = f"{len(request.hardware_words):,}"
        why.append(f"Each row is the best of several offers; --all-offers lists all {of} machines.")
    why += [
        idle_words(best),
        tied_plans_sentence(best, result.tied),
        single_device_sentence(best, result.baseline, training),
    ]
    dropped = [f"{number:,} {reason}" for reason, number in result.left_out.items()]
    searched = ", ".join([f"{result.considered:,} plans considered", *dropped])
    marked = replace(best, marks=("choice",))
    return plan_page(
        result,
        best,
        "So far" if result.partial else VERDICTS[request.goal],
        energy=energy,
        notes=[Note(Topic.SEARCH, f"{searched}; {result.simulated:,} simulated.")],
        title=f"planner compare: {best.plan.model}",
        why=[Remark("Why", why)],
        tables=[Table(rows, columns, records=records, brief=brief)],
        then=[Remark("Bottleneck", [bottleneck_words(best)])],
        what_if=lambda: what_if_spec([*result.rows, *result.everything], best, request, request.goal),
        pictures=lambda: [
            Picture(
                lambda: _pareto_chart(replace(result, everything=[*simulated, *unmarked]), marked, ()),
                plotted=True,
            ),
            *_plan_charts(result.request, best, result.rows),
        ],
    )


def _spot_column(rows: Sequence[dict[str, Any]]) -> Column:
    """Column of cost at spot prices, per sample or token."""
    if not rows or rows[0]["usd_per_billion_tokens"] is None:
        return Column("usd_per_million_samples_spot", "spot $/M", show=money, spare=4)
    for row in rows:
        spot, samples = row.get("usd_per_million_samples_spot"), row["usd_per_million_samples"]
        row["_spot"] = spot * row["usd_per_billion_tokens"] / samples if spot and samples else None
    return Column("_spot", "spot $/B", show=money, spare=4)


def _plan_rows(plans: Sequence[ScoredPlan], result: Recommendation | Comparison) -> list[dict[str, Any]]:
    """Rows of plans with a label each: recommended, cheapest, fastest, tied, or the missed limit."""
    request, training = result.request, training_of(result.request)
    tied, rows = {rival.plan.key for rival in result.tied}, []
    for scored in plans:
        row = plan_row(scored, result.chosen, request, training)
        words = [mark for mark in scored.marks if mark != "cheapest" or scored.priced]
        words += ["tied"] if scored.plan.key in tied else []
        words += [MISSED[row["misses"]]] if row["misses"] else []
        row["_label"] = f"> {VERDICTS[request.goal].lower()}" if row["_choice"] else ", ".join(words)
        rows.append(row)
    return rows


def _add_baseline_row(
    rows: list[dict[str, Any]], result: Recommendation | Comparison
) -> list[dict[str, Any]]:
    """Adds the row of a single device, if any, keeping rows ordered by cost."""
    if result.baseline is None:
        return rows
    (row,) = _plan_rows([replace(result.baseline, marks=())], result)
    row["_label"] = row["_label"] if row["_choice"] else BASELINE
    if any(other["cluster"] == row["cluster"] for other in rows):
        return rows
    out, cost = [*rows, row], "usd_per_million_samples"
    if any(other[cost] is None for other in out) or sorted(rows, key=lambda other: other[cost]) != rows:
        return out
    return sorted(out, key=lambda other: other[cost])


def _budget_words(request: Request) -> str:
    """Budget of a request: ` under $20/h`; empty string without a budget."""
    budget = request.budget_usd_per_hour
    return f" under {limit_usd(budget)}/h" if budget is not None else ""


def _offers_for_screen(result: Comparison) -> Sequence[ScoredPlan]:
    """Rows that a terminal shows: the best offer per machine or GPU, or every row if requested."""
    return result.rows if result.request.all_offers else result.best_offers


def _cheapest_and_fastest(result: Comparison) -> tuple[ScoredPlan, ScoredPlan]:
    """Cheapest and fastest plan within all limits; the choice itself if there is none."""
    training = training_of(result.request)
    rows = [row for row in _offers_for_screen(result) if not missed_limit(row, result.request, training)] or [
        result.chosen
    ]
    cheapest = min(rows, key=lambda row: row.usd_per_million_samples)
    return cheapest, max(rows, key=lambda row: row.samples_per_s)


def _cheapest_fastest_sentences(
    head: str, chosen: ScoredPlan, cheapest: ScoredPlan, fastest: ScoredPlan, request: Request
) -> list[str]:
    """Sentences comparing the choice with the cheapest and the fastest plan. The first begins with `head`."""
    cheapest = cheapest if chosen.priced else chosen
    if cheapest.plan.key != chosen.plan.key:
        name = f"the cheapest plan ({cheapest.plan.rental_text})"
        head = f"{head}: {comparison_words(chosen, cheapest, name)}"
    elif chosen.priced and request.goal != "cheapest":
        fast = " and none is faster" if fastest.plan.key == chosen.plan.key else ""
        head = f"{head}: no plan costs less per {speed_unit(chosen).singular}{fast}"
    out = [f"{head}."]
    if fastest.plan.key not in (chosen.plan.key, cheapest.plan.key):
        out.append(f"The fastest plan ({fastest.plan.rental_text}) is {comparison_words(fastest, chosen)}.")
    return out


def _why_sentences(result: Recommendation) -> list[str]:
    """Sentences on why this plan was chosen over the cheapest, the fastest, tied plans and one device."""
    request, chosen, training = result.request, result.chosen, training_of(result.request)
    mine = " way to use your machines" if request.goal == "fastest" and not chosen.priced else ""
    head = f"{BEST[request.goal]}{mine}{_budget_words(request) if chosen.priced else ''}"
    out = _cheapest_fastest_sentences(
        head, chosen, result.cheapest or chosen, result.fastest or chosen, request
    )
    out += [idle_words(chosen), tied_plans_sentence(chosen, result.tied)]
    if (gain := result.gain_over_fp32) is not None:
        faster = f"{ratio(1 + gain)} as fast as" if gain >= 1 else f"{percent(gain)} faster than"
        out.append(f"Mixed {chosen.plan.precision.name} is {faster} fp32.")
    synchronous = [plan for plan in (*result.plans, *result.everything) if not is_async(plan)]
    if is_async(chosen) and synchronous:
        rival = best_of(synchronous, request)
        out.append(other_plan_sentence("The best synchronous plan", training, rival))
    out.append(single_device_sentence(chosen, result.baseline, training))
    return [sentence for sentence in out if sentence]


def _alternative_plans(result: Recommendation) -> list[ScoredPlan]:
    """Plans in the table: the choice, named and tied plans, the Pareto front, then other machines."""
    request, chosen = result.request, result.chosen
    first = [plan for plan in result.plans if plan.plan == chosen.plan] or [chosen]
    named = [plan for plan in result.plans if plan.marks]
    feasible = [plan for plan in result.plans if not missed_limit(plan, request, training_of(request))]
    front = [*first, *named, *result.tied, *_pareto_front(feasible)]
    best_of: dict[str, ScoredPlan] = {}
    for plan in feasible:
        best_of.setdefault(plan.plan.machine, plan)
    # one row stays free for one device by itself
    kept = _distinct_plans(front, MOST_ROWS - 1)
    return kept if len(kept) >= FEWEST_ROWS else _distinct_plans([*front, *best_of.values()], FEWEST_ROWS)


def _pareto_front(plans: Sequence[ScoredPlan]) -> list[ScoredPlan]:
    """Plans on the Pareto front of cost and speed, cheapest first."""
    front: list[ScoredPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.usd_per_million_samples, -plan.samples_per_s)):
        if not front or plan.samples_per_s > (1 + CLOSE) * front[-1].samples_per_s:
            front.append(plan)
    return front


def _distinct_plans(plans: Sequence[ScoredPlan], limit: int) -> list[ScoredPlan]:
    """First `limit` distinct plans, ordered by cost."""
    kept = list({plan.plan.key: plan for plan in plans}.values())[:limit]
    return sorted(kept, key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))


def _next_sentences(result: Recommendation) -> list[str]:
    """Sentences on the changes with the largest gains, and on how many workers still pay off."""
    out = [f"{change_words(change)}." for change in result.changes]
    if not out and not result.partial:
        out.append("No single change makes it at least 2% faster.")
    if result.saturation is not None:
        out.append(saturation_sentence(result.saturation, result.chosen.plan.machine))
    return out


def change_words(change: Change) -> str:
    """Change and its effect: `1 more worker: 16% faster for $3.36/h more (over budget)`."""
    more = change.usd_per_hour
    price = f"for {usd(abs(more))}/h {'more' if more >= 0 else 'less'}"
    cost = "at no extra cost" if abs(more) < 0.005 else price
    over = "" if change.within_budget else " (over budget)"
    return f"{change.words}: {percent(change.gain)} faster {cost}{over}"


def _pictures(result: Recommendation) -> list[Picture]:
    """Charts of a recommendation: cost against speed, then those of the best plans."""
    chosen, curve = result.chosen, result.saturation
    named = [plan for plan in result.plans if plan.marks]
    bars = _distinct_plans([chosen, *named, *result.plans], MOST_BARS)
    # what was simulated to say how the choice scales and what to change next
    return [
        Picture(lambda: _pareto_chart(result, chosen, result.plans, _extra_plans(result)), plotted=True),
        *([] if curve is None else [Picture(lambda: workers_chart(curve, chosen.plan.workers))]),
        *_plan_charts(result.request, chosen, bars),
    ]


def _plan_charts(request: Request, chosen: ScoredPlan, plans: Sequence[ScoredPlan]) -> list[Picture]:
    """Charts of cost, memory, utilization and one step of the plans."""
    names = [", ".join(filter(None, [p.plan.rental_text, strategy_words(p.plan)])) for p in plans]
    return [
        Picture(lambda: charts.cost_chart(plans, names, wide=True)),
        memory_picture(request, plans, names),
        Picture(lambda: charts.utilisation_chart(chosen, wide=True)),
        step_picture(request, chosen),
    ]


def _pareto_chart(
    result: Recommendation | Comparison,
    chosen: ScoredPlan,
    marked: Sequence[ScoredPlan],
    further: Sequence[ScoredPlan] = (),
) -> Chart:
    """Chart of cost against speed with all considered plans and the Pareto front."""
    drawn = {plan.plan.key: plan for plan in [*result.everything, *marked, chosen]}
    others = {plan.plan.key: plan for plan in further if plan.plan.key not in drawn}
    known = drawn.keys() | others.keys()
    return charts.pareto_chart(
        list(drawn.values()),
        [bounded for bounded in result.bounded if bounded[0].key not in known],
        [plan for plan in result.screened if plan.plan.key not in known],
        chosen=chosen,
        marked=marked,
        further=list(others.values()),
    )


def _extra_plans(result: Recommendation) -> list[ScoredPlan]:
    """Plans simulated besides the search, for the scaling curve and the suggested changes."""
    curve = [] if result.saturation is None else [point.scored for point in result.saturation.points]
    return [*curve, *(change.scored for change in result.changes)]
