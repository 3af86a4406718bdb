"""Stores of sweeps: damaged ones are mended or refused, those of an earlier version are read."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from planner.answers.fingerprint import fingerprint
from planner.answers.store import Store
from planner.answers.sweep import grid_of, read_sweep, requests_from, sweep_for
from planner.errors import BadInput
from planner.search.simulations import Simulations

V1 = Path(__file__).parents[1] / "data" / "sweep_v1"


@pytest.fixture(scope="module")
def requests():
    return requests_from(read_sweep(V1 / "sweep.toml").scenarios)


@pytest.fixture(scope="module")
def whole(requests, tmp_path_factory):
    """A finished store of today's, and its result."""
    path = tmp_path_factory.mktemp("whole") / "x.db"
    return path, sweep_for(requests, path)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copyfile(whole[0], tmp_path / "x.db")
    return tmp_path / "x.db"


def changed(path, *statements):
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    db.close()


@pytest.fixture
def simulated(monkeypatch):
    """The plans that are simulated from now on."""
    plans = []
    submit = Simulations.submit
    monkeypatch.setattr(
        Simulations, "submit", lambda self, plan, *more: plans.append(plan) or submit(self, plan, *more)
    )
    return plans


@pytest.mark.parametrize(
    "damage",
    [
        "result = replace(result, '1', '7')",
        "result = substr(result, 1, 100)",
        "result = CAST(x'7BFF22' AS TEXT)",
        "digest = 'nonsense'",
        "digest = NULL",
    ],
)
def test_a_result_that_does_not_fit_its_digest_is_found_again(damage, requests, whole, copy, simulated):
    changed(copy, f"UPDATE plans SET {damage} WHERE number = 2")
    assert sweep_for(requests, copy).as_dict() == whole[1].as_dict()
    assert len(simulated) == 1


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE plans SET key = replace(key, 'alexnet', 'alexnes') WHERE number = 2",
        "DELETE FROM plans WHERE number = 2",
        "UPDATE plans SET number = 17 WHERE number = 2",
    ],
)
def test_rows_that_are_not_those_of_the_sweep(damage, requests, copy):
    changed(copy, damage)
    with pytest.raises(BadInput, match="is damaged; name another --store, or remove it"):
        sweep_for(requests, copy)


def test_a_claim_that_nobody_made_is_void(requests, whole, copy, simulated, monkeypatch):
    """Else the sweep would wait for ever for a machine of that name."""

    def wait(seconds):
        raise AssertionError("waits for nobody")

    monkeypatch.setattr("planner.answers.stored_simulations.time.sleep", wait)
    changed(copy, "UPDATE plans SET result = NULL, owner = 'x' || owner WHERE number = 3")
    assert sweep_for(requests, copy).as_dict() == whole[1].as_dict()
    assert len(simulated) == 1


@pytest.mark.parametrize("at", [0, 100, 4100])
def test_a_store_cut_short_or_overwritten_is_a_sentence(at, requests, copy):
    data = copy.read_bytes()
    for damaged in (data[: at or 50], data[:at] + b"\xff" * 64 + data[at + 64 :]):
        copy.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"x\.db") as error:
            sweep_for(requests, copy)
        assert "\n" not in str(error.value)


def test_a_store_of_version_1_is_read(requests, tmp_path):
    """As its results are; whether they would be found again is the next test's."""
    shutil.copyfile(V1 / "store.db", tmp_path / "x.db")
    grid = grid_of(requests)
    store = Store(tmp_path / "x.db")
    looked_at = []
    store.prepare([plan.key for plan in grid.plans], "f", lambda found: looked_at.append(found) or True)
    found = [json.loads(text)["prediction"]["samples_per_s"] for text in store.results().values()]
    assert found == json.loads((V1 / "expected.json").read_text())["samples_per_s"]
    assert [sorted(one) for one in looked_at] == [[0, 1, 2]]
    store.prepare([plan.key for plan in grid.plans], "f", lambda found: False)  # ours from now on
    store.close()


def test_what_an_earlier_version_found_is_believed_if_we_find_it_too(requests, whole, copy, simulated):
    downgrade = "UPDATE sweep SET version = 1, fingerprint = 'old', made_by = NULL"
    undone = "UPDATE plans SET result = NULL, owner = 'host/1/2' WHERE number > 5"
    changed(copy, downgrade, "UPDATE plans SET digest = NULL", undone)
    assert sweep_for(requests, copy).as_dict() == whole[1].as_dict()
    assert len(simulated) == 2
    changed(copy, downgrade)
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for([replace(request, seed=1) for request in requests], copy)


def test_a_later_version_of_the_store_is_refused(requests, copy):
    changed(copy, "UPDATE sweep SET version = 3")
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for(requests, copy)


def test_fingerprints_know_values_and_not_how_they_are_written():
    @dataclass(frozen=True)
    class Old:
        rate: float
        names: tuple[str, ...] = ()

    @dataclass(frozen=True)
    class New(Old):
        more: int | None = None
        notes: dict[str, float] = field(default_factory=dict)
        shown: bool = field(default=False, repr=False)

    old, new = Old(1e9, ("a",)), New(10**9, ("a",))
    assert fingerprint(old) == fingerprint(new) == fingerprint(replace(new, shown=True))
    others = [Old(1e9), Old(2e9, ("a",)), replace(new, more=0), replace(new, notes={"x": 0.5}), New(1e9, "a")]
    assert len({fingerprint(one) for one in [old, *others]}) == 6
    with pytest.raises(TypeError, match="set has no fingerprint"):
        fingerprint({1})
