"""Chrome traces against the fields that the format requires, and against the timeline they are made of."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from report_answers import simulated

from planner.answers.timeline import simulate_window, timeline_of
from planner.report.chrome import server_nic_use, write_chrome
from planner.simulator.cluster import FABRIC, Cluster, Node
from planner.simulator.policy import Fifo
from planner.simulator.simulate import Case
from planner.simulator.step import DOWNLINK, HOST, UPLINK, WORKER, Op, Profile

REQUIRED = {  # Trace Event Format, by phase
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
    "C": {"name", "cat", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
}


@pytest.fixture(scope="module")
def timeline():
    result = simulated()
    return timeline_of(result.request, result.scored.plan, steps=2)


@pytest.fixture(scope="module")
def trace(timeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "out.json"
    write_chrome(timeline, path)
    return json.loads(path.read_text())


def by_phase(trace):
    out = defaultdict(list)
    for event in trace["traceEvents"]:
        out[event["ph"]].append(event)
    return out


def test_every_event_has_the_fields_that_its_phase_requires(trace):
    phases = by_phase(trace)
    assert set(phases) == set(REQUIRED)
    for phase, events in phases.items():
        for event in events:
            assert set(event) >= REQUIRED[phase]
            assert event.get("ts", 0) >= 0
            assert event.get("dur", 0) >= 0
            assert isinstance(event["pid"], int)


def test_one_process_a_node_and_one_track_a_resource(trace, timeline):
    cluster = timeline.cluster
    meta = by_phase(trace)["M"]
    processes = {e["pid"]: e["args"]["name"] for e in meta if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in meta if e["name"] == "thread_name"}
    assert len(processes) == len(cluster.nodes)
    assert len(set(tracks.values())) == len(tracks) == cluster.workers * (2 + 3 * cluster.servers)
    assert {(e["pid"], e["tid"]) for e in by_phase(trace)["X"]} <= set(tracks)
    assert "server 0" in processes[cluster.server_nodes[0] + 1]


def test_slices_are_the_chunks_and_do_not_overlap_on_a_track(trace, timeline):
    slices = by_phase(trace)["X"]
    assert len(slices) == len(timeline.rows)
    sent = sum(event["args"].get("bytes", 0) for event in slices)
    assert sent == pytest.approx(timeline.rows["bytes"].sum(), abs=len(slices))
    tracks = defaultdict(list)
    for event in slices:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 0.002  # rounded to nanoseconds


def test_arrow_goes_from_a_transfer_to_an_op_that_waited_for_it(trace, timeline):
    phases = by_phase(trace)
    leaves = {event["id"]: event for event in phases["s"]}
    comes = {event["id"]: event for event in phases["f"]}
    assert leaves.keys() == comes.keys()
    assert len(leaves) == len(phases["s"]) == len(phases["f"]) > 0
    slices = defaultdict(list)
    for event in phases["X"]:
        slices[event["pid"], event["tid"]].append(event)
    profile = timeline.profile
    pairs = {
        (profile.names[dep], profile.names[op])
        for op in range(profile.ops)
        for dep in profile.deps(op)
        if profile.is_transfer[dep]
    }
    for number, leave in leaves.items():
        come = comes[number]
        assert come["ts"] >= leave["ts"]
        sources = [
            event["name"]
            for event in slices[leave["pid"], leave["tid"]]
            if event["ts"] <= leave["ts"] <= event["ts"] + event["dur"]
        ]
        targets = [event["name"] for event in slices[come["pid"], come["tid"]] if event["ts"] == come["ts"]]
        assert any((a, b) in pairs for a in sources for b in targets)


def test_counters_stay_within_the_link_and_return_to_zero(trace, timeline):
    counters = by_phase(trace)["C"]
    names = {event["name"] for event in counters}
    assert names == {
        f"{way}[{s}] {what}"
        for way in ("downlink", "uplink")
        for s in range(timeline.cluster.servers)
        for what in ("active transfers", "use (%)")
    }
    for event in counters:
        (value,) = event["args"].values()
        assert 0 <= value <= (100.05 if "use" in event["name"] else timeline.cluster.workers)
    for name in names:
        assert list([e for e in counters if e["name"] == name][-1]["args"].values()) == [0]


@pytest.mark.parametrize("direction", [DOWNLINK, UPLINK])
def test_link_counters_equal_sent_bytes(timeline, direction):
    """The area under the use of all links is the bytes of the chunks."""
    rows, cluster = timeline.rows, timeline.cluster
    sent = rows["bytes"][rows["resource"] == direction].sum()
    carried = 0.0
    for server, (times, _, percent) in enumerate(server_nic_use(rows, cluster, direction)):
        node = cluster.nodes[cluster.server_nodes[server]]
        rate = node.egress_bytes_per_s if direction == DOWNLINK else node.ingress_bytes_per_s
        carried += float((np.diff(times) * percent[:-1]).sum()) / 100 * rate
    assert carried == pytest.approx(sent, rel=0.03)  # shares are uneven where flows of several servers meet


def test_timeline_can_be_gzipped_and_says_what_it_is_of(timeline, trace, tmp_path):
    path = tmp_path / "out.json.gz"
    write_chrome(timeline, path)
    assert json.loads(gzip.decompress(path.read_bytes())) == trace
    assert trace["otherData"]["model"] == "alexnet"
    assert trace["otherData"]["steps of worker 0"] == f"{timeline.step} to {timeline.step + 1}"


def test_window_holds_whole_steps_of_worker_0(timeline):
    rows = timeline.rows
    for step in (timeline.step, timeline.step + 1):
        mine = rows[(rows["worker"] == 0) & (rows["step"] == step)]
        assert set(mine["op"].tolist()) == set(range(timeline.profile.ops))
    assert (rows["resource"] == WORKER).any()


def test_links_hosts_and_joint_ops_have_tracks_with_names(tmp_path):
    ops = [
        Op("backward", WORKER),
        Op("pack", HOST, deps=(0,)),
        Op("all-reduce", UPLINK, 0, 200, (1,), scope=0),
        Op("optimizer", WORKER, deps=(2,)),
    ]
    profile = Profile.build(ops, [[1.0, 0.5, 0.0, 0.5]], model="m", batch=1, servers=1)
    cluster = Cluster(
        (Node(100.0, 100.0), *(Node(100.0, 100.0),) * 2),
        (0, 0),
        (),
        links=(((1, 2),), ((2, 1),)),
        link_resources=(FABRIC,),
        leaders=((0, 0),),
    )
    drawn = simulate_window(Case(profile=profile, cluster=cluster, policy=Fifo()), seed=0, steps=2, facts={})
    write_chrome(drawn, tmp_path / "out.json")
    phases = by_phase(json.loads((tmp_path / "out.json").read_text()))
    tracks = {e["tid"]: e["args"]["name"] for e in phases["M"] if e["name"] == "thread_name"}
    assert set(tracks.values()) == {
        f"worker {w} {what}" for w in (0, 1) for what in ("compute", "fabric out", "host")
    }
    assert {tracks[e["tid"]] for e in phases["X"] if e["name"] == "all-reduce"} == {"worker 0 fabric out"}
