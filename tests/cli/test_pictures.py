"""The flags that draw, from the command line to the file."""

import gzip
import json
import os
import subprocess
import sys

import pytest


def planner(*words, cwd, **variables):
    return subprocess.run(
        [sys.executable, "-m", "planner", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | variables,
        check=False,
    )


def test_simulate_writes_a_report_and_a_timeline_beside_its_table(tmp_path):
    words = ["simulate", "--model", "alexnet", "--workers", "2", "--servers", "1", "--interval-width", "0.2"]
    words += ["--html", "a b.html", "--timeline", "out.json.gz", "--timeline-steps", "1"]
    done = planner(*words, cwd=tmp_path, PLANNER_SEED="7")
    assert done.returncode == 0
    assert "1 epoch of alexnet in" in done.stdout
    assert "⠒" not in done.stdout
    page = (tmp_path / "a b.html").read_text()
    assert "PLANNER_SEED=7 planner simulate --model alexnet --workers 2" in page
    assert "--html &#x27;a b.html&#x27;" in page
    trace = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "s", "f", "C", "M"}
    assert trace["otherData"]["cluster"].startswith("2 x ")


def test_model_and_a_profile_can_be_drawn(tmp_path):
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.synthesis import profile_for
    from planner.simulator.step.files import save

    save(profile_for(load_model("alexnet"), 8, load_hardware("p3.2xlarge")), tmp_path / "p.json.gz")
    assert planner("models", "alexnet", "--html", "m.html", cwd=tmp_path).returncode == 0
    shown = planner("profile", "show", "p.json.gz", "--bandwidth", "1Gbit", "--html", "p.html", cwd=tmp_path)
    assert shown.returncode == 0
    assert "layer by layer" in (tmp_path / "m.html").read_text()
    assert "Gradients uploaded" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate", "--model", "alexnet", "--html", "none/x.html"], "no folder"),
        (["simulate", "--model", "alexnet", "--timeline", "none/x.json"], "no folder"),
        (["simulate", "--model", "alexnet", "--html", "-"], "need a file"),
        (["models", "--html", "none/x.html"], "no folder"),
        (
            ["simulate", "--model", "alexnet", "--timeline", "x.json", "--timeline-steps", "0"],
            "--timeline-steps",
        ),
    ],
)
def test_file_that_cannot_be_is_refused_before_the_work(tmp_path, words, says):
    done = planner(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
