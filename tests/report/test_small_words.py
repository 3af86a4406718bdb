"""Small parts of reports that stand in few answers: what they say when they do."""

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from planner.answers.answer_files import ChangedFigure, Difference
from planner.model.catalog import load_model
from planner.report import simulate as check
from planner.report.charts_curves import _lane_kind, _lane_name
from planner.report.html import FEW_ALIKE, _sentences_html
from planner.report.models import model_tables
from planner.report.output import to_json
from planner.report.page import plain_text
from planner.report.plots import PlotScale
from planner.report.prices import imports_table
from planner.report.simulate import breakdown_tables
from planner.report.validation import has_drifted
from planner.simulator.cluster import FABRIC, NETWORK, Cluster, Node
from planner.simulator.step import DOWNLINK, UPLINK, WORKER


def test_values_of_a_table_in_words():
    assert plain_text([True, False, 1234567, 0.123456, "x"]) == "yes, no, 1,234,567, 0.1235, x"
    assert plain_text((1, 2)) == "1, 2"


def test_json_holds_what_numpy_and_paths_hold():
    data = {"a": np.array([1.5, 2.0]), "b": np.int64(3), "c": Path("x/y")}
    assert json.loads(to_json(data)) == {"a": [1.5, 2.0], "b": 3, "c": "x/y"}


def test_many_sentences_alike_are_folded_behind_the_first():
    few = [f"{n} & more" for n in range(FEW_ALIKE)]
    assert _sentences_html(few) == "".join(f"<p>{n} &amp; more</p>" for n in range(FEW_ALIKE))
    text = _sentences_html([*few, "last"])
    assert text.startswith("<p>0 &amp; more</p><details>")
    assert f"<summary>and {FEW_ALIKE} more</summary>" in text
    assert text.endswith("<p>last</p></details>")


def test_anatomy_tables_of_nothing_are_empty():
    assert breakdown_tables(None) == []


def test_ticks_of_many_powers_of_ten_are_the_powers():
    assert PlotScale(1.0, 1e6, log=True).ticks(3) == [10.0**n for n in range(7)]
    assert PlotScale(1.0, 1e3, log=True).ticks(5) == [1.0, 10.0, 100.0, 1000.0]
    assert PlotScale(1.0, 20.0, log=True).ticks(5) == [1.0, 2.0, 5.0, 10.0, 20.0]
    assert PlotScale(1.0, 100.0, log=True).ticks(5) == [1.0, 3.0, 10.0, 30.0, 100.0]
    assert PlotScale(20.0, 90.0, log=True).ticks(4) == [20.0, 40.0, 60.0, 80.0]


def test_no_kept_runs_are_said_so_and_kept_ones_are_numbered(monkeypatch):
    monkeypatch.setattr(check, "load_runs", list)
    assert list(check.saved_run_lines()) == [
        "no runs are kept; `planner check ANSWER.json --measured RATE` keeps one"
    ]
    run = SimpleNamespace(
        as_of="2026-11-18",
        device="T4",
        reach="machine",
        model="alexnet",
        precision="fp32",
        measured_samples_per_s=900.0,
        predicted_samples_per_s=1000.0,
        factor=0.9,
        note="",
    )
    noted = SimpleNamespace(**vars(run) | {"note": "at night"})
    monkeypatch.setattr(check, "load_runs", lambda: [run, noted])
    first = "2026-11-18  T4, one machine, alexnet in fp32: 900 of 1,000 samples/s, factor 0.9"
    assert list(check.saved_run_lines()) == [f"1  {first}", f"2  {first} (at night)"]


def test_figure_has_moved_by_two_percent_or_in_words():
    assert not has_drifted("100 ms", "101 ms")
    assert has_drifted("100 ms", "103 ms")
    assert has_drifted("100 ms", "100 s")
    assert has_drifted("100 ms", "100 to 100 ms")
    assert not has_drifted("10%", "11%")
    assert has_drifted("10%", "12%")


def test_diff_lists_settings_after_figures():
    speed = ChangedFigure("samples/s", "100", "150", 1.5)
    setting = ChangedFigure("workers", "1", "2")
    page = check.diff_page(Difference((setting,), (speed,), apart=True))
    figures, settings = page.tables
    assert page.answer == "Change: +50.0% samples/s"
    assert [row["name"] for row in figures.rows] == ["samples/s"]
    assert figures.columns[-1].cell(figures.rows[0]) == "+50.0%"
    assert not figures.notes
    assert settings.title == "Settings that differ"
    assert settings.rows == [{"name": "workers", "old": "1", "new": "2", "ratio": None}]
    page = check.diff_page(Difference((), (speed,), apart=False))
    assert page.then[0].sentences == ["the same."]
    assert page.tables[0].notes == ["The speeds are statistically tied: a run may show the other order."]


def imported(prices, counting, far=0, left_out=None):
    return SimpleNamespace(
        list=SimpleNamespace(
            provider="aws",
            format="csv",
            rows=9,
            quotes=[1, 2],
            price_count=prices,
            left_out=left_out or {},
        ),
        as_of=date(2026, 11, 18),
        dated_by_file=False,
        saved=Path("aws.toml"),
        counting=counting,
        far=far,
    )


def test_imported_prices_say_how_many_do_not_count():
    assert imports_table([imported(5, 5)]).notes == ["Saved as aws.toml."]
    notes = imports_table([imported(5, 3, 1, {"of no region": 2})]).notes
    assert notes[1] == "aws: left out 2 of no region."
    assert notes[2] == "aws: 2 prices are older than the catalog's, which stay in use."
    assert notes[3].startswith("aws: 1 prices differ")
    assert len(notes) == 4


@pytest.mark.parametrize(
    ("resource", "channel", "lane", "kind"),
    [
        (WORKER, 0, "worker", ("the worker computes", "@c3")),
        (WORKER, 1, "worker", ("the worker computes", "@c3")),
        (DOWNLINK, 0, "from server 0", ("parameters arrive", "@c1")),
        (UPLINK, 0, "to server 0", ("gradients leave", "@c2")),
        (DOWNLINK, 1, "fabric", ("exchange over the fabric", "@c2")),
        (UPLINK, 2, "network", ("exchange over the network", "@c1")),
    ],
)
def test_lanes_between_workers_are_named_by_their_link(resource, channel, lane, kind):
    node = Node(1e9, 1e9)
    links, names = (((0, 1), (0, 1)),), (FABRIC, NETWORK)
    timeline = SimpleNamespace(cluster=Cluster((node, node), (0,), (1,), links=links, link_resources=names))
    assert _lane_name(timeline, resource, channel) == lane
    assert _lane_kind(timeline, resource, channel) == kind


def test_bytes_of_a_model_are_told_by_kind_of_layer_the_most_first():
    model = load_model("alexnet")
    (said,) = [str(note) for table in model_tables(model) for note in table.notes if "by kind" in str(note)]
    shares = [
        sum(layer.bytes for layer in model.layers if layer.kind == kind) / model.bytes
        for kind in ("fc", "conv", "bias")
    ]
    assert sum(shares) == pytest.approx(1.0)
    assert said == "Bytes by kind of layer: fc {:.1%}, conv {:.1%}, bias {:.1%}.".format(*shares)
