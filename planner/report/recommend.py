"""The pages of `recommend` and `compare`: what to run, why, the alternatives by name, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.note import Note, Topic
from planner.report import charts
from planner.report.assumed import notes_of
from planner.report.charts_curves import step_picture, workers_curve
from planner.report.format import count, limit_usd, money, percent, usd
from planner.report.page import Column, Page, Picture, Remark, Table
from planner.report.phrases import (
    alone_words,
    beside_words,
    bottleneck_words,
    cluster_words,
    compared_words,
    energy_words,
    fact_lines,
    figures,
    headline,
    is_async,
    plan_columns,
    plan_row,
    row_style,
    tied_words,
    verdict,
)
from planner.report.saturation import saturation_sentence
from planner.report.what_if import what_if

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.answers.results import Change, Comparison, Recommendation
    from planner.report.page import Chart
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

MOST_ROWS = 10
MOST_BARS = 12
LABEL = Column("_label", "", style=row_style, enough=14)
VERDICTS = {"fastest": "Fastest", "cheapest": "Cheapest", "balanced": "Recommended"}
BASELINE = "one device"
BEST = {"fastest": "Fastest", "cheapest": "Cheapest per sample", "balanced": "Best trade-off"}


def recommendation_page(result: Recommendation, *, energy: bool = False) -> Page:
    """The page of a recommendation."""
    from planner.answers.jobs import training_of

    chosen, request = result.chosen, result.request
    training = training_of(request)
    alternatives = _alternatives(result)
    tied = {rival.plan.key for rival in result.tied}
    rows = []
    for scored in alternatives:
        row = plan_row(scored, chosen, request, training)
        rows.append({**row, "_label": _label(scored, tied, row)})
    shown = _with_baseline(rows, result.baseline, chosen, request, training)
    columns = plan_columns(shown, training, request, energy=energy, first=[LABEL])
    return Page(
        f"planner recommend: {chosen.plan.model}",
        verdict(chosen, request, "Recommended") if not result.partial else "So far",
        headline(chosen.plan, request),
        fact_lines(chosen, request, training),
        [Remark("Why", _why(result, training))],
        [Table(shown, columns, records=rows)],
        [Remark("Bottleneck", [bottleneck_words(chosen)]), Remark("Next", _next(result))],
        [*_plan_notes(chosen), *notes_of(result.assumptions), Note(Topic.SEARCH, _looked_at(result))],
        energy,
        figures(chosen, request),
        lambda: what_if(
            [chosen, *result.plans, *result.everything, *_further(result)], request, goal=request.goal
        ),
        _pictures(result),
        data=result.as_dict,
    )


def comparison_page(result: Comparison, *, energy: bool = False) -> Page:
    """The page of a comparison: the best plan of every machine."""
    from planner.answers.jobs import training_of

    request, best = result.request, result.chosen
    training = training_of(request)
    tied = {rival.plan.key for rival in result.tied}
    known = zip(result.rows, result.as_dict()["plans"], strict=True)
    records = [{**plan_row(scored, best, request, training), **row} for scored, row in known]
    for scored, row in zip(result.rows, records, strict=True):
        words = f"> {BEST[request.goal].partition(' per')[0].lower()}" if scored is best else ""
        row["_label"] = ", ".join(
            filter(None, [words, "tied" if scored.plan.key in tied else "", row["misses"]])
        )
    offers = {scored.plan.key for scored in result.best_offers}
    named = zip(result.rows, records, strict=True)
    brief = [row for scored, row in named if request.all_offers or scored.plan.key in offers]
    rows = _with_baseline(records, result.baseline, best, request, training)
    brief = _with_baseline(brief, result.baseline, best, request, training)
    columns = plan_columns(rows, training, request, energy=energy, first=[LABEL])
    if not request.spot:
        columns.insert(-1, _spot_column(rows))
    machines = f" of {count(len(brief), 'candidate')}" if len(brief) > 1 else ""
    why = [f"{BEST[request.goal]}{machines}{_within(request)}."]
    worst = max(result.rows, key=lambda row: row.usd_per_million_samples)
    if worst is not best and worst.priced:
        why.append(beside_words("The most expensive per sample", training, worst))
    why += [f"No row for {subject}: {reason}." for subject, reason in result.missing.items()]
    if not request.all_offers and len(request.hardware_words) > len(brief):
        why.append(f"The best offer of each; --all-offers shows all {len(request.hardware_words)} machines.")
    why += [tied_words(result.tied), alone_words(best, result.baseline, training)]
    dropped = [f"{number:,} {reason}" for reason, number in result.left_out.items()]
    searched = ", ".join([f"{result.considered:,} plans considered", *dropped])
    unmarked = [replace(scored, marks=()) for scored in [*result.everything, *result.rows]]
    marked = replace(best, marks=("choice",))
    return Page(
        f"planner compare: {best.plan.model}",
        "So far" if result.partial else verdict(best, request, VERDICTS[request.goal]),
        headline(best.plan, request),
        fact_lines(best, request, training),
        [Remark("Why", why)],
        [Table(rows, columns, records=records, brief=brief)],
        [Remark("Bottleneck", [bottleneck_words(best)])],
        [
            *_energy_notes(best),
            *notes_of(result.assumptions),
            Note(Topic.SEARCH, f"{searched}; {result.simulated:,} simulated."),
        ],
        energy,
        figures(best, request),
        lambda: what_if([*result.rows, *result.everything], request, goal=request.goal),
        [
            Picture(lambda: _front(replace(result, everything=unmarked), marked, ()), plotted=True),
            Picture(lambda: charts.cost_split(result.rows, _names(result.rows), wide=True), still=False),
            Picture(lambda: charts.utilisation(best, wide=True), still=False),
            step_picture(request, best),
        ],
        data=result.as_dict,
    )


def _spot_column(rows: Sequence[dict[str, Any]]) -> Column:
    """What rows would cost on spot machines, in the unit that they cost on demand in."""
    if not rows or rows[0]["usd_per_billion_tokens"] is None:
        return Column("usd_per_million_samples_spot", "spot $/M", show=money, spare=4)
    for row in rows:
        spot, samples = row.get("usd_per_million_samples_spot"), row["usd_per_million_samples"]
        row["_spot"] = spot * row["usd_per_billion_tokens"] / samples if spot and samples else None
    return Column("_spot", "spot $/B", show=money, spare=4)


def _label(scored: ScoredPlan, tied: set[str], row: dict[str, Any]) -> str:
    """What a row is called: recommended, cheapest, fastest, tied, or the limit that it misses."""
    words = ["> recommended"] if row["_choice"] else []
    dropped = {"recommended"} if scored.priced else {"recommended", "cheapest"}
    words += [mark for mark in scored.marks if mark not in dropped]
    words += ["tied"] if scored.plan.key in tied else []
    words += [row["misses"]] if row["misses"] else []
    return ", ".join(words)


def _with_baseline(
    rows: list[dict[str, Any]],
    baseline: ScoredPlan | None,
    chosen: ScoredPlan,
    request: Request,
    training: Training | None,
) -> list[dict[str, Any]]:
    """The rows, with one device by itself marked, or added at the end."""
    if baseline is None:
        return rows
    row = plan_row(baseline, chosen, request, training)
    out, present = [], False
    for other in rows:
        same = (other["cluster"], other["batch"]) == (row["cluster"], row["batch"])
        present = present or same
        label = ", ".join(filter(None, [other["_label"], BASELINE if same else ""]))
        out.append({**other, "_label": label})
    if present:
        return out
    return [*out, {**row, "_label": ", ".join(filter(None, [BASELINE, row["misses"]]))}]


def _within(request: Request) -> str:
    budget = request.budget_usd_per_hour
    return f" under {limit_usd(budget)}/h" if budget is not None else ""


def _why(result: Recommendation, training: Training | None) -> list[str]:
    """Why this plan: how it compares with the two ends of the front, with tied plans and with one device."""
    chosen = result.chosen
    cheapest, fastest = result.cheapest or chosen, result.fastest or chosen
    if not chosen.priced:
        cheapest = chosen
    why = f"{BEST[result.request.goal]}{_within(result.request)}"
    if cheapest.plan.key != chosen.plan.key:
        why = f"{why}: {_against(chosen, 'the cheapest plan', cheapest)}"
    elif chosen.priced and result.request.goal != "cheapest":
        why = f"{why}: no plan costs less per sample"
    out = [f"{why}."]
    if fastest.plan.key not in (chosen.plan.key, cheapest.plan.key):
        out.append(f"The fastest plan ({cluster_words(fastest.plan)}) is {compared_words(fastest, chosen)}.")
    out.append(tied_words(result.tied))
    if is_async(chosen) and (rival := _best_synchronous(result)) is not None:
        out.append(beside_words("The best synchronous plan", training, rival))
    out.append(alone_words(chosen, result.baseline, training))
    return [sentence for sentence in out if sentence]


def _against(plan: ScoredPlan, name: str, other: ScoredPlan) -> str:
    """`3.1x faster than the cheapest plan (3 x g7e.2xlarge) for 4% more per sample`."""
    words = compared_words(plan, other)
    faster, joint, cost = next(
        (parts for joint in (" for ", " at ") if (parts := words.partition(joint))[1]), (words, "", "")
    )
    return f"{faster} than {name} ({cluster_words(other.plan)}){joint}{cost}"


def _best_synchronous(result: Recommendation) -> ScoredPlan | None:
    """Of the plans that were simulated, by what the request asks for."""
    from planner.answers.jobs import best_of

    rivals = [plan for plan in (*result.plans, *result.everything) if not is_async(plan)]
    return best_of(rivals, result.request) if rivals else None


def _alternatives(result: Recommendation) -> list[ScoredPlan]:
    """At most a screenful: the choice, plans with a name, tied ones, the cheapest of each machine, the rest
    of the front; by cost."""
    plans, chosen = result.plans, result.chosen
    best_of: dict[str, ScoredPlan] = {}
    for plan in plans:
        best_of.setdefault(plan.plan.machine, plan)
    first = [plan for plan in plans if plan.plan == chosen.plan] or [chosen]
    named = [plan for plan in plans if plan.marks]
    wanted = [*first, *named, *result.tied, *best_of.values(), *plans]
    kept = list({plan.plan.key: plan for plan in wanted}.values())[: MOST_ROWS - 1]  # and one device alone
    return sorted(kept, key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))


def _next(result: Recommendation) -> list[str]:
    """Changes that pay, and where more workers stop paying."""
    out = [f"{change_words(change)}." for change in result.changes]
    if not out and not result.partial:
        out.append("No single change makes it at least 2% faster.")
    if result.saturation is not None:
        out.append(saturation_sentence(result.saturation, result.chosen.plan.machine))
    return out


def change_words(change: Change) -> str:
    """`1 more worker: 16% faster for $3.36/h more (over budget)`."""
    more = change.usd_per_hour
    price = f"for {usd(abs(more))}/h {'more' if more >= 0 else 'less'}"
    cost = "at no extra cost" if abs(more) < 0.005 else price
    over = "" if change.within_budget else " (over budget)"
    return f"{change.words}: {percent(change.gain)} faster {cost}{over}"


def _plan_notes(chosen: ScoredPlan) -> list[Note]:
    return [Note(Topic.PLAN, f"{chosen.plan.exchange.labels().plan}."), *_energy_notes(chosen)]


def _energy_notes(scored: ScoredPlan) -> list[Note]:
    words = energy_words(scored)
    return [Note(Topic.ENERGY, words)] if words else []


def _looked_at(result: Recommendation) -> str:
    lost = "".join(f", {number:,} {reason}" for reason, number in result.pruned.items())
    return f"{result.considered:,} plans considered{lost}; {result.simulated:,} simulated."


def _pictures(result: Recommendation) -> list[Picture]:
    chosen = result.chosen
    named = [plan for plan in result.plans if plan.marks]
    bars = _bars(result.plans, [chosen, *named])
    curve = result.saturation
    return [
        Picture(lambda: _front(result, chosen, result.plans, _further(result)), plotted=True),
        *([] if curve is None else [Picture(lambda: workers_curve(curve, chosen.plan.workers))]),
        Picture(lambda: charts.cost_split(bars, _names(bars), wide=True), still=False),
        Picture(lambda: charts.utilisation(chosen, wide=True), still=False),
        step_picture(result.request, chosen),
    ]


def _names(plans: Sequence[ScoredPlan]) -> list[str]:
    return [plan.plan.cluster_text for plan in plans]


def _bars(plans: Sequence[ScoredPlan], wanted: Sequence[ScoredPlan] = ()) -> list[ScoredPlan]:
    """A few plans for bars: those wanted, then the cheapest, in the order of cost."""
    kept = list({plan.plan.key: plan for plan in [*wanted, *plans]}.values())[:MOST_BARS]
    return sorted(kept, key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))


def _front(
    result: Recommendation | Comparison,
    chosen: ScoredPlan,
    marked: Sequence[ScoredPlan],
    further: Sequence[ScoredPlan] = (),
) -> Chart:
    """The front with every plan that was looked at, each once."""
    drawn = {plan.plan.key: plan for plan in [*result.everything, *marked, chosen]}
    others = {plan.plan.key: plan for plan in further if plan.plan.key not in drawn}
    known = drawn.keys() | others.keys()
    return charts.pareto(
        list(drawn.values()),
        [bounded for bounded in result.bounded if bounded[0].key not in known],
        [plan for plan in result.screened if plan.plan.key not in known],
        chosen=chosen,
        marked=marked,
        further=list(others.values()),
    )


def _further(result: Recommendation) -> list[ScoredPlan]:
    """What was simulated to say how the choice scales and what to change next."""
    curve = [] if result.saturation is None else [point.scored for point in result.saturation.points]
    return [*curve, *(change.scored for change in result.changes)]
