"""`--timeline`: what happens when, in Chrome's trace format, for Perfetto or chrome://tracing.

One process is one node and one track in it one resource: a worker's downlinks, computation and uplinks, its
host and links where its steps use them, and a server's updates, a track for each worker it serves. A joint op
is drawn at the leader of its group. An arrow leads from a transfer to each op that waited for it. A server's
node counts its active transfers and the use of its NIC in both directions. Events are written worker by
worker in batches; only the chunks themselves are held.

Format: "Trace Event Format" (Duffy, Google), JSON object form: X slices (name, cat, ph, ts, dur, pid, tid), s
and f flows (id, bp "e"), C counters and M metadata; times in microseconds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from planner.files.regular_file import open_for_replacement
from planner.simulator.cluster import Cluster
from planner.simulator.sharing import max_min_rates
from planner.simulator.step import DOWNLINK, HOST, PS, RESOURCE_KINDS, UPLINK, WORKER, resource_of

if TYPE_CHECKING:
    from planner.answers.timeline import Timeline

BATCH = 20_000  # events held at once
COMPRESSION = 1  # of gzip: a third larger than the best, five times as fast

_WAYS = {DOWNLINK: " in", UPLINK: " out"}  # of a link
# times, transfers running from then on, and the percentage of a NIC that they use
Use = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.float64]]
Event = dict[str, Any]
Names = dict[tuple[int, int, int], tuple[int, int, str]]  # (worker, resource, server): pid, tid, name


def write_chrome(timeline: Timeline, path: Path | str) -> None:
    """Writes a timeline to a file atomically; gzipped if the name ends in .gz."""
    with open_for_replacement(path) as file:
        if str(path).endswith(".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=COMPRESSION, mtime=0) as packed:
                _write_trace(timeline, packed)
        else:
            _write_trace(timeline, file)


def _write_trace(timeline: Timeline, file: IO[bytes] | gzip.GzipFile) -> None:
    """Writes a timeline to an open file as a JSON trace."""
    last = timeline.step + timeline.steps - 1
    about = {**timeline.about, "steps of worker 0": f"{timeline.step} to {last}"}
    encode = msgspec.json.Encoder().encode
    file.write(b'{"displayTimeUnit":"ms","otherData":' + encode(about) + b',"traceEvents":[\n')
    events, separator = _trace_events(timeline), b""
    while batch := list(islice(events, BATCH)):
        file.write(separator + b",\n".join(map(encode, batch)))
        separator = b",\n"
    file.write(b"\n]}\n")


def _trace_events(timeline: Timeline) -> Iterator[Event]:
    """All events of a trace, worker by worker."""
    tracks, flow_ids, profile = _track_ids(timeline), count(), timeline.profile
    lanes = list(zip(profile.resource.tolist(), profile.server.tolist(), strict=True))
    yield from _track_metadata(timeline, tracks)
    for worker in range(timeline.cluster.workers):
        mine = timeline.rows[timeline.rows["worker"] == worker]
        if len(mine):
            ids = [tracks[worker, kind, -1 if kind == WORKER else server] for kind, server in lanes]
            places = [{"pid": pid, "tid": tid} for pid, tid, _ in ids]
            yield from _slice_events(timeline, mine, places)
            yield from _flow_events(timeline, mine, places, flow_ids)
    yield from _counter_events(timeline)


def _track_ids(timeline: Timeline) -> Names:
    """Process id, track id and track name of each (worker, resource, channel). A transfer is drawn at the
    worker, an update at the server; track numbers restart in each process."""
    cluster, profile = timeline.cluster, timeline.profile
    used_lanes = sorted(set(zip(profile.resource.tolist(), profile.server.tolist(), strict=True)))
    links = [lane for lane in used_lanes if lane[1] >= cluster.servers or lane[0] == HOST]
    out: Names = {}
    used: dict[int, int] = {}
    for worker, node in enumerate(cluster.worker_nodes):
        lanes = [(DOWNLINK, s) for s in range(cluster.servers)]
        lanes += [(WORKER, -1), *((UPLINK, s) for s in range(cluster.servers))]
        for resource, server in [*lanes, *links]:
            used[node] = used.get(node, 0) + 1
            name = "compute" if resource == WORKER else str(resource_of(resource, server))
            if server >= cluster.servers:
                name = f"{cluster.link_resource(server)}{_WAYS.get(resource, '')}"
            out[worker, resource, server] = node + 1, used[node], f"worker {worker} {name}"
    for server, node in enumerate(cluster.server_nodes):
        for worker in range(cluster.workers):
            used[node] = used.get(node, 0) + 1
            out[worker, PS, server] = (
                node + 1,
                used[node],
                f"{resource_of(PS, server)} update for worker {worker}",
            )
    return out


def _track_metadata(timeline: Timeline, tracks: Names) -> Iterator[Event]:
    """Metadata events that name the processes and tracks of a trace."""
    cluster = timeline.cluster
    for node, machine in enumerate(cluster.nodes):
        lives = [f"server {s}" for s, at in enumerate(cluster.server_nodes) if at == node]
        lives += [f"worker {w}" for w, at in enumerate(cluster.worker_nodes) if at == node]
        if not lives:  # a port of a device: drawn at the worker
            continue
        name = f"node {node}: {', '.join(lives)}" + (f" ({machine.hardware})" if machine.hardware else "")
        yield _metadata_event("process_name", node + 1, 0, name=name)
        yield _metadata_event("process_sort_index", node + 1, 0, sort_index=node)
    for pid, tid, name in tracks.values():
        yield _metadata_event("thread_name", pid, tid, name=name)
        yield _metadata_event("thread_sort_index", pid, tid, sort_index=tid)


def _metadata_event(kind: str, pid: int, tid: int, **args: Any) -> Event:
    """Metadata (M) event of the trace format."""
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}


def _slice_events(timeline: Timeline, chunks: npt.NDArray[Any], places: Sequence[Event]) -> Iterator[Event]:
    """Complete (X) events for the chunks of one worker; `places` holds the track of each op."""
    profile = timeline.profile
    heads = [
        {"name": name, "cat": RESOURCE_KINDS[resource], "ph": "X"} | place
        for name, resource, place in zip(profile.names, profile.resource.tolist(), places, strict=True)
    ]
    for at in range(0, len(chunks), BATCH):
        rows = chunks[at : at + BATCH]
        start, end = _to_ns(rows["start_s"], timeline), _to_ns(rows["end_s"], timeline)
        columns = (rows["op"].tolist(), _to_us(start), _to_us(end - start), rows["step"].tolist())
        for op, ts, dur, step, size in zip(*columns, rows["bytes"].tolist(), strict=True):
            args = {"step": step, "bytes": round(size)} if size else {"step": step}
            yield {**heads[op], "ts": ts, "dur": dur, "args": args}


def _to_ns(times_s: npt.NDArray[np.float64], timeline: Timeline) -> npt.NDArray[np.float64]:
    """Times in whole nanoseconds since the first chunk. Durations are differences of these, so chunks that
    abut also abut in the trace."""
    return np.round((times_s - timeline.first_s) * 1e9)


def _to_us(whole_ns: npt.NDArray[np.float64]) -> list[float]:
    """Converts nanoseconds to microseconds, the unit of the trace format."""
    return (whole_ns / 1e3).tolist()  # type: ignore[no-any-return]


Arrows = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]  # rows of `mine`: from the transfer, to the op


def _dependency_rows(timeline: Timeline, chunks: npt.NDArray[Any]) -> Arrows:
    """Rows of each transfer's last chunk, and of the first chunk of each dependent op, by step."""
    profile = timeline.profile
    consumer = np.repeat(np.arange(profile.ops), np.diff(profile.dep_start))
    wanted = profile.is_transfer[profile.dep_index]
    producer, consumer = profile.dep_index[wanted], consumer[wanted]
    step = chunks["step"] - int(chunks["step"].min())
    key = step.astype(np.int64) * profile.ops + chunks["op"]
    last = np.full((int(step.max()) + 1) * profile.ops, -1)
    first = last.copy()
    last[key] = np.arange(len(chunks))  # rows are in the order of ends: the last one stays
    first[key[::-1]] = np.arange(len(chunks))[::-1]
    base = np.arange(int(step.max()) + 1)[:, None] * profile.ops
    source, target = last[(base + producer).ravel()], first[(base + consumer).ravel()]
    both = (source >= 0) & (target >= 0)
    return source[both], target[both]


