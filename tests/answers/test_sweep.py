"""Sweeps: what is in the grid, and that neither kills nor company change the result."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/robustness"))

from faults import SWEEP, begun_in, command, disturbed  # noqa: E402

import planner  # noqa: E402
from planner.answers.recommend import recommend_for  # noqa: E402
from planner.answers.store import Store, StoreFailed, _process_identity  # noqa: E402
from planner.answers.sweep import grid_of, read_sweep, requests_from, sweep_for  # noqa: E402
from planner.errors import BadInput, Infeasible, PlannerError  # noqa: E402
from planner.model.catalog import model_paths  # noqa: E402
from planner.search.request import Request  # noqa: E402
from planner.search.simulations import Simulations  # noqa: E402

SMALL = SWEEP.replace("[1, 2, 4, 8]", "[1, 2]").replace('["alexnet", "vgg11"]', '["alexnet"]')


MACHINE = """
[machines.lab]
device = "T4"
nic_baseline_gbit_per_s = 25
on_demand_usd_per_hour = 1.0
"""


def written(folder, text=SMALL):
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A sweep that nobody disturbed, as JSON."""
    folder = tmp_path_factory.mktemp("calm")
    subprocess.run(command(written(folder), folder / "x.db", folder / "x.json"), check=True)
    return (folder / "x.json").read_bytes()


def test_grid_is_the_product_of_its_axes():
    requests = requests_from(read_sweep(ROOT / "configs" / "sweep.toml").scenarios)
    assert len(requests) == 3 * 2
    plans = grid_of(requests).plans
    assert len({plan.key for plan in plans}) == len(plans)
    for axis, values in {
        "model": {"alexnet", "vgg11", "resnet50"},
        "mode": {"async", "sync"},
        "policy": {"multiplexed", "tac"},
        "workers": {1, 2, 4, 8, 16},
        "servers": {1, 2},
        "machine": {"p3.2xlarge", "g4dn.xlarge", "c4.8xlarge"},
    }.items():
        assert {getattr(plan, axis, None) or getattr(plan.exchange, axis) for plan in plans} == values
    # 3 models x 2 modes x 2 policies x 3 machines x 5 worker counts x 2 server counts, on servers of their
    # own; beside the workers all but two servers with one worker
    assert len(plans) == 3 * 2 * 2 * 3 * (5 * 2 + 5 * 2 - 1)


def test_every_plan_has_the_prediction_that_it_has_alone(calm, tmp_path):
    rows = json.loads(calm)["plans"]
    grid = grid_of(requests_from(read_sweep(written(tmp_path)).scenarios))
    assert len(rows) == len(grid.plans) == 16
    plan, cases = grid.plans[5], grid.cases[5]
    alone = cases.predict(plan)
    assert rows[5]["samples_per_s"] == alone.samples_per_s
    assert rows[5]["policy"] == plan.exchange.policy


def test_kills_do_not_change_the_result(calm, tmp_path):
    store, result = tmp_path / "x.db", tmp_path / "x.json"
    met = disturbed(written(tmp_path), store, result, 3, random.Random(1))
    assert result.read_bytes() == calm
    begun = begun_in(store)
    assert sum(begun) - len(begun) <= met * 2 * (os.cpu_count() or 1)


