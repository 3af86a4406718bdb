"""What others wrote and a wheel carries is listed with its licence, also in the bill of materials."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def installed():
    try:
        distribution("dnn-planner")
    except PackageNotFoundError:
        return False
    return True


LISTED = tomllib.loads((ROOT / "licenses/vendored.toml").read_text())["component"]


@pytest.mark.parametrize("one", LISTED, ids=lambda item: item["name"])
def test_licence_is_carried_for_each(one):
    text = (ROOT / one["text"]).read_text()
    assert "Copyright (c)" in text
    assert {"MIT": "Permission is hereby granted", "BSD-3-Clause": "Redistribution and use"}[
        one["licence"]
    ] in text


def test_versions_are_those_of_the_files():
    by_file = {entry["file"]: entry for entry in LISTED}
    plotly = by_file["planner/report/assets/plotly-basic.min.js"]
    assert f"v{plotly['version']}" in (ROOT / plotly["file"]).read_text()[:500]


def test_vendored_files_are_all_listed():
    minified = {str(path.relative_to(ROOT)) for path in (ROOT / "planner").rglob("*.min.*")}
    assert minified == {entry["file"] for entry in LISTED if entry["file"].endswith(".js")}


@pytest.mark.skipif(not installed(), reason="planner is not installed here")
def test_bill_of_materials():
    done = subprocess.run(
        [sys.executable, str(ROOT / "licenses/sbom.py"), "--extra", "cluster"],
        capture_output=True,
        text=True,
        check=True,
    )
    bill = json.loads(done.stdout)
    names = {entry["name"].lower() for entry in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "dnn-planner"
    assert names >= {"numpy", "scipy", "optuna", "distributed", "nanobind", "plotly.js-basic-dist-min"}
    assert not names & {"pytest", "ruff", "psycopg2-binary"}
    assert all(entry.get("licenses") for entry in bill["components"])
