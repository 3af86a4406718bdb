"""RunMetadata of real distributed training (TensorFlow 2.21, one worker, 1 and 2 servers) as profiles."""

import contextlib
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from planner.device.recorded.importers import import_profile
from planner.errors import BadInput
from planner.files.regular_file import read_bytes
from planner.servers.tensorflow import profile as tensorflow
from planner.servers.tensorflow import runmetadata
from planner.servers.tensorflow.graph import (
    RecordedNode,
    RecordedSpan,
    RecordedTransfer,
    Recording,
    Task,
    add_op,
    insert_transfers,
    profile_op_deps,
    restore_lost_transfers,
)
from planner.servers.tensorflow.profile import dispatch_gaps, shared_durations
from planner.simulator.step import DOWNLINK, PS, RESOURCE_KINDS, UPLINK, WORKER

DATA = Path(__file__).parents[2] / "data" / "tensorflow"
ONE = [DATA / f"alexnet_ps1_step{k}.pb.gz" for k in range(3)]
TWO = [DATA / f"vgg11_ps2_step{k}.pb.gz" for k in range(2)]


def expected(name):
    with gzip.open(DATA / f"{name}_expected.json.gz") as file:
        return json.load(file)


def dependencies(profile):
    return {
        name: (
            RESOURCE_KINDS[profile.resource[i]],
            int(profile.server[i]),
            int(profile.bytes[i]),
            frozenset(profile.names[d] for d in profile.deps(i)),
            profile.tensors[profile.tensor[i]] if profile.tensor[i] >= 0 else None,
        )
        for i, name in enumerate(profile.names)
    }


@pytest.mark.parametrize(("files", "name"), [(ONE, "alexnet_ps1"), (TWO, "vgg11_ps2")])
def test_ops_bytes_dependencies_and_durations_are_those_of_an_independent_reader(files, name):
    steps = [runmetadata.read_run_metadata(read_bytes(path), path.name) for path in files]
    profile = tensorflow.build_profile(steps, batch=4, model="x", dispatch=False)
    truth = expected(name)
    ops = truth["ops"]
    wanted = {op["name"] for op in ops if op["kind"] != "control"}
    assert set(profile.names) == wanted
    result = dependencies(profile)
    for column, op in enumerate(ops):
        if op["kind"] == "control":
            continue
        resource, server, size, deps, _ = result[op["name"]]
        assert op["resource"] in (resource, f"{resource}{server}")
        assert size == op.get("bytes", 0)
        assert deps == {ops[d]["name"] for d in op["deps"]}
        i = profile.names.index(op["name"])
        for step, durations in enumerate(truth["durations_us"]):
            if durations[column] is not None:
                assert round(profile.durations_s[step, i] * 1e6) == durations[column]


def test_time_to_dispatch_an_op_is_part_of_it():
    steps = [runmetadata.read_run_metadata(read_bytes(path), path.name) for path in ONE]
    raw = tensorflow.build_profile(steps, batch=4, model="x", dispatch=False)
    whole = tensorflow.build_profile(steps, batch=4, model="x")
    ends = raw.starts_s + raw.durations_s
    assert np.allclose(whole.starts_s + whole.durations_s, ends)
    worker = np.flatnonzero(raw.resource == WORKER).tolist()
    assert np.array_equal(np.delete(whole.durations_s, worker, 1), np.delete(raw.durations_s, worker, 1))
    before = -1
    for i in worker:  # a chain here: each starts when the one before and its own inputs are done
        ready = ends[:, raw.deps(i)].max(axis=1)
        ready = np.minimum(ready if before < 0 else np.maximum(ready, ends[:, before]), raw.starts_s[:, i])
        assert np.allclose(whole.starts_s[:, i], ready)
        before = i
    assert 0 < whole.durations_s[:, worker].sum() / raw.durations_s[:, worker].sum() - 1 < 0.1


def test_dispatch_gaps_by_hand():
    starts = np.array([[0.0, 5.0, 6.0, 20.0, 30.0]])
    ends = np.array([[4.0, 9.0, 8.0, 21.0, 31.0]])
    gaps = dispatch_gaps(starts, ends, np.array([0, 1, 2, 4]), [(), (0,), (0,), (3,)])
    # nothing is known before the first; 4 to 5; it overlaps with the one before; 21 to 30
    assert gaps.tolist() == [[0.0, 1.0, 0.0, 9.0]]


