"""One step of worker 0 as a chart: what runs when on each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.profile import DOWNLINK, PS, RESOURCE_NAMES, UPLINK, WORKER
from planner.report.page import Chart, Spec, label
from planner.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.search.timeline import Timeline

MOST_BARS = 600  # on one resource, unless gaps hold them apart
SEEN = 3000  # a gap of this part of the step is wide enough to be seen
FEW_BARS = 120  # have an edge; more would be all edge
NAMES_SHOWN = 3
KINDS = {
    DOWNLINK: ("parameters arrive", "@c1"),
    WORKER: ("the worker computes", "@c3"),
    UPLINK: ("gradients leave", "@c2"),
    PS: ("the server updates", "@c4"),
}


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
        bars = _joined(here, timeline.profile.names)
        name, colour = KINDS[resource]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "legendgroup": name,
                "showlegend": name not in seen,
                "y": [index] * len(bars),
                "base": [1e3 * (bar["start"] - start_s) for bar in bars],
                "x": [1e3 * (bar["end"] - bar["start"]) for bar in bars],
                "text": [_bar_words(bar) for bar in bars],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": colour,
                    "line": {"width": 0.5 if len(bars) < FEW_BARS else 0, "color": "@surface"},
                },
                "width": 0.72,
            }
        )
        seen.add(name)
    layout = {
        "height": 130 + 40 * len(lanes),
        "barmode": "overlay",
        "xaxis": {"title": {"text": "ms since the step began"}, "rangemode": "tozero"},
        "yaxis": {
            "autorange": "reversed",
            "tickmode": "array",
            "tickvals": list(range(len(lanes))),
            "ticktext": [RESOURCE_NAMES[r] + (f"[{s}]" if r != WORKER else "") for r, s in lanes],
            "showgrid": False,
            "fixedrange": True,
        },
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
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
        "Drag to zoom, double-click to see all."
    )
    return Chart(key, title, caption, {"data": data, "layout": layout})


def _joined(rows: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Bars of one resource. Where there are many, short neighbours are joined, first the shortest; a gap that
    can be seen stays one."""
    columns = (rows[name].tolist() for name in ("start_s", "end_s", "op", "bytes"))
    bars = [
        {"start": start, "end": end, "names": [names[op]], "count": 1, "bytes": size}
        for start, end, op, size in sorted(zip(*columns, strict=True))
    ]
    span = bars[-1]["end"] - bars[0]["start"]
    short = span / 4096
    while len(bars) > MOST_BARS and short < span:
        out = [bars[0]]
        for bar in bars[1:]:
            last = out[-1]
            lasts = min(bar["end"] - bar["start"], last["end"] - last["start"])
            if bar["start"] - last["end"] < span / SEEN and lasts < short:
                out[-1] = {
                    "start": last["start"],
                    "end": max(last["end"], bar["end"]),
                    "names": (last["names"] + bar["names"])[:NAMES_SHOWN],
                    "count": last["count"] + bar["count"],
                    "bytes": last["bytes"] + bar["bytes"],
                }
            else:
                out.append(bar)
        bars, short = out, 2 * short
    return bars


def _bar_words(bar: dict[str, Any]) -> str:
    lasts = bar["end"] - bar["start"]
    more = bar["count"] - len(bar["names"])
    what = "<br>".join(f"<b>{label(name)}</b>" for name in bar["names"])
    if more > 0:
        what += f"<br>and {more} more"
    rate = (
        f"<br>{format_bytes(bar['bytes'])} at {format_bandwidth(bar['bytes'] / lasts)}"
        if bar["bytes"] and lasts
        else ""
    )
    return f"{what}<br>{format_seconds(lasts)}{rate}"
