"""The cells of examples/answers.ipynb run one after the other."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "answers.ipynb"


def test_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    cells = [
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    scope: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell, str(NOTEBOOK), "exec"), scope)
    assert isinstance(scope["plans"], pandas.DataFrame)
    assert scope["plans"]["samples_per_s"].max() >= scope["best"].samples_per_s  # type: ignore[attr-defined]
    printed = capsys.readouterr().out
    assert "per million samples" in printed
    assert "--budget" in printed  # the remedy of the request that nothing meets