def test_one_server_has_sixteen_tensors_each_downloaded_uploaded_and_updated():
    profile = import_profile(ONE, batch=4, model="alexnet", bandwidth_bytes_per_s=25e6)
    assert (profile.steps, profile.servers, len(profile.tensors), profile.ops) == (3, 1, 16, 65)
    for tensor in range(16):
        resources = sorted(profile.resource[profile.tensor == tensor].tolist())
        assert resources == [DOWNLINK, UPLINK, PS]
    sizes = profile.bytes[profile.resource == DOWNLINK].sum(), profile.bytes[profile.resource == UPLINK].sum()
    assert sizes == (2_400_008, 2_400_008)
    assert "learning_rate" in " ".join(profile.notes)
    assert (profile.model, profile.batch, profile.basis) == ("alexnet", 4, "measured")
    assert profile.source.startswith("TensorFlow RunMetadata: alexnet_ps1_step0")


def test_two_servers_keep_their_numbers_and_control_edges_go():
    profile = import_profile(TWO, batch=8)
    assert profile.servers == 2
    share = [int(profile.bytes[(profile.resource == DOWNLINK) & (profile.server == s)].sum()) for s in (0, 1)]
    assert share == [1_925_484, 474_516]
    assert not any("NoOp" in name for name in profile.names)
    assert any("2 transfers without bytes" in note for note in profile.notes)
    assert (profile.server[profile.resource == WORKER] == -1).all()


def without_graphs(path):
    """The file as FULL_TRACE alone writes it: RunMetadata's field 3, the partition graphs, taken out."""
    from planner.files.protobuf import iterate_fields

    data, out, at = read_bytes(path), b"", 0
    for number, _, _, end in iterate_fields(data, 0, len(data)):
        out += data[at:end] if number != 3 else b""
        at = end
    return out


@pytest.mark.parametrize("files", [ONE, TWO])
def test_without_partition_graphs_the_labels_give_the_same_graph(files, tmp_path):
    bare = []
    for k, path in enumerate(files):
        bare.append(tmp_path / f"{k}.pb")
        bare[-1].write_bytes(without_graphs(path))
    whole, labels = import_profile(files, batch=4), import_profile(bare, batch=4)
    assert dependencies(labels) == dependencies(whole)
    assert any("labels" in note for note in labels.notes)
    mixed = import_profile([bare[0], *files[1:]], batch=4)
    assert dependencies(mixed) == dependencies(whole)
    assert not any("labels" in note for note in mixed.notes)


def test_order_is_that_of_sending_in_each_step():
    profile = import_profile(ONE, batch=4)
    down = np.flatnonzero(profile.resource == DOWNLINK)
    assert sorted(profile.order[0].tolist()) == list(range(profile.ops))
    assert not np.array_equal(profile.order[0, down].argsort(), profile.order[1, down].argsort())
    ends = profile.starts_s + profile.durations_s
    big = int(down[np.argmax(profile.bytes[down])])
    for step in range(3):
        before = down[profile.order[step, down] < profile.order[step, big]]
        # whoever was sent before the largest tensor had arrived before half of it was through
        assert (ends[step, before] < ends[step, big] - 0.5 * profile.bytes[big] / 25e6).all()


def test_lost_record_is_filled_with_the_median_and_said():
    steps = [runmetadata.read_run_metadata(read_bytes(path), path.name) for path in ONE]
    edge = "edge_64_gradients/affine0/bwd/compute"
    others = [step.transfers[edge].span for step in steps[1:]]
    del steps[0].transfers[edge]
    profile = tensorflow.build_profile(steps, batch=4, model="x")
    i = profile.names.index(edge)
    mean = sum(span.end_us - span.start_us for span in others) / 2 * 1e-6
    assert profile.durations_s[0, i] == pytest.approx(mean)
    assert any("1 of 195 records were lost" in note for note in profile.notes)


def test_transfer_recorded_in_no_step_gets_the_size_of_its_variable():
    step = runmetadata.read_run_metadata(read_bytes(ONE[0]), "x")
    edge = "edge_64_gradients/affine0/bwd/compute"
    del step.transfers[edge]
    profile = tensorflow.build_profile([step], batch=4, model="x")
    i = profile.names.index(edge)
    assert (profile.bytes[i], profile.durations_s[0, i]) == (1_464_968, 0)
    assert profile.resource[i] == UPLINK
    assert any("recorded in no step" in note for note in profile.notes)


