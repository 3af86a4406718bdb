"""Readers return an object or raise one of planner's errors in one line, for any file."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/robustness"))

from fuzz import CORPUS, Fuzzer, fuzz  # noqa: E402
from mutations import mutate, toml  # noqa: E402
from readers import READERS  # noqa: E402

from planner.device.recorded.importers import import_profile  # noqa: E402
from planner.errors import BadInput, PlannerError  # noqa: E402
from planner.files.regular_file import read_bytes  # noqa: E402
from planner.simulator.step.files import load  # noqa: E402

KEPT = sorted(CORPUS.glob("*/*"))


def read_or_refused(reader, path):
    try:
        reader.read(path)
    except PlannerError as refusal:
        error = refusal
    else:
        return
    assert "\n" not in str(error).strip()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_inputs_that_once_failed_are_read_or_refused(path, tmp_path):
    read_or_refused(READERS[path.parent.name], Path(shutil.copy(path, tmp_path)))


@pytest.mark.parametrize("name", READERS)
def test_seeds_are_read(name, tmp_path):
    """Mutations of unreadable seeds would test nothing."""
    read = 0
    for data in READERS[name].seeds():
        path = tmp_path / f"x{READERS[name].suffix}"
        path.write_bytes(data)
        try:
            READERS[name].read(path)
            read += 1
        except PlannerError:
            pass
    assert read >= 1


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    fuzzer = Fuzzer(name, str(tmp_path), slow_s=10.0, keep=False)
    before = dict(os.environ)
    fuzz(fuzzer, 60 if name in ("run_metadata", "pytorch") else 200, seed=1)
    assert dict(os.environ) == before  # what comes after reads its own files
    assert not fuzzer.failures
    assert fuzzer.ends["refused"] > 0


@pytest.mark.parametrize("name", ["model", "hardware", "config", "profile", "pytorch", "priorities"])
def test_damage_chosen_by_hypothesis_is_read_or_refused(name, tmp_path):
    reader, path = READERS[name], tmp_path / f"x{READERS[name].suffix}"

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.randoms(use_true_random=False), st.sampled_from(reader.seeds()))
    def check(random, data):
        path.write_bytes(mutate(data, reader.form, random))
        read_or_refused(reader, path)

    check()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("name", READERS)
def test_any_value_of_a_known_key_is_read_or_refused(name, tmp_path):
    """Known keys with values of any type."""
    reader, path = READERS[name], tmp_path / f"x{READERS[name].suffix}"
    if reader.form not in ("json", "toml"):
        trees = st.binary(max_size=200)
    else:
        parse = json.loads if reader.form == "json" else lambda text: tomllib.loads(text.decode())
        read = [parse(seed) for seed in reader.seeds() if seed[:2] != b"\x1f\x8b"]
        seeds = [seed for seed in read if isinstance(seed, dict)]
        keys = st.sampled_from(sorted({key for seed in seeds for key in seed}))
        trees = st.tuples(st.sampled_from(seeds), st.dictionaries(keys, values, max_size=2)).map(
            lambda pair: {**pair[0], **pair[1]}
        )

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(trees)
    def check(tree):
        text = tree if isinstance(tree, bytes) else toml(tree) if reader.form == "toml" else json.dumps(tree)
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        read_or_refused(reader, path)

    check()


def written(path, data):
    path.write_bytes(data)
    return path


def profile_with(**changes):
    return json.dumps({**json.loads(READERS["profile"].seeds()[1]), **changes}).encode()


def ops_with(**changes):
    ops = json.loads(READERS["profile"].seeds()[1])["ops"]
    return profile_with(ops=[{**ops[0], **changes}, *ops[1:]])


TRAPS = {
    "bytes beyond 2^53": (ops_with(bytes=2**53 + 1), "2"),
    "all bytes beyond 2^53": (
        profile_with(ops=[{**op, "bytes": 2**52} for op in json.loads(READERS["profile"].seeds()[1])["ops"]]),
        r"2\*\*53",
    ),
    "negative duration": (profile_with(durations_s=[[-1, 0, 0, 0, 0, 0, 0]]), ">= 0"),
    "not a number": (READERS["profile"].seeds()[1].replace(b"1.0", b"NaN"), "malformed"),
    "thirty years": (profile_with(durations_s=[[1e10, 0, 0, 0, 0, 0, 0]]), "in seconds"),
    "a cycle": (ops_with(deps=[6]), "cycle"),
    "an op twice": (ops_with(name="fwd"), "twice"),
    "nested without end": (b'{"format":' + b"[" * 100_000, "recursion|expected|nested|str"),
    "an op of a server that is not there": (ops_with(server=7), "server 7 of 2"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_load_refuses_traps_of_profiles(trap, tmp_path):
    data, message = TRAPS[trap]
    with pytest.raises(BadInput, match=message):
        load(written(tmp_path / "x.json", data))


def test_load_refuses_more_values_than_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("planner.simulator.step.files.MAX_VALUES", 10)
    with pytest.raises(BadInput, match="at most 10 can be held"):
        load(written(tmp_path / "x.json", READERS["profile"].seeds()[0]))
    monkeypatch.setattr("planner.device.recorded.importers.MAX_OBJECTS", 3)
    with pytest.raises(BadInput, match="events and arguments; at most 3"):
        import_profile([written(tmp_path / "t.json", READERS["pytorch"].seeds()[0])], batch=1)


def test_read_bytes_refuses_a_file_above_the_limit(tmp_path):
    with pytest.raises(BadInput, match="more than 100 B"):
        read_bytes(written(tmp_path / "x", b"x" * 101), 100)


def test_import_profile_refuses_overlapping_steps(tmp_path):
    trace = json.loads(READERS["pytorch"].seeds()[0])
    mark = next(e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#"))
    trace["traceEvents"].append({**mark, "ts": mark["ts"] + mark["dur"] / 2})
    with pytest.raises(BadInput, match="two steps overlap"):
        import_profile([written(tmp_path / "x.json", json.dumps(trace).encode())], batch=1)


BOMB = """
import sys
from planner.errors import BadInput
from planner.device.recorded.importers import import_profile
import resource
import shutil
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    import_profile([sys.argv[1]], batch=1)
except BadInput as error:
    print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_import_profile_refuses_a_gzip_bomb_early(tmp_path):
    """A file of 1.3 MB that unpacks to 300 MB is refused early, with 1 GB of memory."""
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(b" " * 2**20)
    assert path.stat().st_size < 2**21
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "such a file is no trace" in done.stdout, done.stderr
    grown_mib = int(done.stdout.split()[-1])
    assert grown_mib < 400
    assert resource.RLIMIT_AS  # the limit above is real on this system
