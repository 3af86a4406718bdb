"""Plotly charts of saturation curves, and of one step of worker 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.answers.parts import memory_of
from planner.answers.results import Saturation, SaturationPoint
from planner.answers.timeline import Timeline, timeline_of
from planner.report.charts import COLOURS, error_bars, memory_chart, scored_words, speed_range
from planner.report.page import Chart, Picture, Spec, safe_text
from planner.report.phrases import SpeedUnit, resource_words, speed_unit
from planner.report.plots import plain_axis, row_axis, spec
from planner.search.cases import Cases
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER
from planner.units import count, format_bandwidth, format_bytes, format_seconds, percent, rate, signed_rate

MOST_BARS = 600  # on one resource; more are shown as bins, the busier the darker
BINS = 400
FEW_BARS = 120  # have an edge; more would be all edge
NAMES_SHOWN = 3
KINDS = {
    DOWNLINK: ("parameters arrive", "@c1"),
    WORKER: ("the worker computes", "@c3"),
    UPLINK: ("gradients leave", "@c2"),
    PS: ("the server updates", "@c4"),
    HOST: ("the host works", "@c5"),
}
LANES = {DOWNLINK: "from server {}", UPLINK: "to server {}", PS: "server {} updates", HOST: "host"}


def step_timeline_chart(timeline: Timeline, key: str = "step", title: str = "One step, by resource") -> Chart:
    """Timeline of one step of worker 0, with one row per resource."""
    rows = timeline.rows
    mine = rows[(rows["worker"] == 0) & (rows["step"] == timeline.step)]
    lanes = sorted({(int(r), int(s)) for r, s in zip(mine["resource"], mine["server"], strict=True)})
    start_s = timeline.start_s
    data: list[Spec] = []
    seen = set()
    for index, (resource, server) in enumerate(lanes):
        here = mine[(mine["resource"] == resource) & (mine["server"] == server)]
        bars = _bars(here, timeline.profile.names)
        name, colour = _lane_kind(timeline, resource, server)
        share = [min(1.0, bar.busy_s / (bar.end_s - bar.start_s)) if bar.busy_s else 1.0 for bar in bars]
        data.append(
            spec(
                "rows",
                "chunk",
                name=name,
                legendgroup=name,
                showlegend=name not in seen,
                y=[index] * len(bars),
                base=[1e3 * (bar.start_s - start_s) for bar in bars],
                x=[1e3 * (bar.end_s - bar.start_s) for bar in bars],
                text=[bar.hover_text for bar in bars],
                marker={
                    "color": colour,
                    "opacity": [round(max(0.1, busy), 2) for busy in share],
                    "line": {"width": 0.5 if len(bars) < FEW_BARS else 0},
                },
            )
        )
        seen.add(name)
    layout = spec(
        "step_layout",
        height=120 + 40 * len(lanes),
        xaxis=plain_axis("ms since the step began"),
        yaxis=row_axis([safe_text(_lane_name(timeline, *lane)) for lane in lanes]),
    )
    others = timeline.cluster.workers - 1
    company = (
        "It is the only worker."
        if not others
        else "Another worker shares its links."
        if others == 1
        else f"{others} other workers share its links."
    )
    length = format_seconds(timeline.end_s - timeline.start_s)
    caption = (
        f"Step {timeline.step} of worker 0, {length} long, as simulated. {company} "
        "Pale bars: busy for part of their time."
    )
    hint = "Drag to zoom, double-click to see all."
    return Chart(key, title, caption, {"data": data, "layout": layout}, hint=hint)


def _is_link(timeline: Timeline, resource: int, channel: int) -> bool:
    """Whether a timeline row is a link between workers rather than to a server."""
    return resource in (DOWNLINK, UPLINK) and channel >= timeline.cluster.servers


def _lane_kind(timeline: Timeline, resource: int, channel: int) -> tuple[str, str]:
    """Legend name and colour of a timeline row."""
    if not _is_link(timeline, resource, channel):
        return KINDS[resource]
    place = channel - timeline.cluster.servers
    return f"exchange over the {safe_text(str(timeline.cluster.link_resource(channel)))}", (
        "@c2",
        "@c1",
        "@c7",
    )[place % 3]


def _lane_name(timeline: Timeline, resource: int, channel: int) -> str:
    """Label of a timeline row."""
    if _is_link(timeline, resource, channel):
        return str(timeline.cluster.link_resource(channel))
    return "worker" if resource == WORKER else LANES[resource].format(channel)


@dataclass
class Bar:
    """A bar in a timeline row: one chunk of an op, or a time bin that is busy for `busy_s`."""

    start_s: float
    end_s: float
    busy_s: float = 0.0
    bytes: float = 0.0
    parts: list[tuple[float, str]] = field(default_factory=list)  # seconds here, op

    @property
    def hover_text(self) -> str:
        """Hover text of a bar: its longest ops, its duration and how much of it is busy."""
        first = sorted(self.parts, key=lambda part: -part[0])[:NAMES_SHOWN]
        out = "<br>".join(f"<b>{safe_text(name)}</b>" for _, name in first)
        if len(self.parts) > NAMES_SHOWN:
            out += f"<br>and {len(self.parts) - NAMES_SHOWN} more"
        lasts = self.end_s - self.start_s
        out += f"<br>{format_seconds(lasts)}"
        if self.busy_s < 0.999 * lasts:
            out += f", {self.busy_s / lasts:.0%} of it busy"
        if self.bytes and self.busy_s:
            out += f"<br>{format_bytes(self.bytes)} at {format_bandwidth(self.bytes / self.busy_s)}"
        return out


def _bars(rows: Any, names: tuple[str, ...]) -> list[Bar]:
    """Bars of one timeline row: one per chunk, or shaded time bins if there are too many chunks."""
    columns = [rows[name].tolist() for name in ("start_s", "end_s", "op", "bytes")]
    if len(rows) <= MOST_BARS:
        return [
            Bar(start, end, end - start, size, [(end - start, names[op])])
            for start, end, op, size in zip(*columns, strict=True)
        ]
    first, last = min(columns[0]), max(columns[1])
    wide = (last - first) / BINS
    bins = [Bar(first + i * wide, first + (i + 1) * wide) for i in range(BINS)]
    for start, end, op, size in zip(*columns, strict=True):
        for number in range(int((start - first) / wide), min(int((end - first) / wide), BINS - 1) + 1):
            bar = bins[number]
            here = max(0.0, min(end, bar.end_s) - max(start, bar.start_s))
            bar.busy_s += here
            bar.bytes += size * here / (end - start) if end > start else 0.0
            bar.parts.append((here, names[op]))
    return [bar for bar in bins if bar.busy_s]


def step_picture(request: Request, scored: ScoredPlan) -> Picture:
    """Timeline of one step of a plan, simulated when it is drawn."""
    return Picture(lambda: step_timeline_chart(timeline_of(request, scored.plan, steps=1)))


def memory_picture(request: Request, plans: Sequence[ScoredPlan], names: Sequence[str]) -> Picture:
    """Chart of memory per device for all plans whose memory is known."""

    def draw_memory() -> Chart | None:
        """Draws the memory chart; returns None if no plan's memory is known."""
        if request.profile is not None:
            return None
        cases = Cases(request, model_of(request))
        known = {name: memory_of(plan, cases) for name, plan in zip(names, plans, strict=True)}
        held = {name: found for name, found in known.items() if found is not None}
        return memory_chart(held) if held else None

    return Picture(draw_memory)