def test_sizes_come_from_labels_if_there_is_nothing_better():
    step = runmetadata.read_run_metadata(read_bytes(ONE[0]), "x")
    for edge, transfer in step.transfers.items():
        step.transfers[edge] = transfer._replace(bytes=None)
    profile = tensorflow.build_profile([step], batch=4, model="x")
    assert profile.bytes[profile.names.index("edge_35_affine0/weights/read")] == 1_400_000
    assert any("rounded" in note for note in profile.notes)


def test_kernels_of_a_gpu_replace_the_time_of_launching_them():
    def message(*parts):
        return b"".join(parts)

    def field(number, value):
        if isinstance(value, int):
            return bytes([number << 3]) + varint(value)
        return bytes([number << 3 | 2]) + varint(len(value)) + value

    def varint(value):
        out = b""
        while value > 0x7F:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    def node(name, start, end, label=b""):
        return field(2, field(1, name) + field(2, start) + field(4, end) + field(5, end) + field(8, label))

    worker = b"/job:worker/replica:0/task:0/device:GPU:0"
    data = field(
        1,
        message(
            field(1, field(1, worker + b"/stream:all") + node(b"conv:Conv2D", 1100, 700)),
            field(1, field(1, worker) + node(b"conv", 1000, 5, b"conv = Conv2D(a, b)")),
            field(1, field(1, worker + b"/stream:13") + node(b"conv:Conv2D", 1100, 700)),
        ),
    )
    step = runmetadata.read_run_metadata(data, "gpu")
    assert step.ran == {"conv": RecordedSpan(1100, 1800)}
    assert step.on_gpu == {"conv"}
    assert step.graph["conv"] == RecordedNode("Conv2D", worker.decode(), ("a", "b"))


@pytest.mark.parametrize("cut", [1, 10, 1000, 30_000, 60_000])
def test_truncated_file_is_told_from_a_whole_one(tmp_path, cut):
    (tmp_path / "cut.pb").write_bytes(read_bytes(ONE[0])[:-cut])
    with pytest.raises(BadInput, match=r"truncated.*FULL_TRACE"):
        import_profile([tmp_path / "cut.pb"], batch=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "not a TensorFlow RunMetadata"),
        (b"root:x:0:0:root:/root:/bin/bash\n", "not a TensorFlow RunMetadata"),
        (b"\x12\x03abc", "without step_stats"),  # a protobuf of something else
        (b'{"a": 1}', "neither a PyTorch profiler trace nor a TensorFlow timeline"),
        (b'{"format": "planner-profile"}', "already"),
    ],
)
def test_foreign_file_is_refused(tmp_path, content, message):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        import_profile([tmp_path / "f"], batch=4)


def test_several_steps_in_one_file_are_refused(tmp_path):
    (tmp_path / "two.pb").write_bytes(read_bytes(ONE[0]) + read_bytes(ONE[1]))  # protobufs merge so
    with pytest.raises(BadInput, match="several steps in one file"):
        import_profile([tmp_path / "two.pb"], batch=4)


def test_timeline_lacks_what_is_needed_and_the_message_says_what():
    with pytest.raises(BadInput, match=r"RecvTensor records name no tensor, size or source.*RunMetadata"):
        import_profile([DATA / "timeline.json.gz"], batch=4)


def test_trace_without_transfers_is_refused():
    step = Recording("local.pb")
    add_op(step, "a", "/job:localhost/replica:0/task:0/device:CPU:0", "a = MatMul(b)", RecordedSpan(0, 10))
    with pytest.raises(BadInput, match="no transfer between a worker and a parameter server"):
        tensorflow.build_profile([step], batch=4, model="x")


def jumped(step, name, microseconds):
    span = step.ran[name]
    step.ran[name] = RecordedSpan(span.start_us + microseconds, span.end_us + microseconds)
    return step


def test_clock_that_jumps_is_noticed():
    def step():
        return runmetadata.read_run_metadata(read_bytes(ONE[0]), "x.pb")

    with pytest.raises(BadInput, match="clock of that device jumped"):
        tensorflow.build_profile([jumped(step(), "conv1/fwd/compute", -20_000)], batch=4, model="x")
    with pytest.raises(BadInput, match=r"lasts 7\d\d\d s.*clock jumped"):
        tensorflow.build_profile([jumped(step(), "conv1/fwd/compute", 7_200_000_000)], batch=4, model="x")


