import csv
import io
import json
import os
import stat
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.atomic import write_file
from planner.errors import BadInput
from planner.report.output import Column, Table, check_writable, emit, render

ROWS = [{"name": "a|b", "bytes": 1024, "share": 0.5}, {"name": "downlink[0]", "bytes": None, "share": 1.0}]
COLUMNS = [Column("name", "Name"), Column("bytes", "KiB", lambda b: f"{b / 1024:.1f}")]


def test_people_see_chosen_columns_and_csv_has_every_key():
    table = Table(ROWS, COLUMNS, title="All", notes=["a note"])
    text = render(table, "table")
    assert "downlink[0]" in text
    assert "1.0" in text
    assert "share" not in text
    assert text.splitlines()[0] == "All"
    assert "a note" in text
    assert render(table, "csv").splitlines() == ["name,bytes,share", "a|b,1024,0.5", "downlink[0],,1.0"]
    assert "| a\\|b | 1.0 |" in render(table, "markdown")


def test_an_empty_title_leaves_the_heading_empty_and_none_shows_the_key():
    rows = [{"figure": "price", "value": "$3", "used": 0.5}]
    text = render(Table(rows, [Column("used"), Column("value", "")]), "table")
    assert text.split() == ["used", text.split()[1], "0.5", "$3"]
    assert render(Table(rows, [Column("used"), Column("value", "")]), "markdown").startswith("| used |  |")
    bare = [Column("figure", ""), Column("value", "")]
    assert render(Table(rows, bare, title="All"), "table").splitlines() == ["All", "price  $3"]


def test_json_of_dataclasses_numpy_and_what_is_not_finite():
    @dataclass
    class Thing:
        size: float

    data = {"thing": Thing(float("inf")), "array": np.arange(2), "scalar": np.float64(0.1)}
    text = render(Table([]), "json", data=data)
    assert json.loads(text) == {"thing": {"size": None}, "array": [0, 1], "scalar": 0.1}


@given(st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.integers()}), min_size=1))
def test_csv_and_json_lose_nothing(rows):
    rows = [{**row, "a": row["a"].replace("\r", "").replace("\0", "")} for row in rows]
    rows = [{**row, "a": row["a"].encode("utf8", "ignore").decode()} for row in rows]
    read = list(csv.DictReader(io.StringIO(render(Table(rows), "csv"), newline="")))
    assert [(row["a"], int(row["b"])) for row in read] == [(row["a"], row["b"]) for row in rows]
    assert json.loads(render(Table(rows), "json")) == rows


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(0o640)
    emit(Table([{"a": 1}]), "json", path)
    assert json.loads(path.read_text()) == [{"a": 1}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_stops_the_writing_leaves_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((KeyboardInterrupt, BadInput)):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_an_output_that_cannot_be_is_refused_early(tmp_path):
    with pytest.raises(BadInput, match="no folder"):
        check_writable(tmp_path / "none" / "x.json")
    with pytest.raises(BadInput, match="is a folder"):
        check_writable(tmp_path)
