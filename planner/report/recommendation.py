"""`recommend` and `compare` as people read them: the decision, ten candidates, what to change next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.note import Note, Topic
from planner.report.answer_words import (
    bottleneck_words,
    plan_words,
    rate,
    saturation_words,
    several,
    so_far,
    usd,
)
from planner.report.decision import (
    beside_words,
    close_words,
    decision_lines,
    decision_row,
    is_async,
    job_columns,
    why_style,
)
from planner.report.output import Column, Section, Table

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.answers.results import Comparison, Recommendation
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

MOST_ROWS = 10
NARROW = 22  # of the reasons, which go on in the next line
ALONE = "one device alone"
ENERGY = (
    Column("kwh_per_million_samples", "kWh/M", show=lambda v: f"{v:.3g}"),
    Column("kg_co2e_per_million_samples", "kg CO2e/M", show=lambda v: f"{v:.3g}"),
)
WHY = {"fastest": "the fastest", "cheapest": "the cheapest a sample", "balanced": "the best trade-off"}


def recommendation_tables(result: Recommendation, *, energy: bool = False) -> list[Table]:
    from planner.answers.jobs import training_of

    training = training_of(result.request)
    told = [
        decision_row(one, result.chosen, result.request, training)
        for one in _most_telling(result.plans, result.chosen)
    ]
    rows = _with_baseline(told, result.baseline, result.chosen, result.request, training)
    columns = columns_of(rows, training, result.request, energy=energy)
    return [
        Table(rows, columns, title=_answer(result, training), records=told),
        Table.of_notes(Section.NEXT, _next(result)),
        Table.of_notes(Section.LOOKED_AT, [_looked_at(result)]),
        Table.of_notes(
            Section.ASSUMED,
            [*plan_words(result.chosen), *energy_words(result.chosen), *result.assumptions],
        ),
    ]


def comparison_tables(result: Comparison, *, energy: bool = False) -> list[Table]:
    from planner.answers.jobs import training_of

    request, best = result.request, result.chosen
    training = training_of(request)
    shown = list(zip(result.rows, result.as_dict()["plans"], strict=True))
    told = [{**decision_row(one, best, request, training), **row, "_marks": ""} for one, row in shown]
    first = [row for row in told if row["_choice"]]
    screenful = [row for row in told if not row["_choice"]][: MOST_ROWS - 2]
    few = sorted([*first, *screenful], key=told.index)
    rows = _with_baseline(few, result.baseline, best, request, training)
    columns = columns_of(rows, training, request, energy=energy)
    if not request.spot:
        columns.insert(-2, _spot_column(rows))
    budget = request.budget_usd_per_hour
    within = f" within ${budget:g} an hour" if budget is not None else ""
    many = f" of {several(len(result.rows), 'machine')}" if len(result.rows) > 1 else ""
    lines = decision_lines(
        best, request, training, why=f"{WHY[request.goal]}{many}{within}", baseline=result.baseline
    )
    worst = max(result.rows, key=lambda row: row.usd_per_million_samples)
    if worst is not best:
        lines.append(beside_words("The dearest a sample", training, worst))
    lines += filter(None, [close_words(best, result.tied, request)])
    more = len(result.rows) - len(few)
    rest = f"{several(more, 'more machine')}, dearer a sample; JSON and CSV have all." if more > 0 else None
    left = [f"{count:,} plans dropped: {reason}." for reason, count in result.left_out.items()]
    looked = f"{result.considered:,} plans considered, {result.simulated:,} simulated."
    return [
        Table(rows, columns, title=so_far(result) + "\n".join(lines), rest=rest, records=told),
        Table.of_notes(Section.ASSUMED, [looked, *left, *energy_words(best), *result.assumptions]),
    ]


def _spot_column(rows: Sequence[dict[str, Any]]) -> Column:
    """What rows would cost on spot machines, in the unit that they cost on demand in."""
    if not rows or rows[0]["usd_per_billion_tokens"] is None:
        return Column("usd_per_million_samples_spot", "spot USD/M", show=usd, spare=True)
    for row in rows:
        spot, samples = row.get("usd_per_million_samples_spot"), row["usd_per_million_samples"]
        row["_spot"] = spot * row["usd_per_billion_tokens"] / samples if spot and samples else None
    return Column("_spot", "spot USD/B tokens", show=usd, spare=True)


def energy_words(one: ScoredPlan) -> list[Note]:
    """What a million samples draw, and how that was counted; nothing where nobody gives the power."""
    row = one.as_dict()
    kwh, kg = row["kwh_per_million_samples"], row["kg_co2e_per_million_samples"]
    if kwh is None:
        return []
    carbon = "" if kg is None else f" and {kg:.3g} kg CO2e"
    return [Note(Topic.ENERGY, f"{kwh:.3g} kWh{carbon} a million samples: {row['energy_method']}.")]


def columns_of(
    rows: Sequence[dict[str, Any]], training: Training | None, request: Request, *, energy: bool = False
) -> list[Column]:
    """Batch and number format appear where they differ between rows, the job where there is one, tokens for
    networks over sequences."""
    differ = [
        Column(key, title, spare=0 if key == "batch" else 2)
        for key, title in (("batch", "batch"), ("_how", "computed in"))
        if len({row[key] for row in rows}) > 1
    ]
    tokens = bool(rows) and rows[0]["tokens_per_s"] is not None
    cost = (
        Column("usd_per_billion_tokens", "USD/B tokens", show=usd)
        if tokens
        else Column("usd_per_million_samples", "USD/M", show=usd, spare=training is not None)
    )
    return [
        Column("_choice", "", style="bold green"),
        Column("_workers", "machines", whole=True),
        Column("_run", "run as", whole=True),
        *differ,
        Column("samples_per_s", "samples/s", show=rate),
        *([Column("_range", "range", align="right", spare=2)] if rows and rows[0]["_range"] else []),
        *([Column("tokens_per_s", "tokens/s", show=rate)] if tokens else []),
        *(job_columns() if training is not None else []),
        Column("usd_per_hour", "USD/h", show=usd, spare=training is not None),
        *([Column("_paid", "paid")] if request.spot else []),
        cost,
        *(ENERGY if energy else []),
        Column("_limit", "limited by", spare=3),
        Column("_why", "", style=why_style, enough=NARROW),
    ]


def _with_baseline(
    rows: list[dict[str, Any]],
    baseline: ScoredPlan | None,
    chosen: ScoredPlan,
    request: Request,
    training: Training | None,
) -> list[dict[str, Any]]:
    """The rows with their marks and, marked, what one device alone gives."""
    out = [{**row, "_why": _marked(row)} for row in rows]
    if baseline is None:
        return out
    found = decision_row(baseline, chosen, request, training)
    for row in out:
        if (row["cluster"], row["batch"]) == (found["cluster"], found["batch"]):
            row["_why"] += f"; {ALONE}"
            return out
    return [*out, {**found, "_why": f"{found['_why']}; {ALONE}"}]


def _marked(row: dict[str, Any]) -> str:
    return "; ".join(filter(None, [row["_why"], row["_marks"]]))


def _answer(result: Recommendation, training: Training | None) -> str:
    """What to run, how fast, what the job takes, and how it compares; a sentence a line."""
    one, request = result.chosen, result.request
    budget = request.budget_usd_per_hour
    within = f" within ${budget:g} an hour" if budget is not None else ""
    why = WHY[request.goal]
    lines = decision_lines(one, request, training, why=f"{why}{within}", baseline=result.baseline)
    cheapest = min(result.plans, key=lambda plan: plan.usd_per_million_samples, default=one)
    if cheapest.plan.key != one.plan.key:
        lines.append(beside_words("The cheapest", training, cheapest))
    lines += filter(None, [close_words(one, result.tied, request)])
    if is_async(one) and (rival := _best_synchronous(result)) is not None:
        lines.append(beside_words("The best that trains synchronously", training, rival))
    return so_far(result) + "\n".join(lines)


def _best_synchronous(result: Recommendation) -> ScoredPlan | None:
    """Of the plans that were simulated, by what the request asks for."""
    rivals = [one for one in (*result.plans, *result.everything) if not is_async(one)]
    from planner.answers.jobs import best_of

    return best_of(rivals, result.request) if rivals else None


def _most_telling(plans: Sequence[ScoredPlan], chosen: ScoredPlan) -> list[ScoredPlan]:
    """At most a screenful: the choice, the marked plans, the cheapest of each machine, the rest of the front;
    the choice first, then by cost."""
    marked = [plan for plan in plans if plan.marks]
    best_of: dict[str, ScoredPlan] = {}
    for plan in plans:
        best_of.setdefault(plan.plan.machine, plan)
    first = [plan for plan in plans if plan.plan == chosen.plan]
    wanted = [*first, *marked, *best_of.values(), *plans]
    kept = list({plan.plan.key: plan for plan in wanted}.values())[: MOST_ROWS - 1]  # and one device alone
    return sorted(kept, key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))


def _next(result: Recommendation) -> list[str]:
    one = result.chosen
    out = [bottleneck_words(one)]
    curve = result.saturation
    if curve is not None:
        out.append(saturation_words(curve, one.plan.machine))
    if result.changes:
        out += [f"{'Next best change' if i == 0 else 'Or'}: {c}." for i, c in enumerate(result.changes)]
    elif not result.partial:
        out.append("No single change makes it at least 2% faster.")
    return out


def _looked_at(result: Recommendation) -> str:
    lost = "".join(f", {count:,} {reason}" for reason, count in result.pruned.items())
    return f"{result.considered:,} plans considered{lost}; {result.simulated:,} simulated."