def _flow_events(
    timeline: Timeline, chunks: npt.NDArray[Any], places: Sequence[Event], ids: Iterator[int]
) -> Iterator[Event]:
    """Flow events (arrows) from each transfer to the ops that waited for it."""
    arrows = _dependency_rows(timeline, chunks)
    for at in range(0, len(arrows[0]), BATCH):
        source, target = (chunks[end[at : at + BATCH]] for end in arrows)
        # the last nanosecond of the slice: readers drop an arrow that begins outside one
        left = np.maximum(_to_ns(source["end_s"], timeline) - 1, _to_ns(source["start_s"], timeline))
        came = _to_us(_to_ns(target["start_s"], timeline))
        ops = source["op"].tolist(), target["op"].tolist()
        for first, then, begin_us, end_us, flow in zip(*ops, _to_us(left), came, ids, strict=False):
            arrow = {"name": "needs", "cat": "needs", "id": flow}
            yield {**arrow, "ph": "s", **places[first], "ts": begin_us}
            yield {**arrow, "ph": "f", "bp": "e", **places[then], "ts": end_us}


def _counter_events(timeline: Timeline) -> Iterator[Event]:
    """Counter events for each server NIC and direction: running transfers, and percentage in use."""
    for direction in (DOWNLINK, UPLINK):
        uses = server_nic_use(timeline.rows, timeline.cluster, direction)
        for server, (times_s, active, share) in enumerate(uses):
            link, pid = resource_of(direction, server), timeline.cluster.server_nodes[server] + 1
            head = {"cat": "link", "ph": "C", "pid": pid, "tid": 0}
            times = _to_us(_to_ns(times_s, timeline))
            for ts, running, used in zip(times, active.tolist(), share.tolist(), strict=True):
                yield {**head, "name": f"{link} active transfers", "ts": ts, "args": {"transfers": running}}
                yield {**head, "name": f"{link} use (%)", "ts": ts, "args": {"percent": round(used, 1)}}


