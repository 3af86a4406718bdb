"""Tables of profiles, recorded training steps and calibrations, and the page of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.note import Note, Topic
from planner.report.page import (
    Chart,
    Column,
    Figure,
    Page,
    Remark,
    Table,
    columns_of,
    drawn_picture,
    safe_text,
)
from planner.report.plots import bars, plain_axis, rows_chart, spec
from planner.simulator.cluster import ResourceKind
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, resource_of
from planner.units import MIB, format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from planner.calibrate.accelerator import AcceleratorCalibration
    from planner.calibrate.compute import ComputeCalibration
    from planner.calibrate.network import NetworkCalibration
    from planner.device.recorded.summary import RecordingComparison, RecordingSummary
    from planner.simulator.step import Profile
    from planner.simulator.step.summary import Summary


def profile_tables(summary: Summary) -> list[Table]:
    """Tables of a profile: its resources, its slowest ops with the critical path, and warnings."""
    path = summary.critical_path
    if len(path) > 8:
        path = (*path[:4], f"({len(path) - 8} more)", *path[-4:])
    tables = [
        Table(
            [asdict(use) | {"resource": str(use.resource)} for use in summary.resources],
            columns_of("profile_resources", show={"bytes": _bytes_or_blank}),
            f"{summary.model or 'profile'}: batch {summary.batch}, {summary.steps} step(s) of "
            f"{summary.ops} ops, {summary.tensors} tensors, {summary.servers} server(s)",
            _summary_facts(summary),
        ),
        Table(
            [asdict(use) for use in summary.slowest],
            columns_of("slowest_ops", show={"std_s": _seconds_or_blank, "bytes": _bytes_or_blank}),
            "slowest ops",
            [f"critical path: {format_seconds(summary.critical_path_s)}: {' > '.join(path)}"],
        ),
        _list_table("suspicious" if summary.suspicious else "nothing suspicious", summary.suspicious),
    ]
    return [*tables, _list_table("notes", summary.notes)] if summary.notes else tables


def _list_table(title: str, sentences: Sequence[str]) -> Table:
    """Table without rows, which shows a title and the sentences as notes."""
    return Table([], title=title, notes=[f"- {text}" for text in sentences])


def _bytes_or_blank(value: float) -> str:
    """Formats bytes; empty string for none."""
    return format_bytes(value) if value else ""


def _seconds_or_blank(value: float) -> str:
    """Formats seconds; empty string for none."""
    return format_seconds(value) if value else ""


def recording_tables(recording: RecordingSummary, summary: Summary) -> list[Table]:
    """Tables of a recorded step: its facts, time by kind of op, and warnings."""
    facts, exposed = recording.facts, recording.exposed
    step_s = exposed.untraced_s or exposed.step_s
    lines = [
        f"model      {recording.model}, batch {facts.batch}"
        + (f" x {facts.micro_steps} accumulated" if facts.micro_steps > 1 else "")
        + (f", input {'x'.join(map(str, facts.input_shape))}" if facts.input_shape else ""),
        f"device     {facts.device or 'not noted'}"
        + (
            f" ({recording.device} of the catalog)"
            if recording.device and recording.device != facts.device
            else ""
        )
        + f", {facts.precision}",
        f"strategy   {STRATEGY[facts.strategy]}"
        + (f", {facts.world_size} ranks" if facts.world_size > 1 else "")
        + (f", buckets of {format_bytes(facts.bucket_bytes)}" if facts.bucket_bytes else "")
        + (", compiled" if facts.compiled else ""),
        f"framework  {facts.framework or 'not noted'}"
        + (f", {facts.optimizer}" if facts.optimizer else "")
        + (f", {sum(size for _, size in facts.parameters):,} parameters" if facts.parameters else ""),
        f"step       {format_seconds(exposed.step_s)}, mean of {recording.steps}"
        + (f"; {format_seconds(exposed.untraced_s)} without the profiler" if exposed.untraced_s else ""),
        f"exposed    input {_share_of_step(exposed.input_s, step_s)}, communication "
        f"{_share_of_step(exposed.communication_s, step_s)}, idle {_share_of_step(exposed.idle_s, step_s)}",
    ]
    kinds = columns_of("kinds_of_ops", show={"flops_per_s": lambda v: f"{v / 1e9:,.0f}"})
    ops = profile_tables(summary)
    suspicious = [*recording.suspicious, *summary.suspicious]
    return [
        Table(
            [asdict(each) for each in recording.kinds],
            kinds,
            f"{recording.model}: recorded on {recording.device or facts.device or 'an unnamed device'}",
            lines,
        ),
        replace(ops[1], notes=[]),
        _list_table("suspicious" if suspicious else "nothing suspicious", suspicious),
        *ops[3:],
    ]


STRATEGY = {"alone": "one device alone", "ddp": "DistributedDataParallel", "fsdp": "fully sharded (FSDP)"}


def _share_of_step(spent_s: float, step_s: float) -> str:
    """Formats seconds as a percentage of the step; `-` if the step's time is unknown."""
    return f"{spent_s / step_s:.0%}" if step_s else "-"