def workers_chart(curve: Saturation, recommended: int | None = None) -> Chart:
    """Chart of throughput against workers, with its ranges, upper bound and linear scaling."""
    points = curve.points
    workers = [point.workers for point in points]
    unit = speed_unit(points[0].scored)
    speed = [unit.speed(point.scored.samples_per_s) for point in points]
    first, ceiling = speed[0] / workers[0], unit.speed(curve.ceiling_samples_per_s)
    bounds = [unit.speed(point.scored.bound_samples_per_s) for point in points]
    ends = [speed_range(point.scored) for point in points]
    data: list[Spec] = [
        _line_trace(
            "linear scaling", workers, [first * w for w in workers], unit, color="@faint", dash="dot"
        ),
        _line_trace("bound", workers, bounds, unit, color="@c2", dash="dash"),
        spec(
            "lines",
            "simulated",
            x=workers,
            y=speed,
            text=[
                f"{scored_words(p.scored)}<br>efficiency {percent(p.efficiency)}, "
                f"{signed_rate(unit.speed(p.marginal_samples_per_s))} {unit.noun}/s over the point before"
                for p in points
            ],
            error_y=error_bars(speed, ends, "@c1"),
        ),
    ]
    chosen, saturated = recommended or curve.chosen.workers, curve.saturation_workers
    marked = [point for point in points if point.workers == chosen]
    data.append(_ring_trace(f"recommended: {chosen}", marked, "X", "@mark"))
    if saturated not in (None, chosen):
        at_saturation = [point for point in points if point.workers == saturated]
        data.append(_ring_trace(f"worth its cost up to {saturated}", at_saturation, "S", "@c1"))
    top = 1.04 * max([*(high for _, high in ends), *bounds])
    shapes, notes = [], []
    if ceiling <= top:
        shapes.append(spec("dashed", line={"color": "@c2"}, xref="paper", x0=0, x1=1, y0=ceiling, y1=ceiling))
        place = {"x": 0.01, "xref": "paper", "xanchor": "left", "y": ceiling, "yanchor": "bottom"}
        notes.append(spec("note", text=f" ceiling: {rate(ceiling)} ", **place))
    if saturated is not None:
        sides = {"x0": saturated, "x1": saturated, "yref": "paper", "y0": 0, "y1": 1}
        shapes.append(spec("dashed", line={"color": "@mark"}, **sides))
        place = {"x": saturated, "xanchor": "left", "y": 0.04, "yref": "paper", "yanchor": "bottom"}
        notes.append(spec("note", text=f" worth its cost up to {saturated} ", **place))
    layout = spec(
        "workers_layout",
        xaxis={**_workers_axis(workers), "tickformat": "d"},
        yaxis={**plain_axis(f"{unit.noun}/s"), "range": [0, top]},
        shapes=shapes,
        annotations=notes,
    )
    caption = (
        "Error bars: 90% ranges of the prediction. Worth its cost: added samples cost at most "
        f"{1 / curve.request.min_marginal_efficiency:.2g}x the cheapest."
    )
    return Chart("workers", "Throughput against workers", caption, {"data": data, "layout": layout})


