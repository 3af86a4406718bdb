"""Pages about one plan: `simulate`, `check` of a real run, and `diff` of two answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from planner.answers.parts import StepDetails
from planner.note import Note, Topic
from planner.report.page import Column, Page, Picture, Remark, Table, columns_of
from planner.report.phrases import bottleneck_words, plan_page, resource_words, single_device_sentence
from planner.search.measured import Measured, factor_for, load_runs
from planner.search.scored import training_of
from planner.units import format_bytes, format_seconds, percent, rate, ratio, signed_percent, span, text_bar

if TYPE_CHECKING:
    from planner.answers.answer_files import ChosenPlan, Difference
    from planner.answers.checking import Check, Suspect
    from planner.answers.questions import Simulation

PARTS = {
    "compute_s": "compute",
    "communication_s": "communication, exposed",
    "bubble_s": "pipeline bubble",
    "input_s": "waiting for input",
    "optimizer_s": "optimizer",
}


def breakdown_tables(details: StepDetails | None) -> list[Table]:
    """Tables of the step breakdown and of memory per device, where known."""
    if details is None:
        return []
    parts, whole = details.parts, max(details.parts.step_s, 1e-12)
    spent = {words: seconds for key, words in PARTS.items() if (seconds := getattr(parts, key))}
    if parts.recompute_s:
        again = parts.recompute_s / max(parts.compute_s, 1e-12)
        spent = {f"compute ({percent(again)} of it recompute)": spent.pop("compute"), **spent}
    rows = [_share_row(words, "seconds", seconds, whole, bar_of=whole) for words, seconds in spent.items()]
    rows.append(_share_row("step", "seconds", whole, whole))
    tables = [Table(rows, columns_of("step_parts"))]
    if (memory := details.memory) is not None:
        usable, total = memory.usable_bytes, memory.total_bytes
        kinds = memory.bytes_by_kind.items()
        rows = [_share_row(kind, "bytes", size, usable, bar_of=total) for kind, size in kinds]
        rows.append(_share_row(f"total, of {format_bytes(usable)} usable", "bytes", total, usable))
        tables.append(Table(rows, columns_of("memory_parts")))
    return tables


def _share_row(part: str, unit: str, size: float, whole: float, bar_of: float = math.inf) -> dict[str, Any]:
    """Table row of a part, with its share of the whole and a bar that is full at `bar_of`."""
    return {"part": part, unit: size, "share": size / whole, "bar": text_bar(size / bar_of)}


def simulation_page(result: Simulation, *, energy: bool = False) -> Page:
    """Page of one simulated plan."""
    scored, prediction, request = result.scored, result.scored.prediction, result.request
    used = [
        {"resource": str(resource), "used": share, "what": resource_words(resource, scored.plan)}
        for resource, share in prediction.utilisation.items()
    ]
    figures = [{"figure": name, "value": value} for name, value in _prediction_figures(result).items()]
    return plan_page(
        result,
        scored,
        "Predicted",
        energy=energy,
        notes=[
            Note(Topic.SEARCH, f"{prediction.events:,} events simulated."),
            *(Note(None, text) for text in prediction.notes),
        ],
        title=f"planner simulate: {scored.plan.model}",
        why=[
            Remark("Bottleneck", [bottleneck_words(scored)]),
            Remark("Scaling", [single_device_sentence(scored, result.baseline, training_of(request))]),
        ],
        tables=[
            Table(figures, columns_of("plan_figures"), records=[_csv_record(result)]),
            *breakdown_tables(result.details),
            Table(used, columns_of("resources_used")),
        ],
        pictures=lambda: _pictures(result),
    )


def _pictures(result: Simulation) -> list[Picture]:
    """Charts of a simulated plan: cost, utilization, memory and one step."""
    from planner.report import charts
    from planner.report.charts_curves import memory_picture, step_picture

    scored, names = result.scored, [result.scored.plan.cluster_text]
    cost = Picture(lambda: charts.cost_chart([scored], names))
    return [
        *([cost] if scored.priced else []),
        Picture(lambda: charts.utilisation_chart(scored)),
        memory_picture(result.request, [scored], names),
        step_picture(result.request, scored),
    ]


def _prediction_figures(result: Simulation) -> dict[str, str]:
    """All figures of a prediction, by name."""
    scored, prediction = result.scored, result.scored.prediction
    quantiles = ", ".join(
        f"{name} {format_seconds(value)}" for name, value in prediction.step_s_quantiles.items()
    )
    half = (prediction.samples_per_s_high - prediction.samples_per_s_low) / 2 / prediction.samples_per_s
    figures = {}
    if scored.tokens_per_s is not None:
        ranged = "" if scored.range is None else f" ({span(*scored.range)})"
        figures["throughput"] = f"{rate(scored.samples_per_s)} samples/s{ranged}"
    if result.details is not None and result.details.mfu is not None:
        mfu, hfu = result.details.mfu, result.details.hfu
        again = "" if hfu is None else f"; HFU {percent(hfu)} with recomputation"
        figures["MFU"] = f"{percent(mfu)} of the {scored.plan.precision.compute} peak{again}"
    bound, reached = rate(scored.bound_samples_per_s), percent(scored.bound_share)
    figures["upper bound"] = f"{bound} samples/s, {reached} reached"
    figures["step"] = f"{format_seconds(prediction.step_s)} mean; {quantiles}"
    if prediction.staleness_max:
        mean, most = prediction.staleness_mean, prediction.staleness_max
        figures["staleness"] = f"{mean:.1f} updates on average, {most} at most"
    figures["simulated"] = (
        f"{prediction.steps:,} steps in {prediction.runs} runs; sampling error ±{half:.1%} "
        f"({percent(prediction.confidence)} interval)"
    )
    return figures


def _csv_record(result: Simulation) -> dict[str, Any]:
    """Fields of a simulated plan, for CSV."""
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


_REACH = {"device": "one device", "machine": "one machine", "machines": "several machines"}
SUSPECTS = {
    "device": "the device computes {times} than assumed",
    "network": "communication and waiting that compute does not hide take {times}",
    "input": "each step waits {times} of its time for input or the host",
}


def check_page(
    checked: Check,
    plan: ChosenPlan,
    saved: Measured | None,
    *,
    title: str = "",
    asked: bool = False,
    source: str = "",
) -> Page:
    """Page comparing a measured run with its prediction, with likely causes and the saved correction.
    `asked`: saving was requested; `source`: the part of a log that gave the measured rate."""
    where = "inside" if checked.is_inside else "outside"
    rows = [
        {"what": "measured", "samples_per_s": checked.measured_samples_per_s},
        {"what": "predicted", "samples_per_s": checked.predicted_samples_per_s},
        {"what": "low end of the 90% range", "samples_per_s": checked.low},
        {"what": "high end of the 90% range", "samples_per_s": checked.high},
    ]
    causes = [
        f"{'Most likely' if not place else 'Or'}: {suspect_words(suspect)}."
        for place, suspect in enumerate(checked.suspects)
    ]
    return Page(
        title or "planner check",
        "Measured",
        f"{rate(checked.measured_samples_per_s)} samples/s on {plan.cluster}, "
        f"{signed_percent(checked.factor - 1)} against the prediction",
        [
            [
                f"predicted {rate(checked.predicted_samples_per_s)} samples/s "
                f"({span(checked.low, checked.high)})",
                f"the run is {where} the range",
            ],
            *([[f"measured by {source}"]] if source else []),
        ],
        [Remark("Cause", causes)] if causes else [],
        [Table(rows, columns_of("check"))],
        [Remark("Kept", _saved_run_sentences(checked, saved, asked))],
    )


def suspect_words(suspect: Suspect) -> str:
    """Text on how an assumption would have to change to explain the measured run."""
    if suspect.name == "input":
        times = percent(suspect.wait_share)
    elif suspect.name == "network":
        times = f"{ratio(suspect.times)} as long"
    elif suspect.times > 1:
        times = f"{ratio(suspect.times)} slower"
    else:
        times = f"{ratio(1 / suspect.times)} faster"
    return SUSPECTS[suspect.name].format(times=times)


def _saved_run_sentences(checked: Check, saved: Measured | None, asked: bool) -> list[str]:
    """Sentences on whether the measured run was saved as a correction, and how to undo that."""
    if saved is None:
        if not (asked and checked.is_absurd):
            return []
        return [
            f"no: {ratio(checked.factor)} the prediction is too far off for a wrong assumption. Check that "
            "the rate is samples/s of all workers and that the answer is of this run, or add --force."
        ]
    factor = factor_for(load_runs(), saved.device, saved.reach)
    assert factor is not None
    return [
        f"answers for {saved.device} ({_REACH[saved.reach]}) now use {factor.words}; "
        f"`planner check --forget {saved.device}` undoes it."
    ]


def saved_run_lines() -> Iterator[str]:
    """Numbered lines, one per saved run."""
    runs = load_runs()
    if not runs:
        yield "no runs are kept; `planner check ANSWER.json --measured RATE` keeps one"
    for number, run in enumerate(runs, 1):
        note = f" ({run.note})" if run.note else ""
        yield (
            f"{number}  {run.as_of}  {run.device}, {_REACH[run.reach]}, {run.model} in {run.precision}: "
            f"{rate(run.measured_samples_per_s)} of {rate(run.predicted_samples_per_s)} samples/s, "
            f"factor {run.factor:.3g}{note}"
        )


def diff_page(difference: Difference, title: str = "planner diff") -> Page:
    """Page of `diff`: figures that changed, then settings that changed."""
    columns = [Column("name", ""), Column("old", align="right"), Column("new", align="right")]
    change = Column("ratio", "change", lambda value: signed_percent(value - 1), "right")
    changes = [
        f"{signed_percent(figure.ratio - 1)} {figure.name}"
        for figure in difference.figures
        if figure.ratio is not None
    ]
    change_words = ", ".join(changes) or "no figures to compare"
    tied = [] if difference.apart else ["The speeds are statistically tied: a run may show the other order."]
    tables = [Table([asdict(figure) for figure in difference.figures], [*columns, change], notes=tied)]
    if difference.settings:
        rows = [asdict(setting) for setting in difference.settings]
        tables.append(Table(rows, columns, title="Settings that differ"))
    same = [] if difference.settings else [Remark("Settings", ["the same."])]
    return Page(title, "Change", change_words, tables=tables, then=same, data=lambda: difference)
