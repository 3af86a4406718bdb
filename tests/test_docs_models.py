"""docs/models.md tells the truth: its example gives what it prints, its error is the one a user sees."""

import re
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.layers import FILE_KINDS
from planner.model.netlist._expand import File
from planner.report import models as report
from planner.report.output import render

DOCS = Path(__file__).parents[1] / "docs" / "models.md"
TEXT = DOCS.read_text()
EXAMPLE = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)[1]


def test_worked_example_prints_what_it_says(tmp_path):
    (tmp_path / "tiny.toml").write_text(EXAMPLE)
    model = load_model(tmp_path / "tiny.toml")
    said = re.search(r"```csv\n(.*?)```", TEXT, re.DOTALL)[1]
    assert render(report.model_tables(model), "csv") == said


def test_error_is_the_one_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(EXAMPLE.replace("conv = 16, kernel", "conv = 16, kernal", 1))
    with pytest.raises(BadInput) as error:
        load_model("tiny.toml")
    assert f"    planner: {error.value}\n" in TEXT


def test_example_over_text_is_gpt2(tmp_path):
    (tmp_path / "text.toml").write_text(re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)[1])
    model = load_model(tmp_path / "text.toml")
    assert model.parameters == load_model("gpt2").parameters == 124_439_808
    assert [len(model.blocks), model.sequence_length, model.macs] == [12, 1024, load_model("gpt2").macs]


def test_every_key_is_documented():
    for key in (*FILE_KINDS, *File.__struct_fields__):
        assert f"`{key}`" in TEXT or f"`[{key}]`" in TEXT or key == "layers", key
