"""Reports as text: what they weigh, what they hold, and that nothing from a file becomes markup."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from report_answers import (
    HOSTILE,
    NOTE,
    compared,
    hostile_model,
    many_plans,
    ordered,
    partitioned,
    profiled,
    recommended,
    saturated,
    simulated,
    swept,
)

from planner import units
from planner.answers.timeline import timeline_of
from planner.model.catalog import load_model
from planner.note import Note, Topic
from planner.report import charts, charts_curves, phrases
from planner.report.charts_curves import BINS, _bars
from planner.report.html import MOST_ROWS, render_page, script_json, tables_page, write_page
from planner.report.models import model_page
from planner.report.page import page_of, safe_text
from planner.report.profile import profile_page, ranked_bars_chart
from planner.report.recommend import _extra_plans
from planner.servers.partition.page import partition_page
from planner.simulator.cluster import COMPUTATION
from planner.simulator.step.summary import summarize
from planner.units import format_seconds

COMMAND = "planner recommend --model 'a b' --budget 20"


KINDS = {
    "recommend": lambda: page_of(recommended(), COMMAND),
    "compare": lambda: page_of(compared(), COMMAND),
    "saturation": lambda: page_of(saturated(), COMMAND),
    "simulate": lambda: page_of(simulated(), COMMAND),
    "order": lambda: page_of(ordered(), COMMAND),
    "sweep": lambda: page_of(swept(), COMMAND),
    "partition": lambda: replace(partition_page(partitioned(), HOSTILE), command=COMMAND),
    "tables": lambda: tables_page(partitioned(), "planner hardware", COMMAND),
    "model": lambda: replace(model_page(load_model(hostile_model())), command=COMMAND),
    "profile": lambda: replace(profile_page(profiled(), summarize(profiled(), 1e8)), command=COMMAND),
}


@cache
def page(kind):
    return KINDS[kind]()


class Elements(HTMLParser):
    """Which elements a page has, their addresses, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.handlers, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("kind", KINDS)
def test_page_is_one_file_that_says_how_to_get_it_again(kind):
    made = page(kind)
    text = render_page(made)
    elements = Elements(text)
    assert elements.addresses == []
    assert elements.handlers == []
    assert "img" not in elements.tags
    scripts = (
        1 + 3 * bool(made.charts) + (2 if made.what_if and made.what_if() else 0)
    )  # tables; charts, plotly, ours; sliders
    assert elements.tags.count("script") == scripts
    assert COMMAND in elements.text
    assert made.answer in elements.text
    assert all(cell in elements.text for cells in made.facts for cell in cells)
    assert len(text.encode()) < 2e6


def test_hostile_name_is_text_everywhere():
    elements = Elements(render_page(page("model")))
    assert HOSTILE in elements.text
    assert NOTE in elements.text
    text = render_page(page("recommend"))
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)[1]
    assert HOSTILE not in text
    assert safe_text(HOSTILE) == "&lt;img src=x onerror=alert(1)&gt;"  # as plotly must get it
    assert json.loads(data).keys() == {"pareto", "workers", "cost", "memory", "utilisation", "step"}


def test_json_in_a_script_cannot_end_it():
    value = {"a": "</script><!--", "b": [float("nan"), float("inf"), 1.5], "c": "\u2028&"}
    text = script_json(value)
    assert "<" not in text
    assert ">" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--", "b": [None, None, 1.5], "c": "\u2028&"}


