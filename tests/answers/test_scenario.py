import os
from dataclasses import replace
from pathlib import Path

import pytest

from planner import flags
from planner.answers.questions import merge_options, parse_request
from planner.answers.sweep import read_sweep
from planner.errors import BadInput
from planner.flags import COUNTS, Flag, FlagSection, add_flags, parse_counts, parse_duration_s
from planner.search.request import Request, model_of

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("4", (4,)), ("1,2,4", (1, 2, 4)), ("1-4", (1, 2, 3, 4)), ([8, 2], (2, 8)), ((1, "2-3"), (1, 2, 3))],
)
def test_counts(words, expected):
    assert parse_counts(words, "--workers") == expected


@pytest.mark.parametrize("words", ["0", "a", "4-1", "-3", "1.5", "1-99999"])
def test_counts_refuse(words):
    with pytest.raises(BadInput, match="--workers"):
        parse_counts(words, "--workers")


@pytest.mark.parametrize(("words", "seconds"), [("36h", 129600), ("90min", 5400), ("2d", 172800), (3, 10800)])
def test_durations(words, seconds):
    assert parse_duration_s(words, "--deadline") == seconds


@pytest.mark.parametrize("words", ["soon", "-1h", "0h", "3 weeks"])
def test_durations_refuse(words):
    with pytest.raises(BadInput, match="--deadline"):
        parse_duration_s(words, "--deadline")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_config_is_a_request(path):
    if path.stem.startswith("sweep"):
        pytest.skip("a sweep has a format of its own")
    request = parse_request(**merge_options({}, path))
    assert request.model == model_of(request).name


def test_flag_wins_over_the_file():
    scenario = merge_options({"budget": 5.0, "model": None}, CONFIGS / "vgg11-20usd.toml")
    request = parse_request(**scenario)
    assert (request.model, request.budget_usd_per_hour, request.servers) == ("vgg11", 5.0, None)


@pytest.mark.parametrize(
    "reader", [lambda path: merge_options({}, path), lambda path: read_sweep(path).scenarios[0]]
)
@pytest.mark.parametrize("where", ["lab", ".", "{tmp}/lab"])
def test_paths_are_relative_to_the_file(tmp_path, monkeypatch, reader, where):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "mine.toml").write_text(
        'model = "tiny.toml"\nhardware = ["p3.*", "two.toml:big", "./one"]\n'
        f'server_hardware = "own, {tmp_path}/all.toml, ~/home.toml"\nprofile = "mine.json.gz"\n'
    )
    monkeypatch.chdir(tmp_path / "lab" if where == "." else tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    options = reader(Path(where.format(tmp=tmp_path)) / "mine.toml")

    def real(words):
        return [os.path.realpath(word) if "/" in word else word for word in words]

    lab = os.path.realpath(tmp_path / "lab")
    assert real(options["hardware"]) == ["p3.*", f"{lab}/two.toml:big", f"{lab}/one"]
    assert real(options["server_hardware"]) == [
        "own",
        os.path.realpath(tmp_path / "all.toml"),
        "/home/me/home.toml",
    ]
    assert real([options["model"], options["profile"]]) == [f"{lab}/tiny.toml", f"{lab}/mine.json.gz"]


def test_names_of_the_catalog_are_no_paths(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('model = "vgg11"\nhardware = "p3.*,c4"\nserver_hardware = "cheap"\n')
    options = merge_options({"hardware": "./lab.toml"}, path)
    assert (options["model"], options["hardware"], options["server_hardware"]) == (
        "vgg11",
        "./lab.toml",
        ["cheap"],
    )


def test_wrong_key_is_named_with_its_line(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('model = "vgg11"\nbugdet = 3\n')
    with pytest.raises(BadInput, match=r"mine.toml:2.*bugdet.*did you mean 'budget'"):
        merge_options({}, path)


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"model": "vgg1"}, "vgg11"),
        ({}, "--model"),
        ({"model": "vgg11", "epochs": 1, "samples": 5}, "--epochs and --samples"),
        ({"model": "vgg11", "bandwidth": "1Gbit", "network": "burst"}, "--bandwidth and --network"),
        ({"model": "vgg11", "interruptions": "10%"}, "--interruptions is about spot machines; add --spot"),
        ({"model": "vgg11", "spot": True, "interruptions": "often"}, "as 10%"),
        ({"model": "vgg11", "spot": True, "interruptions": "120%"}, "as 10%"),
        ({"model": "vgg11", "spot": True, "restart": "soon"}, "--restart 'soon' is not understood"),
        ({"model": "vgg11", "policy": "tik"}, "tic"),
        ({"model": "vgg11", "placement": "greddy"}, "greedy"),
        ({"model": "vgg11", "budget": -1}, "--budget"),
        ({"model": "vgg11", "objective": "best"}, "fastest"),
        ({"model": "vgg11", "mode": "bsp"}, "async"),
        ({"model": "vgg11", "network": "fast"}, "baseline"),
    ],
)
def test_contradictions_and_typos_are_named(scenario, words):
    with pytest.raises(BadInput, match=words):
        parse_request(**scenario)


