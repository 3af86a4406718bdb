"""Charts of plans as plotly data: pure functions of scored plans.

Colours are names that the page resolves (`@c1` to `@c8`, `@faint`, `@mark` ...); every text that may come
from a file is escaped by `label`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.answers.parts import DeviceMemory
from planner.hardware.prices.cost import usd_per_million_samples
from planner.parallel.plan import Plan
from planner.report.page import Chart, Spec, safe_text
from planner.report.phrases import (
    SpeedUnit,
    busiest_label,
    is_saturated,
    price_words,
    resource_words,
    speed_unit,
    speed_words,
    strategy_words,
)
from planner.report.plots import PlotScale, bars, plain_axis, rows_chart, spec
from planner.search.race import pareto_front
from planner.search.scored import ScoredPlan
from planner.units import percent, rate, usd

GIB = 2.0**30
PLOT = 270.0, 380.0  # width and height in pixels of the narrowest plot that labels must be apart on
CHARACTER = 8.0, 26.0  # of a label, with room for the margins of axes
HEIGHTS = (34, -34, 64, -64, 94, -94)  # pixels that a label may stand below (or above) its point
MOST_LABELS = 4


Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels


def label_annotations(plans: Sequence[ScoredPlan], x: PlotScale, y: PlotScale) -> list[Spec]:
    """Plotly annotations that label the marked plans, inside the plot and without overlaps."""
    out: list[Spec] = []
    taken: list[Box] = []
    for scored in {scored.plan.key: scored for scored in plans if scored.marks}.values():
        words, (speed, cost) = ", ".join(scored.marks), speed_and_cost(scored)
        share = x.position(speed)
        anchor = "left" if share < 0.3 else "right" if share > 0.7 else "center"
        for height in HEIGHTS:
            box = _label_box(words, share, y.position(cost), anchor, height)
            if box[1] > 0 and box[3] < PLOT[1] and not any(_has_overlap(box, other) for other in taken):
                break
        else:
            continue  # its hover says it
        taken.append(box)
        out.append(
            spec(
                "label",
                x=x.plotly_coordinate(speed),
                y=y.plotly_coordinate(cost),
                text=safe_text(words),
                ay=height,
                xanchor=anchor,
            )
        )
    return out[:MOST_LABELS]


def _label_box(text: str, x: float, y: float, anchor: str, offset: float) -> Box:
    """Left, top, right and bottom of a label, in pixels of the narrowest plot."""
    long = CHARACTER[0] * len(text)
    left = x * PLOT[0] - {"left": 0.0, "center": 0.5, "right": 1.0}[anchor] * long
    middle = (1 - y) * PLOT[1] + offset
    return left, middle - CHARACTER[1] / 2, left + long, middle + CHARACTER[1] / 2


def _has_overlap(box: Box, other: Box) -> bool:
    """Whether two label boxes overlap."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


COLOURS = 8
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
MOST_NAMED = 7  # machines with a colour of their own; a longer legend says less
MOST_BOUNDED = 2000  # drawn; more would make the page slow and show nothing else
LETTERS = "abcdefgh"  # by which a terminal shows the named machines


def plan_words(plan: Plan) -> str:
    """Hover text for a plan, in two lines: its cluster, then its strategy and batch."""
    strategy = safe_text(strategy_words(plan) or "one device")
    return f"<b>{safe_text(plan.cluster_text)}</b><br>{strategy}, batch {plan.batch}"


def scored_words(scored: ScoredPlan) -> str:
    """Hover text for a simulated plan: speed, price, busiest resource and marks."""
    prediction = scored.prediction
    marks = f"<br><b>{safe_text(', '.join(scored.marks))}</b>" if scored.marks else ""
    price = "".join(f"{words}, " for words in price_words(scored)).removesuffix(", ")
    return (
        f"{plan_words(scored.plan)}<br>{speed_words(scored)}, {percent(scored.bound_share)} of its bound<br>"
        f"{price + '<br>' if price else ''}"
        f"{busiest_label(scored)}: {safe_text(resource_words(prediction.bottleneck, scored.plan))}{marks}"
    )


def _bounded_plan_words(bounded: tuple[Plan, float, float], unit: SpeedUnit) -> str:
    """Hover text for a plan that was pruned by its upper bound."""
    plan, usd_per_hour, bound = bounded
    speed = f"{rate(unit.speed(bound))} {unit.noun}/s"
    return f"{plan_words(plan)}<br>at most {speed}, {usd(usd_per_hour)}/h; not simulated"


