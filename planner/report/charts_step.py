"""One step of worker 0 as a chart: what runs when on each resource."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.report.page import Chart, Picture, Spec, label
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER
from planner.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.answers.timeline import Timeline
    from planner.search.request import Request
    from planner.search.scored import ScoredPlan

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


def step_timeline(timeline: Timeline, key: str = "step", title: str = "One step, by resource") -> Chart:
    """The chunks of one step of worker 0, a row for each resource."""
    rows = timeline.rows
    mine = rows[(rows["worker"] == 0) & (rows["step"] == timeline.step)]
    lanes = sorted({(int(r), int(s)) for r, s in zip(mine["resource"], mine["server"], strict=True)})
    start_s = timeline.start_s
    data: list[Spec] = []
    seen = set()
    for index, (resource, server) in enumerate(lanes):
        here = mine[(mine["resource"] == resource) & (mine["server"] == server)]
        bars = _bars(here, timeline.profile.names)
        name, colour = _kind(timeline, resource, server)
        share = [min(1.0, bar.busy_s / (bar.end_s - bar.start_s)) if bar.busy_s else 1.0 for bar in bars]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "legendgroup": name,
                "showlegend": name not in seen,
                "y": [index] * len(bars),
                "base": [1e3 * (bar.start_s - start_s) for bar in bars],
                "x": [1e3 * (bar.end_s - bar.start_s) for bar in bars],
                "text": [bar.words for bar in bars],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": colour,
                    "opacity": [round(max(0.1, busy), 2) for busy in share],
                    "line": {"width": 0.5 if len(bars) < FEW_BARS else 0, "color": "@surface"},
                },
                "width": 0.72,
            }
        )
        seen.add(name)
    layout = {
        "height": 120 + 40 * len(lanes),
        "barmode": "overlay",
        "xaxis": {"title": {"text": "ms since the step began"}, "rangemode": "tozero"},
        "yaxis": {
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": list(range(len(lanes))),
            "ticktext": [label(_lane(timeline, resource, server)) for resource, server in lanes],
            "showgrid": False,
            "fixedrange": True,
        },
        "dragmode": "zoom",
    }
    others = timeline.cluster.workers - 1
    company = (
        "It is alone."
        if not others
        else "Another shares the links meanwhile."
        if others == 1
        else f"{others} others share the links meanwhile."
    )
    length = format_seconds(timeline.end_s - timeline.start_s)
    caption = (
        f"Step {timeline.step} of worker 0, {length} long, as simulated. {company} "
        "Pale: busy for a part of that time."
    )
    hint = "Drag to zoom, double-click to see all."
    return Chart(key, title, caption, {"data": data, "layout": layout}, hint=hint)


def _is_link(timeline: Timeline, resource: int, channel: int) -> bool:
    """Whether a lane is a link between workers rather than one to a server."""
    return resource in (DOWNLINK, UPLINK) and channel >= timeline.cluster.servers


def _kind(timeline: Timeline, resource: int, channel: int) -> tuple[str, str]:
    """What runs on a lane and its colour."""
    if not _is_link(timeline, resource, channel):
        return KINDS[resource]
    place = channel - timeline.cluster.servers
    return f"exchange over the {label(str(timeline.cluster.link_resource(channel)))}", ("@c2", "@c1", "@c7")[
        place % 3
    ]


def _lane(timeline: Timeline, resource: int, channel: int) -> str:
    if _is_link(timeline, resource, channel):
        return str(timeline.cluster.link_resource(channel))
    return "worker" if resource == WORKER else LANES[resource].format(channel)


@dataclass
class Bar:
    """A stretch of one resource: one chunk, or several, which fill a part of it (`busy_s`)."""

    start_s: float
    end_s: float
    busy_s: float = 0.0
    bytes: float = 0.0
    parts: list[tuple[float, str]] = field(default_factory=list)  # seconds here, op

    @property
    def words(self) -> str:
        first = sorted(self.parts, key=lambda part: -part[0])[:NAMES_SHOWN]
        out = "<br>".join(f"<b>{label(name)}</b>" for _, name in first)
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
    """A bar for each chunk of one resource; where they are too many to be seen, shaded bins instead."""
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
    """The step of a plan, which is simulated once more when it is drawn."""
    from planner.answers.timeline import timeline_of

    return Picture(lambda: step_timeline(timeline_of(request, scored.plan, steps=1)), still=False)
