"""One step of worker 0 as a chart: what runs when on each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.profile import DOWNLINK, PS, RESOURCE_NAMES, UPLINK, WORKER
from planner.report.page import Chart, Spec, label
from planner.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.search.timeline import Timeline

MOST_BARS = 600  # on one resource; neighbours are joined until there are no more
FEW_BARS = 120  # have an edge; more would be all edge
NAMES_SHOWN = 3
KINDS = {
    DOWNLINK: ("parameters arrive", "@c1"),
    WORKER: ("the worker computes", "@c3"),
    UPLINK: ("gradients leave", "@c2"),
    PS: ("the server updates", "@c4"),
}


def step_timeline(timeline: Timeline) -> Chart:
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
    plan = timeline.plan
    others = plan.workers - 1
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
    return Chart("step", "One step, by resource", caption, {"data": data, "layout": layout})


def _joined(rows: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Bars of one resource. Neighbours closer than a gap are joined, and the gap grows until they are few."""
    rows = sorted(
        zip(
            rows["start_s"].tolist(),
            rows["end_s"].tolist(),
            rows["op"].tolist(),
            rows["bytes"].tolist(),
            strict=True,
        )
    )
    bars = [{"start": s, "end": e, "names": [names[op]], "count": 1, "bytes": b} for s, e, op, b in rows]
    span = bars[-1]["end"] - bars[0]["start"]
    least = span / 5000
    while len(bars) > MOST_BARS:
        out = [bars[0]]
        for bar in bars[1:]:
            last = out[-1]
            if (
                bar["start"] - last["end"] < least / 4
                and min(bar["end"] - bar["start"], last["end"] - last["start"]) < least
            ):
                out[-1] = {
                    "start": last["start"],
                    "end": max(last["end"], bar["end"]),
                    "names": (last["names"] + bar["names"])[:NAMES_SHOWN],
                    "count": last["count"] + bar["count"],
                    "bytes": last["bytes"] + bar["bytes"],
                }
            else:
                out.append(bar)
        bars, least = out, 2 * least
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