def server_nic_use(rows: npt.NDArray[Any], cluster: Cluster, direction: int) -> list[Use]:
    """NIC use of each server over time: event times, number of running transfers, and percentage used. Rates
    are max-min fair with equal weights over the running flows. With one server this is exact, because the sum
    does not depend on how flows share; with several it omits only the unevenness of TCP's shares. A flow
    between a worker and a server on the same node crosses no NIC. Each state is computed once."""
    servers, workers = cluster.servers, cluster.workers
    if servers == 0:
        return []
    to_server = (rows["resource"] == direction) & (rows["server"] < servers)
    flows = rows[to_server & (rows["end_s"] > rows["flow_s"])]
    times = np.concatenate([flows["flow_s"], flows["end_s"]])
    change = np.repeat([1, -1], len(flows))
    server = np.tile(flows["server"], 2)
    # A lane, a worker with a server, carries one transfer at a time: which lanes are busy fits in bits.
    bits: list[Any] = [1 << lane for lane in range(servers * workers)]
    kind = np.int64 if len(bits) < 63 else object
    lane = np.array(bits, kind)[server * workers + np.tile(flows["worker"], 2)]
    order = np.lexsort((change, times))  # at the same moment ends come before starts
    times, change, server, lane = times[order], change[order], server[order], lane[order]
    states, state = np.unique(np.cumsum(change * lane), return_inverse=True)
    percent = np.array([_nic_use_percent(int(lanes), cluster, direction) for lanes in states]).reshape(
        -1, servers
    )
    settled = np.append(times[1:] != times[:-1], True) if len(times) else np.zeros(0, bool)
    out = []
    for here in range(servers):
        active = np.cumsum(np.where(server == here, change, 0))
        share = percent[state, here]
        kept = np.flatnonzero(settled)
        same = (np.diff(active[kept]) == 0) & (np.diff(share[kept]) == 0)
        kept = kept[np.append(True, ~same)] if len(kept) else kept
        out.append((times[kept], active[kept], share[kept]))
    return out


def _nic_use_percent(state: int, cluster: Cluster, direction: int) -> list[float]:
    """Percentage of each server's NIC in use; `state` is a bit mask of the running transfers."""
    down = direction == DOWNLINK
    capacities = [c for n in cluster.nodes for c in (n.egress_bytes_per_s, n.ingress_bytes_per_s)]
    servers, crosses = [], []
    for lane in range(cluster.servers * cluster.workers):
        server, worker = divmod(lane, cluster.workers)
        there, here = cluster.server_nodes[server], cluster.worker_nodes[worker]
        if state >> lane & 1 and there != here:
            servers.append(server)
            crosses.append((2 * there, 2 * here + 1) if down else (2 * here, 2 * there + 1))
    rates = max_min_rates(crosses, [1.0] * len(servers), capacities, cluster.flow_bytes_per_s)
    used = [0.0] * cluster.servers
    for server, rate in zip(servers, rates, strict=True):
        used[server] += rate
    side = 0 if down else 1
    return [100 * used[s] / capacities[2 * node + side] for s, node in enumerate(cluster.server_nodes)]
