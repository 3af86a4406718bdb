"""What an installation holds. `.ci/run` installs a built wheel and so runs this; an editable one skips it."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

import pytest

try:
    FILES = [PurePosixPath(str(file)) for file in distribution("dnn-planner").files or []]
except PackageNotFoundError:
    FILES = []
CHECKOUT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    any(file.suffix == ".pth" for file in FILES) or not FILES, reason="planner is installed editable"
)


def test_installation_adds_only_planner():
    inside = [file for file in FILES if file.parts[0] != ".."]
    assert {file.parts[0].partition("-")[0] for file in inside} == {"planner", "dnn_planner"}
    outside = {file.name for file in FILES if file.parts[0] == ".."}
    assert outside == {"planner"}  # the command


def test_no_sources_of_the_engine():
    assert [file for file in FILES if file.suffix in (".cpp", ".hpp", ".h")] == []


def test_whole_catalog_is_carried():
    carried = {"/".join(file.parts[2:]) for file in FILES if file.parts[:2] == ("planner", "catalog_data")}
    here = {
        str(path.relative_to(CHECKOUT))
        for kind in ("models", "hardware", "configs")
        for path in (CHECKOUT / kind).rglob("*")
        if path.suffix in (".toml", ".csv")
    }
    assert carried == here


def test_installed_planner_finds_its_catalog(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "planner", "models", "resnet50", "--format", "csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") > 50


def test_reports_find_their_charts():
    names = {file.name for file in FILES if file.parts[:3] == ("planner", "report", "assets")}
    assert names >= {"plotly-basic.min.js", "plotly-LICENSE.txt", "page.js", "page.css"}
