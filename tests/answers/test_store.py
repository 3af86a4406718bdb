"""Stores of sweeps: damaged ones are mended or refused."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from planner.answers.sweep import read_sweep, requests_from, sweep_for
from planner.errors import BadInput
from planner.search.simulations import Simulations

SWEEP = Path(__file__).parents[1] / "data" / "sweep.toml"


@pytest.fixture(scope="module")
def requests():
    return requests_from(read_sweep(SWEEP).scenarios)


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
def test_result_that_does_not_fit_its_digest_is_found_again(damage, requests, whole, copy, simulated):
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


def test_claim_that_nobody_made_is_void(requests, whole, copy, simulated, monkeypatch):
    """Else the sweep would wait for ever for a machine of that name."""

    def wait(seconds):
        raise AssertionError("waits for nobody")

    monkeypatch.setattr("planner.answers.store.time.sleep", wait)
    changed(copy, "UPDATE plans SET result = NULL, owner = 'x' || owner WHERE number = 3")
    assert sweep_for(requests, copy).as_dict() == whole[1].as_dict()
    assert len(simulated) == 1


@pytest.mark.parametrize("at", [0, 100, 4100])
def test_store_cut_short_or_overwritten_is_a_sentence(at, requests, copy):
    data = copy.read_bytes()
    for damaged in (data[: at or 50], data[:at] + b"\xff" * 64 + data[at + 64 :]):
        copy.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"x\.db") as error:
            sweep_for(requests, copy)
        assert "\n" not in str(error.value)


def test_store_of_another_version_is_refused(requests, copy):
    changed(copy, "UPDATE sweep SET made_by = '0.0.1'")
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for(requests, copy)


@pytest.mark.parametrize("version", [1, 3])
def test_stores_of_other_formats_are_refused(version, requests, copy):
    changed(copy, f"UPDATE sweep SET version = {version}")
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for(requests, copy)
