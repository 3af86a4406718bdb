"""A hardware file of one's own in every answer: found by its path, shown by its name."""

import json

import pytest
from typer.testing import CliRunner

import planner
from planner.answers.recommend import recommend_for
from planner.answers.sweep import sweep
from planner.cli._app import app
from planner.errors import BadInput
from planner.report.assumed import notes_of
from planner.search.request import Request

MACHINE = """
[machines."{name}"]
device = "T4"
device_count = 4
nic_baseline_gbit_per_s = 25
on_demand_usd_per_hour = {usd}
"""
SMALL = ("--model", "alexnet", "--batch", "64", "--interval-width", "0.1", "--workers", "4", "--servers", "1")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lab.toml"
    path.write_text(MACHINE.format(name="lab-4xt4", usd=2))
    (tmp_path / "two.toml").write_text(
        MACHINE.format(name="small", usd=1) + MACHINE.format(name="big", usd=3)
    )
    return path


def answer(*args):
    done = CliRunner().invoke(app, [*args, "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", ["recommend", "compare", "simulate", "saturation"])
def test_all_answers_take_a_file_for_workers_and_servers(lab, command):
    more = ("--max-workers", "8") if command == "saturation" else ()
    data = answer(command, *SMALL, *more, "--hardware", "./lab.toml", "--server-hardware", "two.toml:big")
    plans = {
        "recommend": lambda: [data["recommendation"]],
        "compare": lambda: data["plans"],
        "simulate": lambda: [data["plan"]],
        "saturation": lambda: data["points"],
    }[command]()
    assert plans
    for plan in plans:
        assert (plan["worker_hardware"], plan["server_hardware"]) == ("lab-4xt4", "big")
        assert plan["usd_per_hour"] == pytest.approx(plan["workers"] / 4 * 2 + 3)


def test_absolute_paths_and_threads_in_python(lab):
    recommend = planner.recommend(
        "alexnet", hardware=str(lab), batch=64, workers=4, servers=1, interval_width=0.1, jobs=2
    )
    assert recommend.chosen.plan.machine == "lab-4xt4"
    assert any("lab-4xt4 $2.00/h" in note.text for note in notes_of(recommend.assumptions))


def test_sweep_takes_a_file(lab, tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text(
        'model = "alexnet"\nbatch = 64\nhardware = "lab.toml"\nserver_hardware = "own"\n'
        "workers = 4\nservers = 1\ninterval_width = 0.1\n"
    )
    result = sweep(config, tmp_path / "sweep.db", jobs=1)
    assert {row.plan.machine for row in result.rows} == {"lab-4xt4"}


def test_file_hides_the_catalogs_machine_of_that_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MACHINE.format(name="p3.2xlarge", usd=1.5))
    request = Request(model="alexnet", hardware=("p3.2xlarge",), server_hardware=(str(path),))
    assert request.market.find_machine("p3.2xlarge").price.on_demand_usd_per_hour == 1.5
    assert request.market.select_machines(request.hardware) == (request.market.find_machine("p3.2xlarge"),)


def test_two_files_with_one_name_are_refused(lab, tmp_path):
    (tmp_path / "other.toml").write_text(MACHINE.format(name="lab-4xt4", usd=5))
    request = Request(model="alexnet", hardware=("lab.toml", "other.toml"))
    with pytest.raises(BadInput, match="rename one of them"):
        request.market.select_machines(request.hardware)


def test_price_without_region_and_date_is_said_without_them(tmp_path):
    (tmp_path / "lab.toml").write_text(
        '[machines.lab]\ndevice = "T4"\nnic_baseline_gbit_per_s = 25\non_demand_usd_per_hour = 0.8\n'
    )
    recommend = planner.recommend(
        "alexnet", hardware=str(tmp_path / "lab.toml"), workers="1", servers="1", interval_width=0.1
    )
    assert "Price: lab $0.80/h, on demand (estimated)." in map(str, notes_of(recommend.assumptions))


@pytest.mark.parametrize("trials", [None, 40])
def test_no_search_takes_more_machines_than_there_are(tmp_path, trials):
    """Neither that of every plan nor optuna's, which draws numbers of machines freely."""
    path = tmp_path / "lab.toml"
    path.write_text(
        '[machines.lab]\ndevice = "T4"\nnic_baseline_gbit_per_s = 25\n'
        "[machines.lab.ownership]\nmachines = 3\n"
        "capital_usd = 1e4\nlifetime_years = 4\npower_watts = 1\nenergy_usd_per_kwh = 0\n"
    )
    request = Request(model="alexnet", hardware=(str(path),), interval_width=0.1, max_steps=200)
    recommend = recommend_for(request, jobs=1, advice=False, trials=trials)
    market = recommend.request.market
    counts = {sum(entry.count for entry in row.plan.rented(market)) for row in recommend.everything}
    assert max(counts) == 3
    assert min(counts) == 1


A100 = """
[machines.{name}]
device = "A100-SXM4-80GB"
device_count = 8
nic_baseline_gbit_per_s = 200
"""


@pytest.fixture
def private(tmp_path):
    def write(name, extra=""):
        path = tmp_path / f"{name}.toml"
        path.write_text(A100.format(name=name) + extra)
        return str(path)

    return write


def shown(*args):
    done = CliRunner().invoke(app, args, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("model", ["llama3-8b", "resnet50"])
def test_unnamed_fabric_gives_the_plan_of_the_usual_one(private, model):
    """It used to turn all-reduce into asynchronous parameter servers without a word."""
    settings = {"interval_width": 0.05}
    silent = planner.recommend(model, hardware=private("silent", "machines = 2\n"), **settings)
    told = private("told", 'machines = 2\nfabric = "a100-sxm"\n')
    named = planner.recommend(model, hardware=told, **settings)
    assert silent.chosen.plan.exchange == named.chosen.plan.exchange
    assert silent.chosen.plan.workers == named.chosen.plan.workers == 16
    assert silent.chosen.samples_per_s == pytest.approx(named.chosen.samples_per_s, rel=0.02)
    notes = " ".join(map(str, notes_of(silent.assumptions)))
    assert "names no fabric; NVSwitch with 300 GB/s per device each way is assumed" in notes
    assert "names no fabric" not in " ".join(map(str, notes_of(named.assumptions)))


def test_machines_without_price_are_ranked_by_time(private):
    path = private("free", "machines = 4\n")
    data = answer("recommend", "--model", "resnet50", "--hardware", path, "--interval-width", "0.05")
    plan = data["recommendation"]
    assert (plan["workers"], plan["usd_per_hour"], plan["job_usd"]) == (32, None, None)
    assert plan["samples_per_s"] == max(row["samples_per_s"] for row in data["plans"])
    text = shown("recommend", "--model", "resnet50", "--hardware", path, "--interval-width", "0.05")
    assert text.startswith("Use          4 x free (32 x A100-SXM4-80GB)")
    assert "plans are ranked by time; --price adds cost" in text
    assert "$" not in text
    assert "cheapest" not in text


def test_price_flag_prices_own_machines(private):
    path = private("free", "machines = 4\n")
    asked = ("recommend", "--model", "resnet50", "--hardware", path, "--price", "12")
    text = shown(*asked, "--interval-width", "0.05")
    assert text.startswith("Use          4 x free")
    assert "$48.00/h" in text
    assert "free $12.00/h, as given by --price" in text
    cheapest = answer(*asked, "--interval-width", "0.05", "--objective", "cheapest")["recommendation"]
    assert cheapest["usd_per_hour"] == 12


def test_owned_machines_are_all_used_although_fewer_cost_less(private):
    owned = (
        "[machines.paid.ownership]\nmachines = 4\ncapital_usd = 150000\nlifetime_years = 4\n"
        "power_watts = 6000\nenergy_usd_per_kwh = 0.1\n"
    )
    recommend = planner.recommend("llama3-8b", hardware=private("paid", owned), interval_width=0.05)
    assert recommend.chosen.plan.machines == 4
    assert recommend.saturation is None
    assert not any(change.scored.plan.machines > 4 for change in recommend.changes)
    cheapest = planner.recommend(
        "llama3-8b", hardware=private("paid", owned), interval_width=0.05, objective="cheapest"
    )
    assert cheapest.chosen.plan.machines < 4


def test_fewer_owned_machines_where_they_are_as_fast(tmp_path):
    """Over 100 Mbit a second machine only adds waiting."""
    path = tmp_path / "slow.toml"
    path.write_text(
        '[machines.slow]\ndevice = "T4"\ndevice_count = 4\nmachines = 3\nnic_baseline_gbit_per_s = 0.1\n'
    )
    recommend = planner.recommend(
        "vgg16", hardware=str(path), exchange="alone,allreduce", interval_width=0.05
    )
    assert recommend.chosen.plan.machines == 1


def test_number_of_machines_that_nobody_says_is_one_and_stated(private):
    path = private("some")
    settings = {"interval_width": 0.05}
    recommend = planner.recommend("resnet50", hardware=path, **settings)
    assert recommend.chosen.plan.machines == 1
    assert "one some, as its file does not say how many" in " ".join(
        map(str, notes_of(recommend.assumptions))
    )
    assert planner.recommend("resnet50", hardware=path, machines=3, **settings).chosen.plan.machines == 3
    assert planner.simulate("resnet50", hardware=path, workers=16).scored.plan.workers == 16