def test_steps_of_different_graphs_and_kinds_do_not_mix():
    with pytest.raises(BadInput, match="many ops of the other files are missing"):
        import_profile([ONE[0], TWO[0]], batch=4)
    with pytest.raises(BadInput, match="import files of one kind"):
        import_profile([ONE[0], DATA / "timeline.json.gz"], batch=4)
    with pytest.raises(BadInput, match="batch is 0"):
        import_profile(ONE, batch=0)
    with pytest.raises(BadInput, match="at least one"):
        import_profile([], batch=1)


def device(task):
    job, _, number = task.partition(":")
    return f"/job:{job}/replica:0/task:{number}/device:CPU:0"


def transfer(source, target, size):
    return RecordedTransfer(device(source), device(target), size, size, RecordedSpan(0, 10))


def test_several_workers_and_servers_without_a_name_are_refused():
    two = {"a": transfer("ps:0", "worker:0", 4), "b": transfer("ps:0", "worker:1", 4)}
    with pytest.raises(BadInput, match=r"several workers \(worker:0, worker:1\)"):
        tensorflow.build_profile([Recording("x", transfers=two)], batch=1, model="x")
    none = {"a": transfer("chief:0", "worker:0", 4)}
    with pytest.raises(BadInput, match="a job 'ps' and a worker are needed"):
        tensorflow.build_profile([Recording("x", transfers=none)], batch=1, model="x")


def test_loops_and_transfers_between_servers():
    """A loop's way back is no dependency; what passes between servers is carried through."""
    graph = {
        "v": RecordedNode("VariableV2", device("ps:0"), ()),
        "s": RecordedNode("_Send", device("ps:0"), ("v",), "edge_1_v"),
        "r": RecordedNode("_Recv", device("ps:1"), (), "edge_1_v"),
        "double": RecordedNode("Mul", device("ps:1"), ("r",)),
        "s2": RecordedNode("_Send", device("ps:1"), ("double",), "edge_2_double"),
        "r2": RecordedNode("_Recv", device("worker:0"), (), "edge_2_double"),
        "enter": RecordedNode("Enter", device("worker:0"), ("r2",)),
        "merge": RecordedNode("Merge", device("worker:0"), ("enter", "next")),
        "body": RecordedNode("MatMul", device("worker:0"), ("merge",)),
        "next": RecordedNode("NextIteration", device("worker:0"), ("body",)),
    }
    step = Recording("x", graph=graph, complete=True)
    step.transfers = {
        "edge_1_v": transfer("ps:0", "ps:1", 40),
        "edge_2_double": transfer("ps:1", "worker:0", 40),
    }
    step.ran = {"double": RecordedSpan(0, 5), "body": RecordedSpan(20, 30)}
    profile = tensorflow.build_profile([step], batch=1, model="x")
    assert dependencies(profile) == {
        "double": ("ps", 1, 0, frozenset(), None),
        "body": ("worker", -1, 0, frozenset({"edge_2_double"}), None),
        "edge_2_double": ("downlink", 1, 40, frozenset({"double"}), None),
    }
    assert any("between servers" in note for note in profile.notes)


def test_restoring_needs_nothing_where_nothing_is_lost():
    step = runmetadata.read_run_metadata(read_bytes(ONE[0]), "x")
    graph = insert_transfers(step, step.transfers)
    assert restore_lost_transfers(graph, step.transfers) == []
    kept = profile_op_deps(graph, step.transfers, step.ran, Task("worker", 0), [])
    assert len(kept) == 65


def test_time_of_overlapping_ops_is_shared():
    starts, ends = np.array([0.0, 0.0, 10.0, 20.0]), np.array([4.0, 8.0, 12.0, 20.0])
    assert shared_durations(starts, ends).tolist() == [2.0, 6.0, 2.0, 0.0]
    rng = np.random.default_rng(1)
    starts = rng.uniform(0, 10, 50)
    ends = starts + rng.uniform(0, 3, 50)
    times = np.linspace(0, 14, 200_001)
    busy = np.mean(np.any((times[:, None] >= starts) & (times[:, None] < ends), axis=1)) * 14
    assert shared_durations(starts, ends).sum() == pytest.approx(busy, rel=1e-3)


def test_no_damage_to_a_file_gives_anything_but_a_profile_or_a_sentence(tmp_path):
    rng = random.Random(7)
    path = tmp_path / "f.pb"
    original = read_bytes(ONE[0])
    accepted = 0
    for _ in range(60):
        data = bytearray(original)
        for _ in range(rng.choice((1, 3, 30))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        with contextlib.suppress(BadInput):
            import_profile([path], batch=4)
            accepted += 1
    assert 0 < accepted < 50