def test_objective_is_balanced_unless_named():
    assert Request(model="vgg11", budget_usd_per_hour=20).goal == "balanced"
    assert Request(model="vgg11", objective="fastest").goal == "fastest"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"workers": "100000"}, "--workers is 100,000; at most 4,096 are simulated"),
        ({"workers": "4097"}, "--workers is 4,097; at most 4,096 are simulated"),
        ({"servers": "10000"}, "--servers is 10,000; at most 512 are simulated"),
        ({"workers": "1000", "servers": "500"}, "500,000 links; at most 131,072 .* at most 131 servers"),
    ],
)
def test_plans_too_large_to_simulate_are_refused_with_the_limit(asked, said):
    with pytest.raises(BadInput, match=said):
        parse_request(model="vgg11", **asked)


def test_largest_plans_are_taken():
    request = parse_request(model="vgg11", workers="4096", servers="32")
    assert (request.workers, request.servers) == ((4096,), (32,))


def test_deadline_is_that_of_one_epoch_unless_more_is_said():
    assert parse_request(model="vgg11", deadline="3h").samples == 1_281_167
    assert parse_request(model="vgg11", deadline="3h", samples=5).samples == 5
    assert parse_request(model="vgg11").samples is None
    assert parse_request(model="gpt2", deadline="3h").samples == 1e9 / 1024
    assert parse_request(model="gpt2", deadline="3h", seq_length=512).samples == 1e9 / 512


def test_how_spot_machines_are_counted_is_asked_in_words():
    asked = parse_request(
        model="vgg11", spot=True, interruptions="10%", checkpoint_every="30min", restart="90s"
    )
    terms = asked.spot_terms
    assert (terms.interruptions, terms.checkpoint_every_s, terms.restart_s) == (0.1, 1800, 90)
    assert parse_request(model="vgg11", spot=True).spot_terms.restart_s == 300


def test_precision_refuses_a_number_and_names_interval_width():
    with pytest.raises(BadInput, match=r"--precision is 0\.02; .*--interval-width 0\.02"):
        parse_request(model="vgg11", precision="0.02")
    assert parse_request(model="vgg11", precision="bf16,fp16").formats == ("bf16", "fp16")


@pytest.mark.parametrize("budget", [20, 20.0, "20", "20/h", "$20/h", "20 USD/hour"])
def test_budget_is_usd_per_hour(budget):
    assert parse_request("vgg11", budget=budget).budget_usd_per_hour == 20


@pytest.mark.parametrize("budget", ["20/d", "cheap", "1.2.3", ""])
def test_budget_refuses_other_units(budget):
    with pytest.raises(BadInput, match=r"--budget is .*; write US dollars per hour, as 20 or 20/h"):
        parse_request("vgg11", budget=budget)


def test_parse_request_names_the_nearest_option():
    with pytest.raises(BadInput, match="unknown option 'bugdet'; nearest: budget"):
        parse_request("vgg11", bugdet=20)


def test_request_takes_the_length_of_a_job_in_any_unit():
    assert Request(model="gpt2", tokens=1024e6).samples == 1e6
    request = Request(model="vgg11", epochs=2, deadline_s=3600)
    assert request.samples == 2 * 1_281_167
    assert replace(request, budget_usd_per_hour=5).samples == request.samples


def test_contributed_flag_reaches_scenario_files_requests_and_json(monkeypatch, tmp_path):
    expert = Flag("expert", "Expert-parallel degree, as 8.", FlagSection.PARALLELISM, COUNTS)
    monkeypatch.setattr(flags, "_CONTRIBUTED", {})
    add_flags(expert)
    (tmp_path / "moe.toml").write_text('model = "vgg11"\nexpert = [2, 4]\n')
    request = parse_request(**merge_options({}, tmp_path / "moe.toml"))
    assert request.extra == {"expert": (2, 4)}
    assert request.as_dict()["expert"] == (2, 4)
    with pytest.raises(BadInput, match="--expert is '0'"):
        parse_request("vgg11", expert="0")
