"""`planner fit` and the flags of training methods from the command line."""

from __future__ import annotations

import json

import pytest
from test_answers_command import planner, valid


def test_fit_prints_one_table_of_methods_by_gpus():
    done = planner("fit", "--model", "llama3-8b", "--gpu", "RTX-4090,L4")
    assert done.returncode == 0
    assert done.stdout.count("QLoRA, nf4 base") == 3  # in the verdict and once per GPU
    assert done.stdout.startswith("Cheapest     llama3-8b (8.03 billion parameters): QLoRA, nf4 base on ")
    assert "3 epochs over 10 million tokens" in done.stdout


def test_fit_as_json_has_a_row_per_gpu_and_method():
    done = planner("fit", "--model", "llama3-8b", "--gpu", "L4", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 4
    assert {row["fits"] for row in rows} == {True, False}


def test_simulate_with_a_training_method_keeps_the_schema():
    done = planner(
        *(
            "simulate",
            "--model",
            "llama3-8b",
            "--train",
            "qlora",
            "--hardware",
            "g5.xlarge",
            "--workers",
            "1",
        ),
        *("--format", "json"),
    )
    data = valid(json.loads(done.stdout), "simulation")
    assert "3 epochs" in json.dumps(data) or data["plan"]["job_tokens"] == pytest.approx(30e6, rel=0.001)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--train", "lora", "--rank", "0"), "--rank is 0; it must be 1 to 65,536"),
        (("--train", "full", "--base", "nf4"), "take --train qlora"),
        (("--train", "lora", "--targets", "mlp"), "all-linear, attention"),
        (("--optimizer", "lamb"), "adamw-8bit"),
    ],
)
def test_bad_settings_of_methods_end_in_one_line(args, words):
    done = planner("simulate", "--model", "llama3-8b", "--hardware", "g5.xlarge", *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
