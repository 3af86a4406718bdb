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

from planner.errors import BadInput, enable_ascii_fallback
from planner.files.regular_file import write_file
from planner.report.output import Format, check_writable, emit, render
from planner.report.page import Column, Table
from planner.report.plan_rows import row_style
from planner.report.terminal import column_widths, fitting_columns, table_text

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


def test_empty_title_leaves_the_heading_empty_and_none_shows_the_key():
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
    rows = [{**row, "a": row["a"].encode("utf8", "ignore").decode()} for row in rows]
    assert json.loads(text := render(Table(rows), "json")) == rows
    assert all(line.isprintable() for line in text.split("\n"))
    rows = [{**row, "a": "".join(filter(str.isprintable, row["a"])).lstrip("=+-@")} for row in rows]
    read = list(csv.DictReader(io.StringIO(render(Table(rows), "csv"), newline="")))
    assert [(row["a"], int(row["b"])) for row in read] == [(row["a"], row["b"]) for row in rows]


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e\x9b1m\n"


@pytest.mark.parametrize("format", list(Format))
def test_names_do_not_act_on_a_terminal(format):
    """Not in cells, keys, titles nor notes, in no format."""
    table = Table([{"name": HOSTILE, HOSTILE: 1}], title=HOSTILE, notes=[HOSTILE])
    text = render(table, format)
    assert all(line.isprintable() for line in text.split("\n"))
    assert ("\\u001b" if format is Format.json else "\\x1b") in text


def test_text_that_begins_like_a_formula_is_text_in_csv_and_a_number_is_a_number():
    rows = [{"=key": text, "n": -1.5} for text in ("=1+1", "+1", "-1", "@x", "x=1")]
    assert render(Table(rows), "csv").splitlines() == [
        "'=key,n",
        *("'=1+1,-1.5", "'+1,-1.5", "'-1,-1.5", "'@x,-1.5", "x=1,-1.5"),
    ]


def test_stream_of_ascii_gets_the_nearest_characters_and_json_all_of_them(monkeypatch):
    def written(format):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        enable_ascii_fallback(stream)
        monkeypatch.setattr("sys.stdout", stream)
        emit(Table([{"name": "\u00b15 \u2588 caf\u00e9 \U0001f600"}]), format)
        stream.flush()
        return raw.getvalue().decode()

    assert "+-5 # caf\\xe9 \\U0001f600" in written("table")
    assert json.loads(written("json")) == [{"name": "\u00b15 \u2588 caf\u00e9 \U0001f600"}]


def test_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(0o640)
    emit(Table([{"a": 1}]), "json", path)
    assert json.loads(path.read_text()) == [{"a": 1}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((KeyboardInterrupt, BadInput)):
        write_file(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_output_that_cannot_be_is_refused_early(tmp_path):
    with pytest.raises(BadInput, match="no folder"):
        check_writable(tmp_path / "none" / "x.json")
    with pytest.raises(BadInput, match="is a folder"):
        check_writable(tmp_path)


def test_table_text_choice_stands_out_and_missed_limits_are_red():
    rows = [
        {"_choice": ">", "_label": "recommended"},
        {"_choice": "", "_label": "cheapest", "misses": None},
        {"_choice": "", "_label": "late", "misses": "misses the deadline"},
    ]
    assert [row_style(row) for row in rows] == ["bold green", "dim", "red"]
    lines = table_text(Table(rows, [Column("_label", "", style=row_style)], title="First.\nSecond."), 80)
    assert [(line.plain, str(line.style)) for line in lines[:2]] == [("First.", "bold"), ("Second.", "")]
    assert [str(line.spans[0].style) for line in lines[2:]] == ["bold bold green", "dim", "red"]


def test_fitting_columns_leave_out_spare_ones_highest_first():
    row = {"a": "x" * 20, "b": "y" * 20, "c": "z" * 20, "why": "word " * 10}
    columns = [
        Column("a"), Column("b", spare=2), Column("c", spare=1), Column("why", enough=12),
    ]  # fmt: skip

    def left(width: int) -> str:
        return "".join(column.key[0] for column in fitting_columns(Table([row], columns), width))

    assert [left(width) for width in (90, 70, 50, 36, 25)] == ["abcw", "acw", "aw", "aw", ""]


def test_column_widths_whole_columns_give_way_last():
    rows = [{"names": "3 x g7e.2xlarge + 1 server", "why": "misses the deadline by far"}]
    table = Table(rows, [Column("names", whole=True), Column("why")])
    assert column_widths(table, table.columns, 40) == [26, 12]
    assert column_widths(table, table.columns, 30) == [20, 8]


def test_csv_says_true_and_false_in_words_and_lists_in_brackets():
    rows = [{"a": True, "b": [1, "x"], "c": {"d": False, "e": {"f": 2}}}]
    assert render(Table(rows), "csv").splitlines() == ["a,b,c.d,c.e.f", 'true,"[1, ""x""]",false,2']