def test_two_processes_share_the_work(calm, tmp_path):
    config, store = written(tmp_path), tmp_path / "x.db"
    both = [subprocess.Popen(command(config, store, tmp_path / f"{k}.json")) for k in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes() == calm
    assert begun_in(store) == [1] * 16


def test_finished_sweep_is_only_read(tmp_path, monkeypatch):
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    first = sweep_for(requests, tmp_path / "x.db")
    monkeypatch.setattr(Simulations, "submit", lambda *_: pytest.fail("all is there"))
    assert sweep_for(requests, tmp_path / "x.db").as_dict() == first.as_dict()


def test_python_api_and_what_a_notebook_shows(tmp_path):
    text = SMALL.replace("[1, 2]", "1").replace('["async", "sync"]', '"async"')
    result = planner.sweep(written(tmp_path, text), tmp_path / "x.db")
    assert len(result.rows) == 2
    assert "2 of 2 plans scored, 0 refused." in result._repr_html_()


def test_another_sweep_does_not_fit_in_the_store(tmp_path):
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    store = Store(tmp_path / "x.db")
    store.prepare([plan.key for plan in grid_of(requests).plans], "something else")
    store.close()
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for(requests, tmp_path / "x.db")


def test_fingerprint_knows_what_results_depend_on():
    def fingerprint(**changes):
        scenario = dict(model="alexnet", hardware="p3.2xlarge", workers=1, servers=1, **changes)
        return grid_of(requests_from([scenario])).fingerprint

    kinds = [
        fingerprint(),
        fingerprint(seed=1),
        fingerprint(interval_width=0.02),
        fingerprint(bandwidth="1Gbit"),
    ]
    assert len(set(kinds)) == 4
    assert fingerprint() == kinds[0]


@pytest.mark.parametrize("trials", [None, 2])
def test_store_knows_files_by_what_they_say(tmp_path, trials):
    """The same files elsewhere are the same sweep; a changed figure is another."""
    server = MACHINE.replace("lab", "rack")

    def swept(folder, machine, server_name="rack.toml"):
        (tmp_path / folder).mkdir()
        mine = tmp_path / folder / "mine.toml"
        mine.write_text(model_paths()["alexnet"].read_text())
        (tmp_path / folder / "lab.toml").write_text(machine)
        (tmp_path / folder / server_name).write_text(server)
        scenario = {
            "model": str(mine),
            "hardware": str(tmp_path / folder / "lab.toml"),
            "server_hardware": str(tmp_path / folder / server_name),
            "workers": 2,
            "servers": 1,
            "interval_width": 0.1,
        }
        return sweep_for(requests_from([scenario]), tmp_path / "x.db", trials=trials).as_dict()["plans"]

    first = swept("here", MACHINE)
    assert first
    assert swept("there", MACHINE, "renamed.toml") == first
    with pytest.raises(BadInput, match="holds another sweep"):
        swept("changed", MACHINE.replace("25", "10"))
    server = server.replace("25", "10")
    with pytest.raises(BadInput, match="holds another sweep"):
        swept("server", MACHINE)


def test_rows_of_a_process_that_died_are_free_again(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    store = Store(tmp_path / "x.db")
    store.prepare(["a", "b"], "f")
    mine, store.owner = store.owner, _process_identity(dead.pid)
    assert store.claim(1) == [0]
    store.owner = mine
    assert store.claim(5) == [0, 1]
    store.finish(0, "{}")
    store.release()
    tries = store._db.execute("SELECT tries FROM plans ORDER BY number").fetchall()
    assert (store.results(), store.counts(), tries) == ({0: "{}"}, (1, 2), [(2,), (1,)])
    assert store.claim(5) == [1]


def test_rows_of_a_process_that_lives_are_left_to_it(tmp_path):
    living = Store(tmp_path / "x.db")
    living.prepare(["a", "b", "c"], "f")
    assert living.claim(2) == [0, 1]
    other = Store(tmp_path / "x.db")
    other.owner = _process_identity(os.getppid())
    assert other.claim(5) == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = []", "model: is empty"),
        (f"model = {['alexnet'] * 2000}".replace("'", '"'), "2,000 models and modes"),
        ('model = ["alexnet", 7]', "model: expected str"),
        ('model = "alexnet"\nwrokers = 3', "did you mean 'workers'"),
        ('model = "alexnot"', "nearest: alexnet"),
        ('model = "alexnet"\ntrials = 5', "a grid has no trials"),
        ('model = "alexnet"\nsearch = "random"', "allowed: grid, optuna"),
    ],
)
def test_bad_sweeps(text, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        requests_from(read_sweep(written(tmp_path, text)).scenarios)


def test_sweep_after_full_disk_repeats_lost_plans(tmp_path, monkeypatch):
    """The plans under way when the disk filled up are no refused plans: with room, all are there."""
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    prepare, release = Store.prepare, Store.release

    def release_nothing(self):
        claimed = "SELECT COUNT(*) FROM plans WHERE owner IS NOT NULL AND result IS NULL"
        if self._db.execute(claimed).fetchone()[0]:
            raise StoreFailed("database or disk is full")

    def small_disk(self, *asked):
        prepare(self, *asked)
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        self._db.execute(f"PRAGMA max_page_count = {pages + 1}")

    monkeypatch.setattr(Store, "prepare", small_disk)
    monkeypatch.setattr(Store, "release", release_nothing)
    with pytest.raises(StoreFailed, match=r"x\.db: database or disk is full; .* run again to go on"):
        sweep_for(requests, tmp_path / "x.db", jobs=2)
    done = Store(tmp_path / "x.db").results()
    assert 0 < len(done) < 16
    assert not any("refused" in result for result in done.values())
    monkeypatch.setattr(Store, "prepare", prepare)
    monkeypatch.setattr(Store, "release", release)
    whole = sweep_for(requests, tmp_path / "x.db", jobs=2)
    assert (len(whole.rows), whole.refused, whole.partial) == (16, {}, False)


class KilledWorker(Exception):
    """As distributed raises it when a worker died several times over a task."""


KilledWorker.__module__ = "distributed.scheduler"


@pytest.mark.parametrize(
    "lost", [MemoryError(), BrokenProcessPool("a process died"), OSError(5, "I/O error"), KilledWorker("x")]
)
def test_sweep_repeats_plans_that_failed_for_the_machine(lost, tmp_path, monkeypatch):
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    submit, calls = Simulations.submit, []

    def losing(self, plan, rung="long"):
        calls.append(plan)
        future = submit(self, plan, rung)
        if len(calls) == 3:
            future = Future()
            future.set_exception(lost)
        return future

    monkeypatch.setattr(Simulations, "submit", losing)
    with pytest.raises(PlannerError, match=f"lost a simulation .{type(lost).__name__}.* run again") as said:
        sweep_for(requests, tmp_path / "x.db", jobs=1)
    assert "\n" not in str(said.value)
    monkeypatch.setattr(Simulations, "submit", submit)
    whole = sweep_for(requests, tmp_path / "x.db", jobs=1)
    assert (len(whole.rows), whole.refused, whole.partial) == (16, {}, False)


def test_sweep_refuses_infeasible_plans_once(tmp_path, monkeypatch):
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    submit, calls = Simulations.submit, []

    def refusing(self, plan, rung="long"):
        calls.append(plan.key)
        if len(calls) == 3:
            raise Infeasible("no room")
        return submit(self, plan, rung)

    monkeypatch.setattr(Simulations, "submit", refusing)
    for _ in range(2):
        result = sweep_for(requests, tmp_path / "x.db", jobs=1)
        assert (len(result.rows), result.refused, len(calls)) == (15, {calls[2]: "no room"}, 16)


def test_absurd_grid_is_counted_before_it_is_made(tmp_path, monkeypatch):
    def made(*args):
        raise AssertionError("plans were made")

    monkeypatch.setattr("planner.answers.sweep.enumerate_plans", made)
    text = SMALL.replace("servers = [1, 2]", 'servers = "1-300"') + 'batch = "1-4000"\n'
    requests = requests_from(read_sweep(written(tmp_path, text)).scenarios)
    with pytest.raises(BadInput, match=r"make [\d,]{9,} combinations; at most 1,000,000"):
        grid_of(requests)


def test_store_that_is_something_else(tmp_path):
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database at all, but long enough to be told apart from an empty file" * 20)
    with pytest.raises(BadInput, match=r"cannot use .* as the store"):
        Store(path)
    with pytest.raises(BadInput, match=r"cannot use .* as the store"):
        Store(tmp_path / "none" / "x.db")


def test_sweep_without_plans_is_refused(tmp_path):
    with pytest.raises(Infeasible, match="over the budget"):
        grid_of(requests_from([{"model": "vgg11", "hardware": "p3.2xlarge", "budget": 0.5}]))


@pytest.mark.parametrize("after", [0, 5])
def test_ctrl_c_keeps_what_is_stored(after, tmp_path, monkeypatch):
    """Interrupted at once there is nothing to show; later there is, and going on gives the whole."""
    requests = requests_from(read_sweep(written(tmp_path)).scenarios)
    submit, calls = Simulations.submit, []

    def interrupted(self, plan, rung="long"):
        calls.append(plan)
        if len(calls) > after:
            raise KeyboardInterrupt
        future = submit(self, plan, rung)
        future.result()
        return future

    monkeypatch.setattr(Simulations, "submit", interrupted)
    if after == 0:
        with pytest.raises(KeyboardInterrupt):
            sweep_for(requests, tmp_path / "x.db", jobs=1)
    else:
        result = sweep_for(requests, tmp_path / "x.db", jobs=1)
        assert result.partial
        assert 0 < len(result.rows) <= after
    monkeypatch.setattr(Simulations, "submit", submit)
    whole = sweep_for(requests, tmp_path / "x.db", jobs=1)
    assert (len(whole.rows), whole.partial) == (16, False)


def test_ctrl_c_before_anything_is_scored_is_an_interruption(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulations, "predict_all", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"by their bounds, the fastest is 1 x p3.2xlarge .*at most"):
        recommend_for(Request(model="alexnet", hardware=("p3.2xlarge",), workers=(1,), servers=(1,)))


def test_study_that_was_stopped_ends_as_one_that_was_not(tmp_path, monkeypatch):
    text = SMALL.replace("[1, 2]", '"1-8"', 1).replace('["async", "sync"]', '"async"')
    text += 'search = "optuna"\ntrials = 16\n'
    sweep = read_sweep(written(tmp_path, text))
    requests = requests_from(sweep.scenarios)
    calm = sweep_for(requests, tmp_path / "calm.db", trials=sweep.trials)
    submit, calls = Simulations.submit, []

    def stopped(self, plan, rung="long"):
        calls.append(plan)
        if len(calls) % 6 == 0:
            raise KeyboardInterrupt
        return submit(self, plan, rung)

    monkeypatch.setattr(Simulations, "submit", stopped)
    result, stops = None, 0
    while result is None or result.partial:
        try:
            result = sweep_for(requests, tmp_path / "x.db", trials=sweep.trials)
        except KeyboardInterrupt:  # in the first round there is nothing to show yet
            stops += 1
    assert stops >= 1
    assert len(calls) >= 12
    assert result.as_dict() == calm.as_dict()
    with pytest.raises(BadInput, match="holds another sweep"):
        sweep_for(requests, tmp_path / "x.db", trials=25)