def utilisation_by_workers_chart(curve: Saturation) -> Chart:
    """Chart of each resource's utilization against the number of workers."""
    workers = [point.workers for point in curve.points]
    last = curve.points[-1].scored
    words = {name: safe_text(resource_words(name, last.plan)) for name in last.prediction.utilisation}
    data = [
        spec(
            "lines",
            name=words[name],
            x=workers,
            y=[point.scored.prediction.utilisation.get(name) for point in curve.points],
            hovertemplate=f"%{{x}} workers: {words[name]} %{{y:.1%}} used<extra></extra>",
            line={"color": f"@c{index % COLOURS + 1}"},
        )
        for index, name in enumerate(words)
    ]
    layout = spec("busy_layout", xaxis=_workers_axis(workers), yaxis={"title": {"text": "busy"}})
    caption = "The resource that reaches 100% first saturates."
    return Chart("busy", "Utilization against workers", caption, {"data": data, "layout": layout})


def servers_chart(curve: Saturation) -> Chart:
    """Chart of throughput against the number of servers, or of other parts that the strategy scales."""
    plans = [scored for _, scored in curve.sizes]
    words = plans[0].plan.exchange.labels()
    bars = spec(
        "columns",
        x=[count for count, _ in curve.sizes],
        y=[scored.samples_per_s for scored in plans],
        text=[scored_words(scored) for scored in plans],
        marker={"color": ["@c1" if n == curve.size_advised else "@faint" for n, _ in curve.sizes]},
    )
    layout = spec("servers_layout", xaxis=plain_axis(f"{words.size_noun}s"), yaxis=plain_axis("samples/s"))
    workers = plans[0].plan.workers
    need = curve.size_advised
    pays = (
        "The number that pays off is within the simulation error."
        if need is None
        else f"Coloured: {need}, the most that pay off."
    )
    best = f" under its best {words.size_choice}" if words.size_choice else ""
    caption = f"With {count(workers, 'worker')}, each number of {words.size_noun}s{best}. {pays}"
    title = f"Throughput against {words.size_noun}s"
    return Chart("servers", title, caption, {"data": [bars], "layout": layout}, False)


def _ring_trace(name: str, points: Sequence[SaturationPoint], meta: str, colour: str) -> Spec:
    """Plotly trace that circles points of a curve; `meta` is their label in terminal plots."""
    return spec(
        "ring",
        name=name,
        x=[point.workers for point in points],
        y=[speed_unit(point.scored).speed(point.scored.samples_per_s) for point in points],
        marker={"color": colour},
        meta=meta,
    )


def _line_trace(name: str, x: list[Any], y: list[float], unit: SpeedUnit, **line: str) -> Spec:
    """Plotly trace of throughput against workers, as a line."""
    hover = f"%{{x}} workers: %{{y:,.4~g}} {unit.noun}/s<extra>{name}</extra>"
    return spec("line", name=name, x=x, y=y, line={"width": 2, **line}, hovertemplate=hover)


def _workers_axis(workers: Sequence[int]) -> Spec:
    """Axis of a number of workers, with a tick for each up to 12."""
    return {**plain_axis("workers"), "dtick": 1 if workers[-1] <= 12 else None}