def test_only_the_scripts_of_the_page_may_run():
    text = render_page(page("simulate"))
    allowed = set(re.findall(r"'(sha256-[^']+)'", text))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {
        "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    }
    assert allowed == hashes
    assert "default-src 'none'" in text


def plans_drawn(result) -> int:
    chart = next(chart for chart in page_of(result).charts if chart.key == "pareto")
    return sum(
        len(trace["x"])
        for trace in chart.spec["data"]
        if trace["mode"] == "markers" and trace["name"] not in ("chosen", "what-if")
    )


def test_every_plan_that_was_looked_at_is_drawn():
    result = recommended()
    keys = {scored.plan.key for scored in [*result.everything, *result.screened, *result.plans]}
    keys |= {plan.key for plan, _, _ in result.bounded}
    beside = {entry.plan.key for entry in _extra_plans(result)} - keys
    assert plans_drawn(result) == len(keys) + len(beside)
    assert result.simulated <= len(keys)
    searched = keys - {result.baseline.plan.key}  # one device alone stands beside
    assert result.considered == len(searched) + sum(
        count for reason, count in result.pruned.items() if reason != "by the bound"
    )


def test_comparison_draws_every_plan_too():
    result = compared()
    assert plans_drawn(result) == result.considered - sum(result.left_out.values())
    assert len(result.everything) + len(result.screened) == result.simulated


def test_workers_curve_shows_intervals_bound_ideal_and_saturation():
    result = saturated()
    spec = next(chart for chart in page_of(result).charts if chart.key == "workers").spec
    ideal, bound, simulated_line, *marked = spec["data"]
    assert marked[0]["x"] == [result.chosen.workers]
    outcome = result.points[0].scored.samples_per_s
    assert ideal["y"] == pytest.approx([outcome * point.workers for point in result.points])
    assert bound["y"] == [point.scored.bound_samples_per_s for point in result.points]
    highs = [y + up for y, up in zip(simulated_line["y"], simulated_line["error_y"]["array"], strict=True)]
    assert highs == pytest.approx([point.scored.range[1] for point in result.points])
    words = " ".join(note["text"] for note in spec["layout"]["annotations"])
    assert f"worth its cost up to {result.saturation_workers}" in words


def test_parts_of_the_cost_add_up():
    result = simulated()
    spec = next(chart for chart in page_of(result).charts if chart.key == "cost").spec
    total = sum(trace["x"][0] for trace in spec["data"])
    assert total == pytest.approx(result.scored.usd_per_million_samples)


def test_step_that_is_drawn_computes_as_long_as_the_profile_says():
    result = simulated()
    spec = next(chart for chart in page_of(result).charts if chart.key == "step").spec
    computes = next(trace for trace in spec["data"] if trace["name"] == "the worker computes")
    from planner.model.catalog import load_model
    from planner.search.cases import Cases

    profile = Cases(result.request, load_model("alexnet")).case(result.scored.plan).profile
    per_step = 1e3 * profile.durations_s[:, profile.resource == 1].sum(axis=1)
    assert per_step.min() * 0.999 <= sum(computes["x"]) <= per_step.max() * 1.001


def test_step_that_is_drawn_says_how_long_it_is_and_who_shares_the_links():
    result = simulated()
    for workers, words in (
        (1, "It is the only worker."),
        (2, "Another worker shares its links"),
        (5, "4 other workers share"),
    ):
        plan = replace(result.scored.plan, workers=workers)
        timeline = timeline_of(result.request, plan, steps=1)
        caption = charts_curves.step_timeline_chart(timeline).caption
        assert words in caption
        assert f", {format_seconds(timeline.end_s - timeline.start_s)} long" in caption


@pytest.mark.parametrize("count", [16, 17, 24, 25])
def test_bars_are_named_where_there_is_room(count):
    chart = ranked_bars_chart("key", "title", "MiB", [(f"layer{i}", "words", 1.0) for i in range(count)])
    assert ("ticktext" in chart.spec["layout"]["xaxis"]) == (count <= 24)
    assert ("ticktext" in chart.spec["narrow"]["xaxis"]) == (count <= 16)


def test_many_short_chunks_become_bins_as_dark_as_they_are_busy():
    names = ("a", "b")
    rows = np.zeros(2000, [("start_s", float), ("end_s", float), ("op", int), ("bytes", float)])
    rows["start_s"] = np.arange(2000) * 1e-3
    rows["end_s"] = rows["start_s"] + 0.25e-3
    rows["op"], rows["bytes"] = np.arange(2000) % 2, 1000.0
    bars = _bars(rows, names)
    assert len(bars) == BINS
    assert sum(bar.busy_s for bar in bars) == pytest.approx(0.5)
    assert sum(bar.bytes for bar in bars) == pytest.approx(2e6)
    assert all(bar.busy_s <= 1.01 * (bar.end_s - bar.start_s) for bar in bars)
    assert "% of it busy" in bars[5].hover_text
    assert [bar.hover_text.split("<br>")[0] for bar in _bars(rows[:2], names)] == ["<b>a</b>", "<b>b</b>"]


def test_thousand_plans_weigh_less_than_six_megabytes(tmp_path):
    path = tmp_path / "many.html"
    write_page(page_of(many_plans(1000)), path)
    assert 1e6 < path.stat().st_size < 6e6


def test_resource_below_capacity_is_called_busiest_and_not_red():
    result = simulated().scored

    def page(share):
        used = dict.fromkeys(result.prediction.utilisation, 0.1) | {COMPUTATION: share}
        scored = replace(
            result, prediction=replace(result.prediction, utilisation=used, bottleneck=COMPUTATION)
        )
        chart = charts.utilisation_chart(scored)
        cards = {
            figure.name: (figure.value, figure.more)
            for figure in phrases.plan_figures(scored, simulated().request)
        }
        return cards, chart.caption, chart.spec["data"][0]["marker"]["color"], charts.scored_words(scored)

    cards, caption, colours, hover = page(0.41)
    assert cards["busiest"] == ("41%", "compute")
    assert "bottleneck" not in cards
    assert caption.startswith("No resource is full; the busiest is compute.")
    assert "@mark" not in colours
    assert "<br>busiest: compute" in hover
    cards, caption, colours, hover = page(0.8)
    assert cards["bottleneck"] == ("80%", "compute")
    assert caption.startswith("The bottleneck, in red, is compute.")
    assert colours.count("@mark") == 1
    assert "<br>bottleneck: compute" in hover


def test_page_of_a_model_has_shares_and_no_bars_of_characters():
    page = replace(model_page(load_model(hostile_model())), command=COMMAND)
    bytes_table = page.tables[0]
    assert [column.key for column in bytes_table.columns] == [
        "tensor",
        "shape",
        "bytes",
        "share",
        "cumulative_share",
    ]


def test_money_is_shown_with_as_many_digits_as_it_needs():
    assert [units.usd(value) for value in (1234.5, 100, 43.921, 0.1, 0.0123)] == [
        "$1,234", "$100", "$43.92", "$0.10", "$0.012",
    ]  # fmt: skip
    assert [units.rate(value) for value in (21342, 1234.5, 100, 99.94)] == ["21,300", "1,230", "100", "99.9"]
    assert [units.money(value) for value in (999_999, float("inf"))] == ["999,999", "-"]
    assert [units.listing(list("abcd"), most) for most in (1, 3, 4)] == [
        "a and 3 more", "a, b, c and 1 more", "a, b, c and d",
    ]  # fmt: skip
    assert [units.ratio(value) for value in (0.42, 3.14, 12.3)] == ["0.42x", "3.1x", "12x"]
    assert [units.signed_rate(value) for value in (1240.0, -185.1)] == ["+1,240", "-185"]
    assert units.limit_usd(50.0) == "$50"


def test_page_says_what_it_rests_on_and_how_to_get_it_again_where_it_can():
    full = replace(
        page_of(simulated(), COMMAND), assumptions=[Note(Topic.PRICE, "one & only")], command=COMMAND
    )
    text = render_page(full)
    assert "<h2>Assumptions</h2>" in text
    assert '<tr><th scope="row">Price</th><td><p>one &amp; only</p></td></tr>' in text
    assert "<h2>Command</h2>" in text
    bare = render_page(replace(full, assumptions=[], command=""))
    assert "<h2>Assumptions" not in bare
    assert "<h2>Command" not in bare


def test_page_of_a_sweep_has_every_plan_in_its_chart_and_table():
    result = swept()
    made = page("sweep")
    (chart,) = made.charts
    assert sum(len(trace["x"]) for trace in chart.spec["data"] if trace["mode"] == "markers") == len(
        result.rows
    )
    assert len(made.tables[0].rows) == len(result.rows)
    assert len(made.what_if()["points"]) == len(result.rows)
    cheapest = min(result.rows, key=lambda row: row.usd_per_million_samples)
    assert f"{units.usd(cheapest.usd_per_million_samples)} per million samples" in made.facts[0]
    assert made.figures[-1].more == cheapest.plan.cluster_text


def test_several_models_have_a_chart_each_and_no_sliders():
    result = swept()
    other = [replace(row, plan=replace(row.plan, model="other")) for row in result.rows]
    made = page_of(replace(result, rows=[*result.rows, *other]))
    assert [chart.key for chart in made.charts] == ["pareto-0", "pareto-1"]
    assert made.charts[1].title.endswith(": other")
    for chart in made.charts:
        drawn = [trace for trace in chart.spec["data"] if trace["mode"] == "markers"]
        assert sum(len(trace["x"]) for trace in drawn) == len(other)
    assert made.what_if is None


def test_parts_of_an_epoch_add_up_in_the_chart():
    split, layers, _ = partitioned()
    charts_by_key = {chart.key: chart for chart in page("partition").charts}
    bars = charts_by_key["split"].spec["data"]
    whole = split.rows[-1]
    assert sum(bars[0]["x"]) == pytest.approx(whole["compute_s"])
    assert sum(bars[1]["x"]) == pytest.approx(whole["network_s"])
    assert len(charts_by_key["layers"].spec["data"][0]["x"]) == len(layers.rows)


def test_table_that_is_too_long_for_a_page_says_so():
    from planner.report.page import Table

    rows = [{"place": place} for place in range(MOST_ROWS + 5)]
    made = tables_page([Table(rows, title="Many")], "planner hardware")
    text = render_page(made)
    assert text.count("<tr") == MOST_ROWS + 1
    assert f"The first {MOST_ROWS:,} of {MOST_ROWS + 5:,} rows; JSON and CSV have all." in text
    assert made.answer == "Many"


def test_searched_machines_stand_with_the_assumptions():
    made = page("recommend")
    about = {note.heading: note.text for note in made.assumptions}
    assert f"{recommended().considered:,} plans considered" in about["Search"]
    bottleneck, _ = made.then
    assert bottleneck.label == "Bottleneck"