def comparison_tables(comparison: RecordingComparison, names: tuple[str, str]) -> list[Table]:
    """Tables comparing two recordings, by kind of op and by settings."""
    first, second = names
    kinds = [
        Column("kind"),
        Column("first_s", first, lambda v: format_seconds(v) if v else "-", "right"),
        Column("second_s", second, lambda v: format_seconds(v) if v else "-", "right"),
        Column("ratio", "ratio", "{:.2f}".format, "right"),
    ]
    before, after = comparison.samples_per_s
    times = after / before if before else 0.0
    title = f"{second} does {after:,.4g} samples/s, {times:.2f} times the {before:,.4g} of {first}"
    rows = [{"setting": name, "first": each, "second": other} for name, each, other in comparison.settings]
    settings = [Column("setting"), Column("first", first), Column("second", second)] if rows else []
    differ = "they differ in" if rows else "recorded with the same settings"
    return [Table([asdict(each) for each in comparison.kinds], kinds, title), Table(rows, settings, differ)]


def _summary_facts(summary: Summary) -> list[str]:
    """Lines on a profile's source, bandwidth, ratio of communication to computation, and recorded times."""
    facts = [f"source: {summary.source or 'unknown'} ({summary.basis})"]
    if summary.bandwidth_bytes_per_s:
        facts.append(f"times of links are bytes / {format_bandwidth(summary.bandwidth_bytes_per_s)}")
    if summary.communication_to_computation is not None:
        facts.append(f"communication / computation: {summary.communication_to_computation:.2f}")
    if summary.recorded_step_s is not None:
        facts.append(f"recorded step: {format_seconds(summary.recorded_step_s)}")
    return facts


def compute_table(fitted: ComputeCalibration) -> Table:
    """Table of seconds per multiply-add by number of threads, with data in and out of cache."""
    rows = [
        {
            "threads": at + 1,
            "muladd_s": fitted.muladd_s * inside,
            "muladd_out_of_cache_s": fitted.muladd_out_of_cache_s * outside,
            "interference": inside,
            "interference_out_of_cache": outside,
        }
        for at, (inside, outside) in enumerate(
            zip(fitted.interference, fitted.interference_out_of_cache, strict=True)
        )
    ]
    notes = [
        f"Last-level cache {format_bytes(fitted.cache_bytes)}; activation {format_seconds(fitted.act_s)}, "
        f"error term {format_seconds(fitted.err_s)} per neuron.",
        f"Matrix-matrix multiply-add with all cores busy: {format_seconds(fitted.matrix_s)} in cache, "
        f"{format_seconds(fitted.matrix_out_of_cache_s)} out of it.",
    ]
    return Table(rows, columns_of("cpu_rates"), f"{fitted.cpu}, {fitted.cores} cores", notes)


def network_table(fitted: NetworkCalibration) -> Table:
    """Table of latency by number of connections; its title states the bandwidth."""
    rows = [{"connections": at + 1, "latency_s": value} for at, value in enumerate(fitted.latency_s)]
    return Table(
        rows,
        columns_of("latencies"),
        f"{fitted.host}: {format_bandwidth(fitted.bytes_per_s)} by {fitted.method}",
    )


def accelerator_table(fitted: AcceleratorCalibration) -> Table:
    """Table of measured matrix-product rates by number format."""
    rows = [{"format": name, "tflops": round(flops / 1e12, 2)} for name, flops in fitted.matmul_flops.items()]
    notes = [
        f"Large copies move {fitted.copy_bytes_per_s / 1e9:,.0f} GB/s; a kernel takes "
        f"{format_seconds(fitted.launch_s)} to launch; {fitted.software}."
    ]
    return Table(rows, columns_of("matmul_rates"), fitted.name, notes)