def speed_and_cost(scored: ScoredPlan) -> tuple[float, float]:
    """Speed and cost of a plan, per sample or per token, as coordinates of the Pareto chart."""
    unit = speed_unit(scored)
    return unit.speed(scored.samples_per_s), unit.cost(scored.usd_per_million_samples)


def speed_range(scored: ScoredPlan) -> tuple[float, float]:
    """Ends of the 90% range of a plan's speed; the speed itself twice if there is no range."""
    low, high = scored.range or (scored.samples_per_s,) * 2
    return speed_unit(scored).speed(low), speed_unit(scored).speed(high)


def pareto_chart(
    simulated: Sequence[ScoredPlan],
    bounded: Sequence[tuple[Plan, float, float]] = (),
    screened: Sequence[ScoredPlan] = (),
    *,
    chosen: ScoredPlan | None = None,
    marked: Sequence[ScoredPlan] = (),
    further: Sequence[ScoredPlan] = (),
) -> Chart:
    """Chart of cost against speed with every plan considered and the Pareto front. `further` are plans
    outside the search that the answer names, such as the choice with more workers."""
    data: list[Spec] = []
    unit = speed_unit(simulated[0])
    price = [unit.cost(usd_per_million_samples(usd, bound)) for _, usd, bound in bounded]
    kept = sorted(np.argsort(price, kind="stable")[:MOST_BOUNDED].tolist())
    if kept:
        x, y = [unit.speed(bounded[i][2]) for i in kept], [price[i] for i in kept]
        words = [_bounded_plan_words(bounded[i], unit) for i in kept]
        data.append(spec("points", "bounded", name="upper bound (not simulated)", x=x, y=y, text=words))
    if screened:
        data.append(_plan_points("screened", screened, name="simulated roughly"))
    if further:
        data.append(_plan_points("further", further, name="the choice at other sizes"))
    speed, cost = np.array([speed_and_cost(scored) for scored in simulated]).T
    on_front = pareto_front(speed, cost)
    first = [*([chosen] if chosen else []), *marked, *(simulated[i] for i in on_front), *simulated]
    named = sorted(list(dict.fromkeys(scored.plan.machine for scored in first))[:MOST_NAMED])
    others = [scored for scored in simulated if scored.plan.machine not in named]
    if others:
        count = len({scored.plan.machine for scored in others})
        name = f"{count} other machine{'s' if count > 1 else ''}"
        data.append(_plan_points("others", others, name=name))
    for index, hardware in enumerate(named):
        mine = [scored for scored in simulated if scored.plan.machine == hardware]
        colour = f"@c{index % COLOURS + 1}"
        look = {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9, "color": colour}
        points = _plan_points("points", mine, name=safe_text(hardware), marker=look, meta=LETTERS[index])
        data.append(points | _range_bars(mine, colour))
    if len(on_front) > 1:
        data.append(spec("line", "front", x=speed[on_front].tolist(), y=cost[on_front].tolist()))
    if chosen is not None:
        data.append(_plan_points("chosen", [chosen]))
    across, up = (PlotScale.spanning([value for trace in data for value in trace[axis]]) for axis in "xy")
    titles = f"{unit.noun}/s", f"$ per {unit.priced_amount}"
    data.append(spec("points", "what_if"))
    layout = spec(
        "pareto_layout",
        xaxis=across.axis(titles[0], wide=True),
        yaxis=up.axis(titles[1], wide=True),
        annotations=label_annotations([*marked, *([chosen] if chosen else [])], across, up),
    )
    narrow = {"xaxis": across.axis(titles[0]), "yaxis": up.axis(titles[1])}
    drawn = len(kept) + len(screened) + len(simulated) + len(further)
    left = len(bounded) - len(kept)
    caption = f"{drawn:,} plans; further right is faster, further down is cheaper."
    caption += " Bars: 90% ranges of the named plans." if any(plan.range for plan in marked) else ""
    caption += f" {left:,} more with worse bounds are not drawn." if left else ""
    hint = "Hover for details; click a name to hide it."
    drawing = {"data": data, "layout": layout, "narrow": narrow}
    return Chart("pareto", "Cost against speed", caption, drawing, hint=hint)


def _range_bars(plans: Sequence[ScoredPlan], colour: str) -> Spec:
    """Error bars for the 90% range of each marked plan; empty if there are none."""
    if not any(plan.marks and plan.range for plan in plans):
        return {}
    speed = [speed_and_cost(plan)[0] for plan in plans]
    ends = [
        speed_range(plan) if plan.marks else (value, value) for plan, value in zip(plans, speed, strict=True)
    ]
    return {"error_x": error_bars(speed, ends, colour)}


