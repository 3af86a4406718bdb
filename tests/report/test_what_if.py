"""The what-if: plans that were simulated, with their own figures, and sliders over values that they have."""

from dataclasses import replace

from report_answers import compared, recommended, saturated, simulated

from planner.report.format import usd
from planner.report.page import page_of
from planner.report.what_if import what_if


def test_every_point_is_a_plan_that_was_simulated():
    result = recommended()
    spec = page_of(result).what_if()
    known = {
        (one.samples_per_s, one.usd_per_million_samples)
        for one in [*result.everything, *result.plans, *(point.scored for point in result.saturation.points)]
    }
    known |= {
        (change.scored.samples_per_s, change.scored.usd_per_million_samples) for change in result.changes
    }
    assert {(point["x"], point["y"]) for point in spec["points"]} == known
    assert all(one[0].key not in str(spec) for one in result.bounded)


def test_a_slider_has_the_values_of_the_plans_and_any():
    result = compared()
    spec = page_of(result).what_if()
    plans = [*result.rows, *result.everything]
    sliders = {slider["key"]: slider for slider in spec["sliders"]}
    workers = sorted({one.plan.workers for one in plans})
    assert sliders["workers"]["values"] == [*workers[:-1], None]
    assert sliders["workers"]["words"] == [*(f"at most {count}" for count in workers[:-1]), "any"]
    prices = sorted({one.usd_per_hour for one in plans})
    assert sliders["usd"]["values"] == [*prices[:-1], None]
    assert "batch" not in sliders  # all have the same: nothing to slide
    assert {one["start"] for one in spec["sliders"]} >= {len(sliders["workers"]["words"]) - 1}


def test_it_begins_within_the_budget_that_was_asked_for():
    result = recommended()
    prices = sorted(one.usd_per_hour for one in result.everything)
    asked = (prices[0] + prices[-1]) / 2
    spec = what_if(result.everything, replace(result.request, budget_usd_per_hour=asked))
    slider = next(one for one in spec["sliders"] if one["key"] == "usd")
    assert slider["values"][slider["start"]] == max(price for price in prices if price <= asked)


def test_words_and_cells_are_those_of_the_answer():
    result = saturated()
    spec = page_of(result).what_if()
    headings = [column["title"] for column in spec["columns"]]
    assert headings[:2] == ["machines", "run as"]
    one = result.points[1].scored
    point = next(point for point in spec["points"] if point["x"] == one.samples_per_s)
    assert one.plan.cluster_text in point["text"]
    assert f"{usd(one.usd_per_hour)}/h" in point["text"]
    assert point["cells"][headings.index("$/h")] == usd(one.usd_per_hour).removeprefix("$")
    assert point["rank"] == {"fastest": -one.samples_per_s, "cheapest": one.usd_per_million_samples}


def test_one_plan_leaves_nothing_to_ask():
    result = simulated()
    assert what_if([result.scored], result.request) == {}
    assert page_of(result).what_if is None