def profile_page(profile: Profile, summary: Summary) -> Page:
    """Page of a profile: its time by resource, its ops and its tensors."""
    tables = profile_tables(summary)
    mean, spread = profile.durations_s.mean(axis=0), profile.durations_s.std(axis=0)
    order = profile.topological_order()
    pictures = [_resource_chart(summary)]
    for kind, key, title, unit, colour in (
        (WORKER, "ops", "Ops of the worker, in order", "ms", "@c3"),
        (PS, "updates", "Updates of the servers, in order", "ms", "@c4"),
        (DOWNLINK, "downloads", "Parameters downloaded, in order", "MiB", "@c1"),
        (UPLINK, "uploads", "Gradients uploaded, in order", "MiB", "@c2"),
    ):
        timed = unit == "ms"
        mine = order[(profile.resource[order] == kind) & (mean[order] > 0)]
        sized = []
        for i in (mine if timed else np.flatnonzero(profile.resource == kind)).tolist():
            spent = f"± {format_seconds(float(spread[i]))} between steps"
            words = spent if timed else str(resource_of(kind, int(profile.server[i])))
            size = 1e3 * float(mean[i]) if timed else float(profile.bytes[i]) / MIB
            sized.append((profile.names[i], f"<b>{safe_text(profile.names[i])}</b><br>{words}", size))
        if sized:
            pictures.append(ranked_bars_chart(key, title, unit, sized, colour))
    ratio = summary.communication_to_computation
    answer = (
        f"A step of {summary.model or 'this profile'} (batch {summary.batch}) computes "
        f"{format_seconds(summary.compute_s)} and moves "
        f"{format_bytes(float(profile.bytes[profile.is_transfer].sum()))}"
    )
    if ratio is not None:
        answer += f": communication takes {ratio:.2f} times as long as computation"
    return Page(
        f"planner profile: {summary.model or 'profile'}",
        headline=answer + ".",
        figures=[
            Figure("steps", f"{summary.steps:,}"),
            Figure("ops", f"{summary.ops:,}"),
            Figure("tensors", f"{summary.tensors:,}"),
            Figure("servers", f"{summary.servers:,}"),
            Figure("critical path", format_seconds(summary.critical_path_s)),
        ],
        then=[Remark("Suspicious", summary.suspicious)],
        pictures=lambda: list(map(drawn_picture, pictures)),
        tables=[replace(table, title=table.title.capitalize()) for table in tables[1:] if table.rows],
        assumptions=[
            Note(Topic.SOURCE, f"{summary.source or 'unknown'} ({summary.basis})"),
            *(Note(Topic.WARNING, note) for note in summary.notes),
        ],
    )


def _resource_chart(summary: Summary) -> Chart:
    """Bar chart of the time per step of each resource."""
    uses = summary.resources
    data = bars(
        "time",
        [1e3 * (use.time_s or 0.0) for use in uses],
        [RESOURCE_COLOURS[use.resource.kind] for use in uses],
        "%{y}: %{x:,.4~g} ms, %{text}",
        text=[f"{use.ops:,} ops" + (f", {format_bytes(use.bytes)}" if use.bytes else "") for use in uses],
        textposition="auto",
    )
    caption = "Means over steps; a link's time is its bytes over the bandwidth, for one worker alone."
    names = [str(use.resource) for use in uses]
    return rows_chart(
        "resources", "Time by resource", caption, names=names, data=[data], x=plain_axis("ms per step")
    )


RESOURCE_COLOURS = {
    ResourceKind.DOWNLINK: "@c1",
    ResourceKind.WORKER: "@c3",
    ResourceKind.UPLINK: "@c2",
    ResourceKind.PS: "@c4",
    ResourceKind.HOST: "@c5",
}
FEW, VERY_FEW = 24, 16  # bars that are named below the axis; where there is little room
MOST = 3000  # bars


def ranked_bars_chart(
    key: str, title: str, unit: str, bars: Sequence[tuple[str, str, float]], colour: str = "@c1"
) -> Chart:
    """Chart of (name, hover text, value) bars in the given order, with their running share."""
    names, words, values = (list(column) for column in zip(*bars[:MOST], strict=True))
    total = sum(values) or 1.0
    places = list(range(len(names)))
    data = [
        spec(
            "columns",
            name=unit,
            x=places,
            y=values,
            text=[
                f"{word}<br>{value:,.4g} {unit}, {value / total:.1%}"
                for word, value in zip(words, values, strict=True)
            ],
            marker={"color": colour},
        ),
        spec("line", "running_share", x=places, y=(np.cumsum(values) / total).tolist()),
    ]
    bare = {"showgrid": False, "showticklabels": False}
    named = {
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [safe_text(n) for n in names],
        "tickangle": -90,
        "showticklabels": True,
    }
    layout = spec(
        "ranked_layout",
        height=300 if len(names) > FEW else 380,
        xaxis=named if len(names) <= FEW else bare,
        yaxis=plain_axis(unit),
    )
    caption = f"{len(names):,} in order, {sum(values):,.4g} {unit} in total; grey: running share."
    narrow = {"xaxis": named if len(names) <= VERY_FEW else bare}
    return Chart(key, title, caption, {"data": data, "layout": layout, "narrow": narrow})