def error_bars(values: Sequence[float], ends: Sequence[tuple[float, float]], colour: str) -> Spec:
    """Plotly error bars from each value to its low and high end."""
    return spec(
        "range",
        array=[high - value for value, (_, high) in zip(values, ends, strict=True)],
        arrayminus=[value - low for value, (low, _) in zip(values, ends, strict=True)],
        color=colour,
    )


def _plan_points(style: str, plans: Sequence[ScoredPlan], **fields: Any) -> Spec:
    """Plotly trace of simulated plans as points of cost against speed."""
    x, y = ([speed_and_cost(plan)[axis] for plan in plans] for axis in (0, 1))
    return spec("points", style, x=x, y=y, text=[scored_words(plan) for plan in plans], **fields)


def cost_chart(plans: Sequence[ScoredPlan], names: Sequence[str], wide: bool = False) -> Chart:
    """Bar chart of each plan's cost, split by the roles of machines."""
    roles = dict.fromkeys(cost.role for scored in plans for cost in scored.costs)
    unit = speed_unit(plans[0])
    hourly = {role: [scored.usd_of(role) or 0.0 for scored in plans] for role in roles}
    data = [
        bars(
            role,
            [
                unit.cost(usd_per_million_samples(usd, plan.samples_per_s))
                for usd, plan in zip(paid, plans, strict=True)
            ],
            f"@c{place % COLOURS + 1}",
            f"%{{text}}<br>{role}: $%{{x:,.3~g}} per {unit.priced_amount}, $%{{customdata:,.2f}}/h",
            customdata=paid,
            text=[plan_words(scored.plan) for scored in plans],
            textposition="none",
        )
        for place, (role, paid) in enumerate(hourly.items())
    ]
    caption = "Hourly price over throughput; servers on worker machines are free."
    title = "Cost by role" if len(roles) > 1 else f"Cost per {unit.priced_amount}"
    x = plain_axis(f"$ per {unit.priced_amount}")
    return rows_chart("cost", title, caption, names=names, data=data, x=x, wide=wide)


def memory_chart(memory_by_plan: Mapping[str, DeviceMemory]) -> Chart:
    """Bar chart of memory per device by kind, one row per plan, with a mark at the usable memory."""
    kinds = dict.fromkeys(kind for memory in memory_by_plan.values() for kind in memory.bytes_by_kind)
    data = [
        bars(
            kind,
            [memory.bytes_by_kind.get(kind, 0.0) / GIB for memory in memory_by_plan.values()],
            f"@c{place % COLOURS + 1}",
            f"{kind}: %{{x:,.3~g}} GiB",
        )
        for place, kind in enumerate(kinds)
    ]
    usable = [memory.usable_bytes / GIB for memory in memory_by_plan.values()]
    words = [f"usable: {value:,.4g} GiB" for value in usable]
    data.append(spec("points", "usable", x=usable, y=list(map(float, range(len(usable)))), text=words))
    caption = "Peak memory of a device; the mark is its usable memory."
    x = {**plain_axis("GiB"), "rangemode": "tozero"}
    return rows_chart("memory", "Memory per device", caption, names=list(memory_by_plan), data=data, x=x)


def utilisation_chart(scored: ScoredPlan, wide: bool = False) -> Chart:
    """Bar chart of how busy each resource of a plan is."""
    shares, top = scored.prediction.utilisation, scored.prediction.bottleneck
    data = bars(
        "busy",
        list(shares.values()),
        ["@mark" if name == top and is_saturated(scored) else "@c1" for name in shares],
        "%{customdata}: %{x:.1%} busy",
        customdata=[safe_text(str(name)) for name in shares],
        text=[f"{share:.0%}" for share in shares.values()],
        textposition="auto",
        showlegend=False,
    )
    what = resource_words(top, scored.plan)
    full = (
        f"The bottleneck, in red, is {what}."
        if is_saturated(scored)
        else f"No resource is full; the busiest is {what}."
    )
    caption = f"{full} Links: share of their capacity; others: share of the time."
    words = [resource_words(name, scored.plan) for name in shares]
    x = {**plain_axis("busy"), "range": [0, 1], "tickformat": ".0%"}
    return rows_chart(
        "utilisation", "Utilization of each resource", caption, names=words, data=[data], x=x, wide=wide
    )
