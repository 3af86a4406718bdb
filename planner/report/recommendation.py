"""`recommend` and `compare` as people read them: the decision, ten candidates, what to change next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner.report.answer_words import (
    bottleneck_words,
    plan_words,
    rate,
    saturation_words,
    so_far,
    times_alone,
    usd,
)
from planner.report.decision import (
    beside_words,
    decision_row,
    job_words,
    run_words,
    speed,
    staleness_words,
    verb,
)
from planner.report.output import Column, Table
from planner.units import format_seconds

if TYPE_CHECKING:
    from planner.answers.jobs import Training
    from planner.answers.results import Comparison, Recommendation
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

MOST_ROWS = 10
ALONE = "one device alone"
WHY = {"fastest": "the fastest", "cheapest": "the cheapest a sample", "value": "the best value"}


def recommendation_tables(result: Recommendation) -> list[Table]:
    from planner.answers.jobs import training_of

    training = training_of(result.request)
    told = [
        decision_row(one, result.chosen, result.request, training)
        for one in _most_telling(result.plans, result.chosen)
    ]
    rows = _with_baseline(told, result.baseline, result.chosen, result.request, training)
    return [
        Table(rows, _columns(rows, training), title=_answer(result, training), records=told),
        Table([], title="Next", notes=_next(result)),
        Table([], title="Looked at", notes=[_looked_at(result)]),
        Table([], title="Assumed", notes=[*plan_words(result.chosen), *result.assumptions]),
    ]


def comparison_tables(result: Comparison) -> list[Table]:
    from planner.answers.jobs import training_of

    training, best = training_of(result.request), result.rows[0]
    shown = list(zip(result.rows, result.as_dict()["plans"], strict=True))
    told = [{**decision_row(one, best, result.request, training), **row, "_marks": ""} for one, row in shown]
    rows = _with_baseline(told[: MOST_ROWS - 1], result.baseline, best, result.request, training)
    columns = _columns(rows, training)
    columns.insert(-2, Column("usd_per_million_samples_spot", "spot", show=usd, spare=True))
    others = ""
    if len(result.rows) > 1:
        worst = result.rows[-1]
        ratio = worst.usd_per_million_samples / best.usd_per_million_samples
        others = f", {ratio:.1f} times less than {worst.plan.machine}"
    job = "" if training is None else f"\n{job_words(training, best)}"
    how = f", {best.plan.how}" if best.plan.how else ""
    title = (
        f"{so_far(result)}{best.plan.model} is cheapest on {best.plan.machine}: "
        f"${usd(best.usd_per_million_samples)} a million samples{others}.\n"
        f"{best.plan.cluster_text} ({run_words(best.plan, result.request)}{how}): {speed(best)} samples/s "
        f"for ${best.usd_per_hour:.2f} an hour.{job}"
    )
    more = len(result.rows) - MOST_ROWS + 1
    notes = [f"{more} more machines, dearer a sample; JSON and CSV have all."] if more > 0 else []
    left = [f"{count:,} plans dropped: {reason}." for reason, count in result.left_out.items()]
    looked = f"{result.considered:,} plans considered, {result.simulated:,} simulated."
    alone = times_alone(best, result.baseline)
    return [
        Table(rows, columns, title=title, notes=notes, records=told),
        Table([], title="Assumed", notes=[looked, *alone, *left, *result.assumptions]),
    ]


def _columns(rows: Sequence[dict[str, Any]], training: Training | None) -> list[Column]:
    """Batch and number format appear where they differ between rows, the job where there is one."""
    differ = [
        Column(key, title, spare=key != "batch")
        for key, title in (("batch", "batch"), ("_how", "computed in"))
        if len({row[key] for row in rows}) > 1
    ]
    job = [
        Column("job_s", "time", show=format_seconds, align="right"),
        Column("job_usd", "USD", show=usd),
    ]
    return [
        Column("_choice", "", style="bold green"),
        Column("_workers", "machines"),
        Column("_run", "run as"),
        *differ,
        Column("samples_per_s", "samples/s", show=rate),
        *([Column("_range", "range", align="right", spare=True)] if rows and rows[0]["_range"] else []),
        *(job if training is not None else []),
        Column("usd_per_hour", "USD/h", show=usd),
        Column("usd_per_million_samples", "USD/M", show=usd, spare=training is not None),
        Column("_limit", "limited by", spare=True),
        Column("_why", "", style="bold green"),
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
    from planner.answers.assumptions import no_longer_sold

    one, request = result.chosen, result.request
    budget = request.budget_usd_per_hour
    within = f" within ${budget:g} an hour" if budget is not None else ""
    gone = " and ".join(no_longer_sold(one.plan, request))
    warning = f" ({gone} no longer sold: see Note)" if gone else ""
    how = f", {one.plan.how}" if one.plan.how else ""
    lines = [
        f"{so_far(result)}{verb(one.plan, request)} {one.plan.cluster_text}{warning}: "
        f"{run_words(one.plan, request)}{how}, {speed(one)} samples/s of {one.plan.model} "
        f"(batch {one.plan.batch}) for ${one.usd_per_hour:.2f} an hour, "
        f"${usd(one.usd_per_million_samples)} a million samples; {WHY[request.goal]}{within}."
    ]
    if training is not None:
        lines.append(job_words(training, one))
    cheapest = min(result.plans, key=lambda plan: plan.usd_per_million_samples, default=one)
    if result.baseline is not None and result.baseline.plan != one.plan:
        lines.append(beside_words("One device alone", training, result.baseline, request))
    if cheapest.plan.key != one.plan.key:
        lines.append(beside_words("The cheapest", training, cheapest, request))
    lines += filter(None, [staleness_words(one)])
    return "\n".join(lines)


def _most_telling(plans: Sequence[ScoredPlan], chosen: ScoredPlan) -> list[ScoredPlan]:
    """At most a screenful: the choice, the marked plans, the cheapest of each machine, the rest of the front;
    the choice first, then by cost."""
    marked = [plan for plan in plans if plan.marks]
    best_of: dict[str, ScoredPlan] = {}
    for plan in plans:
        best_of.setdefault(plan.plan.machine, plan)
    wanted = [*(plan for plan in plans if plan.plan == chosen.plan), *marked, *best_of.values(), *plans]
    kept = list({plan.plan.key: plan for plan in wanted}.values())[: MOST_ROWS - 1]  # and one device alone
    return sorted(kept, key=lambda plan: (plan.usd_per_million_samples, plan.plan.key))


def _next(result: Recommendation) -> list[str]:
    one = result.chosen
    out = [bottleneck_words(one), *times_alone(one, result.baseline)]
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
