"""Profile files: an exact round trip, the schema, and what is refused."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.device.recorded import open_step
from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, OpRole, Profile, files

SCHEMA = Path(__file__).parents[3] / "docs" / "profile.schema.json"
FIELDS = (
    "resource",
    "server",
    "bytes",
    "dep_start",
    "dep_index",
    "tensor",
    "role",
    "durations_s",
    "order",
    "starts_s",
)
ABOUT = ("model", "batch", "servers", "names", "tensors", "hardware", "bandwidth_bytes_per_s", "basis")


def small(**about):
    ops = [
        Op("down", DOWNLINK, 0, 4_000_000, (), 0),
        Op("compute", WORKER, deps=(0,)),
        Op("up", UPLINK, 0, 4_000_000, (1,), 0),
        Op("update", PS, 0, deps=(2,), tensor=0),
    ]
    given = {"model": "tiny", "batch": 8, "tensors": ["w"], "order": [[0, 1, 2, 3]], **about}
    return Profile.build(ops, [[0.1, 0.2, 1 / 3, 1e-9]], **given)


def same(a: Profile, b: Profile) -> bool:
    arrays = all(np.array_equal(getattr(a, f), getattr(b, f)) for f in FIELDS if getattr(a, f) is not None)
    none = all((getattr(a, f) is None) == (getattr(b, f) is None) for f in FIELDS)
    about = all(getattr(a, f) == getattr(b, f) for f in (*ABOUT, "source", "notes"))
    return arrays and none and about


def record(**changes):
    data = json.loads(files.encode(small()))
    data.update(changes)
    return json.dumps(data).encode()


@pytest.mark.parametrize("name", ["p.json.gz", "p.json", "p"])
def test_round_trip_through_a_file_is_exact_and_repeatable(tmp_path, name):
    profile = small(starts_s=[[0, 0.1, 0.3, 0.7]], bandwidth_bytes_per_s=1.25e9, notes=("a", "b"), source="x")
    files.save(profile, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert same(profile, files.load(tmp_path / name))
    files.save(files.load(tmp_path / name), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert os.listdir(tmp_path) == [name]
    assert (first[:2] == b"\x1f\x8b") == (not name.endswith(".json"))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0, 1e8, allow_subnormal=True), min_size=4, max_size=4),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.isprintable),
)
def test_any_duration_and_any_name_survive(durations, name):
    profile = Profile.build(
        [Op(name, WORKER), *(Op(f"{name}{i}", WORKER, deps=(i,)) for i in range(3))],
        [durations],
        model=name,
        batch=1,
    )
    assert same(profile, files.decode(files.encode(profile)))


def ordered(schema):
    """A schema with its alternatives in one order: msgspec names them in another with each release."""
    if isinstance(schema, dict):
        by_name = {name: ordered(value) for name, value in schema.items()}
        return by_name | ({"anyOf": sorted(by_name["anyOf"], key=json.dumps)} if "anyOf" in by_name else {})
    return [ordered(value) for value in schema] if isinstance(schema, list) else schema


def test_schema_in_the_docs_is_the_one_in_the_code_and_accepts_what_we_write():
    import jsonschema

    schema = json.loads(SCHEMA.read_text())
    assert ordered(schema) == ordered(json.loads(files.schema()))
    jsonschema.validate(json.loads(files.encode(small(starts_s=[[0, 1, 2, 3]]))), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(record(batch=0)), schema)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "planner profile import"),
        ({"version": 2}, "version 2"),
        ({"batch": 0}, r"\$\.batch"),
        ({"batch": 2**53 + 1}, r"\$\.batch"),
        ({"bach": 1}, "bach"),
        ({"servers": 0}, r"\$\.servers"),
        ({"durations_s": [[1, 2]]}, "2 values for 4 ops"),
        ({"durations_s": [[1, 2, 3, -1]]}, "durations_s"),
        ({"durations_s": []}, "durations_s"),
        ({"starts_s": [[0, 0, 0, 0], [0, 0, 0, 0]]}, "starts"),
        ({"order": [[0, 1, 2, 2**31]]}, "order"),
        ({"ops": []}, "ops"),
        ({"bandwidth_bytes_per_s": 0}, "bandwidth"),
    ],
)
def test_wrong_value_is_named(changes, message):
    with pytest.raises(BadInput, match=message) as caught:
        files.decode(record(**changes), "some.json")
    assert "some.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def changed(index, **changes):
    ops = json.loads(files.encode(small()))["ops"]
    ops[index].update(changes)
    return record(ops=ops)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(0, bytes=2**53 + 1), r"ops\[.*bytes"),
        (changed(0, bytes=0), "at least one"),
        (changed(0, server=3), "server 3"),
        (changed(0, deps=[3]), "cycle"),
        (changed(0, deps=[4]), "outside"),
        (changed(1, name="down"), "twice"),
        (changed(1, resource="gpu"), "gpu"),
        (changed(1, tensor=1), "tensor 1 of 1"),
        (record().replace(b"0.2", b"NaN"), "malformed|invalid"),
        (record().replace(b"0.2", b"1e999"), "range"),
        (record()[:-9], "truncated"),
        pytest.param(b'{"a":' + b"[" * 100_000, "nested too deeply", id="deep"),
        (b"[1, 2]", "not a profile"),
        (b"\xff\xfe", "not a profile"),
        (b'{"format": "\xff"}', "utf-8|UTF-8|malformed|invalid"),
    ],
)
def test_wrong_graph_or_wrong_json_is_refused(data, message):
    with pytest.raises(BadInput, match=message):
        files.decode(data)


def test_profile_of_version_1_is_read():
    """Written at 6e295aa from the recorded steps of tests/data/tensorflow, and simulated there."""
    load = files.load(Path(__file__).parents[2] / "data" / "profile_v1.json.gz")
    assert (load.model, load.batch, load.ops, load.steps, len(load.tensors)) == (
        "alexnet",
        64,
        65,
        2,
        16,
    )
    cluster = planner.Cluster.uniform(4, 1, 25e6)
    prediction = planner.simulate_profile(load, cluster, seed=3, precision=0.05, max_steps=300)
    assert prediction.samples_per_s == pytest.approx(543.5193921110916, rel=0.002)


def test_gzip_trouble_is_told_apart(tmp_path):
    path = tmp_path / "p.json.gz"
    packed = gzip.compress(files.encode(small()))
    for data, message in (
        (packed[:-20], "cut off"),
        (packed[:30] + b"\0" * 30 + packed[60:], "damaged"),
        (b"", "empty"),
    ):
        path.write_bytes(data)
        with pytest.raises(BadInput, match=message):
            files.load(path)
    with pytest.raises(BadInput, match="cannot read"):
        files.load(tmp_path / "none")
    with pytest.raises(BadInput, match="cannot read"):
        files.load(tmp_path)


def test_gzip_bomb_stops_at_the_limit(tmp_path):
    from planner.files.regular_file import read_bytes

    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * 3_000_000))
    with pytest.raises(BadInput, match="more than"):
        read_bytes(tmp_path / "bomb.gz", max_bytes=1_000_000)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.json.gz"
    files.save(small(), path)
    before = path.read_bytes()

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(KeyboardInterrupt):
        files.save(small(model="other"), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["p.json.gz"]


@pytest.mark.parametrize(
    ("kept", "lacks"),
    [
        ((DOWNLINK,), "it has no upload of gradients"),
        ((WORKER, UPLINK, PS), "it has no download of parameters"),
        ((DOWNLINK, UPLINK, PS), "its worker computes 0 s in a step"),
    ],
)
def test_profile_that_is_no_training_step_is_not_simulated(tmp_path, kept, lacks):
    whole = json.loads(files.encode(small()))
    names = tuple(name for at, name in enumerate(("downlink", "worker", "uplink", "ps")) if at in kept)
    chosen = [at for at, op in enumerate(whole["ops"]) if op["resource"] in names]
    whole["ops"] = [{**whole["ops"][at], "deps": []} for at in chosen]
    for table in ("durations_s", "order"):
        whole[table] = [[row[at] for at in chosen] for row in whole[table]]
    (tmp_path / "p.json").write_text(json.dumps(whole))
    assert files.load(tmp_path / "p.json").ops == len(chosen)  # which can be shown
    with pytest.raises(BadInput, match=lacks):
        open_step(tmp_path / "p.json")


def test_times_that_are_no_times_are_not_simulated(tmp_path):
    """1e-320 s overflow what is divided by them; a microsecond is allowed."""
    for computing_s, taken in ((0.0, False), (1e-320, False), (9e-7, False), (1e-6, True)):
        (tmp_path / "p.json").write_bytes(record(durations_s=[[0.1, computing_s, 0.1, 0.1]]))
        if taken:
            assert open_step(tmp_path / "p.json").steps == 1
        else:
            with pytest.raises(BadInput, match="durations are in seconds"):
                open_step(tmp_path / "p.json")
    # of every step
    two = record(durations_s=[[0.1] * 4, [0.1, 0, 0.1, 0.1]], order=[[0, 1, 2, 3]] * 2)
    (tmp_path / "p.json").write_bytes(two)
    with pytest.raises(BadInput, match="computes 0 s in a step"):
        open_step(tmp_path / "p.json")


def test_parsed_profile_is_kept() -> None:
    ops = [
        Op("w/down", DOWNLINK, 0, 8, tensor=0),
        Op("turned", WORKER, deps=(0,), role=OpRole.PARSE),
        Op("loss", WORKER, deps=(1,)),
    ]
    profile = Profile.build(ops, [[0.0, 0.1, 0.2]], model="m", batch=1, tensors=("w",))
    data = files.encode(profile)
    assert files.decode(data).is_parsing.tolist() == [False, True, False]


def test_roles_and_buckets_are_kept() -> None:
    roles = [OpRole.OTHER, OpRole.FORWARD, OpRole.BACKWARD, OpRole.OTHER, OpRole.OPTIMIZER]
    names = ["download/bucket_0", "forward/a_0", "fc/backward", "upload/bucket_0", "update/bucket_0"]
    kinds = [DOWNLINK, WORKER, WORKER, UPLINK, PS]
    ops = [
        Op(name, kind, -1 if kind == WORKER else 0, 8 if kind in (DOWNLINK, UPLINK) else 0, role=role)
        for name, kind, role in zip(names, kinds, roles, strict=True)
    ]
    told = {"model": "m", "batch": 1, "tensors": ("bucket_0",)}
    profile = Profile.build(ops, [[0.1] * 5], buckets=True, **told)
    again = files.decode(files.encode(profile))
    assert again.role.tolist() == roles
    assert again.buckets
    servers = Profile.build([*ops[:4], Op("w/update", PS, 0)], [[0.1] * 5], **told | {"tensors": ("w",)})
    again = files.decode(files.encode(servers))
    assert again.role.tolist() == [*roles[:4], OpRole.OTHER]
    assert not again.buckets
