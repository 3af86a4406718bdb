"""The four answers from the command line: formats, schema, bad input, configuration."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "answers.schema.json").read_text())
SMALL = ("--model", "alexnet", "--batch", "64", "--hardware", "p3.2xlarge", "--interval-width", "0.05")


def planner(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "planner", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        cwd=ROOT,
        check=False,
    )


def valid(data, kind):
    jsonschema.validate(data, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{kind}"}]})
    return data


def test_recommend_as_json_csv_and_markdown(tmp_path):
    args = ("recommend", *SMALL, "--workers", "1-2", "--servers", "1", "--budget", "10")
    out = tmp_path / "answer.json"
    done = planner(*args, "--format", "json", "--output", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    data = valid(json.loads(out.read_text()), "recommendation")
    assert data["considered"] == data["pruned"] + data["simulated"]
    rows = list(csv.DictReader(io.StringIO(planner(*args, "--format", "csv").stdout)))
    assert [float(row["usd_per_million_samples"]) for row in rows] == [
        plan["usd_per_million_samples"] for plan in data["plans"]
    ]
    table = planner(*args, COLUMNS="200").stdout
    assert table.startswith("Recommended  ")
    assert "p3.2xlarge is retired" in table
    assert "1 epoch of " in table
    assert "> recommended" in table
    assert "plans considered" not in table
    assert "plans considered" in planner(*args, "--explain").stdout
    assert "| machines |" in planner(*args, "--format", "markdown").stdout
    for plan in data["plans"]:
        assert plan["job_usd"] == pytest.approx(plan["usd_per_hour"] * plan["job_s"] / 3600)


def test_compare_saturation_and_simulate_keep_the_schema():
    compared = planner("compare", *SMALL, "--workers", "1,2", "--servers", "1", "--format", "json")
    data = valid(json.loads(compared.stdout), "comparison")
    assert data["plans"][0]["usd_per_million_samples_spot"] < data["plans"][0]["usd_per_million_samples"]
    curve = planner("saturation", *SMALL, "--max-workers", "3", "--format", "json")
    assert [p["workers"] for p in valid(json.loads(curve.stdout), "saturation")["points"]] == [1, 2, 3]
    result = planner("simulate", *SMALL, "--workers", "2", "--format", "json")
    assert valid(json.loads(result.stdout), "simulation")["plan"]["workers"] == 2


def test_simulate_as_csv_is_a_row_of_figures():
    args = ("simulate", *SMALL, "--workers", "2", "--servers", "2")
    loads = json.loads(planner(*args, "--format", "json").stdout)
    (row,) = csv.DictReader(io.StringIO(planner(*args, "--format", "csv").stdout))
    assert float(row["samples_per_s"]) == loads["plan"]["samples_per_s"]
    assert float(row["utilisation.ps[1]"]) == loads["plan"]["utilisation"]["ps[1]"]
    assert float(row["step_s_p95"]) == loads["prediction"]["step_s_quantiles"]["p95"]
    assert int(row["runs"]) == loads["prediction"]["runs"]
    assert float(row["epoch_usd"]) / float(row["epoch_s"]) == pytest.approx(float(row["usd_per_hour"]) / 3600)
    words = {key for key, value in row.items() if not value.replace(".", "").replace("e-", "").isdigit()}
    assert words == {
        "model", "mode", "policy", "worker_hardware", "server_hardware", "colocated", "placement", "cluster",
        "bottleneck", "fits_memory", "number_format", "exchange.kind", "exchange.host", "exchange.placement",
        "exchange.policy", "exchange.mode", "exchange.aggregate", "rented.workers.machine",
        "rented.servers.machine",
        "range_basis", "recompute", "device", "energy_method", "spot", "tokens_per_s",
        "usd_per_billion_tokens", "job_tokens",
    }  # fmt: skip


def test_more_steps_for_a_precision_that_was_not_reached():
    args = ("simulate", *SMALL[:-1], "0.001", "--workers", "2", "--servers", "1", "--format", "json")
    few, more = (json.loads(planner(*args, "--max-steps", most).stdout) for most in ("300", "3000"))
    assert "within 300 steps a worker; raise max_steps" in few["notes"][0]
    assert more["prediction"]["steps"] > 3 * few["prediction"]["steps"]
    assert more["prediction"]["precision"] < few["prediction"]["precision"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("recommend", "--model", "vgg1"), 2, "vgg11"),
        (("recommend", "--model", "vgg11", "--hardware", "p33.2xlarge"), 2, "p3.2xlarge"),
        (("recommend", "--model", "vgg11", "--budget", "0.01"), 1, "over the budget"),
        (("recommend", "--model", "vgg11", "--budget", "-1"), 2, "--budget"),
        (("recommend", "--model", "vgg11", "--deadline", "3x"), 2, "36h, 90min or 2d"),
        (("recommend", "--model", "vgg11", "--epochs", "1", "--samples", "5"), 2, "--epochs and --samples"),
        (("recommend", "--model", "vgg11", "--epochs", "-1"), 2, "--epochs is -1"),
        (("recommend", "--model", "vgg11", "--trials", "5"), 2, "--search optuna"),
        (("recommend", "--model", "vgg11", "--batch", "many"), 2, "--batch"),
        (("recommend", "--config", "nowhere.toml"), 2, "nowhere.toml"),
        (("recommend",), 2, "--model"),
        (("saturation", "--model", "vgg11", "--hardware", "p3.*"), 2, "--hardware names"),
        (("simulate", "--model", "vgg11", "--batch", "100000"), 1, "largest batch that fits"),
        (
            ("simulate", "-m", "vgg11", "-w", "2", "--servers", "3", "--server-hardware", "colocated"),
            2,
            "3 servers beside the workers need 3 machines, one each, and 2 x g5.xlarge are 2; give fewer",
        ),
        (("simulate", "--profile", "nowhere.json.gz"), 2, "nowhere.json.gz"),
        (("simulate", "--model", "vgg11", "--max-steps", "0"), 2, "--max-steps is 0"),
        (("compare", "--model", "resnet50", "--hardware", "c4.large", "-w", "2"), 1, "network figure"),
        (("simulate", "--model", "resnet50", "--bandwidth", "10"), 2, "unit"),
        (
            ("simulate", "--model", "resnet50", "--hardware", "lambda-8x-h100-sxm5", "-w", "16"),
            2,
            "NIC of lambda-8x-h100-sxm5 is not published; give --bandwidth",
        ),
    ],
)
def test_bad_input_is_one_line(args, code, words):
    done = planner(*args)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "variables", "words"),
    [
        ((), {"PLANNER_SEED": "abc"}, "'--seed' (from PLANNER_SEED): "),
        (
            (),
            {"PLANNER_INTERVAL_WIDTH": "2"},
            "--interval-width (from PLANNER_INTERVAL_WIDTH) is 2; it must lie",
        ),
        ((), {"PLANNER_WORKERS": "many"}, "--workers (from PLANNER_WORKERS) is 'many'; write whole numbers"),
        (("--interval-width", "3"), {"PLANNER_INTERVAL_WIDTH": "2"}, "--interval-width is 3; it must lie"),
        (("--workers", "many"), {"PLANNER_WORKERS_PER_REPLICA": "1"}, "--workers is 'many'; write"),
    ],
)
def test_wrong_value_of_a_variable_names_it(flags, variables, words):
    done = planner("simulate", "--model", "vgg11", *flags, **variables)
    assert done.returncode == 2
    assert words in done.stderr


def test_flag_with_two_names_has_a_variable_too():
    spot = planner("simulate", *SMALL, "--format", "json", PLANNER_SPOT="1")
    assert json.loads(spot.stdout)["request"]["spot"] is True


def test_flag_over_environment_over_file(tmp_path):
    config = tmp_path / "mine.toml"
    config.write_text(
        'model = "alexnet"\nbatch = 64\nhardware = "p3.2xlarge"\nworkers = 1\ninterval_width = 0.05\n'
    )
    base = ("simulate", "--config", str(config), "--format", "json")
    assert json.loads(planner(*base).stdout)["plan"]["workers"] == 1
    by_env = planner(*base, PLANNER_WORKERS="2")
    assert json.loads(by_env.stdout)["plan"]["workers"] == 2
    by_flag = planner(*base, "--workers", "3", PLANNER_WORKERS="2")
    assert json.loads(by_flag.stdout)["plan"]["workers"] == 3
