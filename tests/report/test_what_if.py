"""The what-if: plans that were simulated, with their own figures, and sliders over values that they have."""

from dataclasses import replace

from report_answers import compared, recommended, saturated, simulated

from planner.report.page import page_of
from planner.report.plan_rows import what_if_spec
from planner.units import usd


def test_every_point_is_a_plan_that_was_simulated():
    result = recommended()
    spec = page_of(result).what_if()
    simulated_plans, chosen = [*result.everything, *result.plans], result.chosen.plan
    alike = [scored for scored in simulated_plans if scored.plan.precision == chosen.precision]
    machines = {scored.plan.machine for scored in alike}
    # a machine that has not run the choice's number format is there with what it has
    others = [scored for scored in simulated_plans if scored.plan.machine not in machines]
    known = {(scored.samples_per_s, scored.usd_per_million_samples) for scored in [*alike, *others]}
    assert {(point["x"], point["y"]) for point in spec["points"]} == known
    assert all(entry[0].key not in str(spec) for entry in result.bounded)


def test_slider_has_the_values_of_the_plans_and_any():
    result = compared()
    spec = page_of(result).what_if()
    plans = [*result.rows, *result.everything]
    sliders = {slider["key"]: slider for slider in spec["sliders"]}
    workers = sorted({plan.plan.workers for plan in plans})
    assert sliders["workers"]["values"] == [*workers[:-1], None]
    assert sliders["workers"]["words"] == [*(f"at most {count}" for count in workers[:-1]), "any"]
    prices = sorted({plan.usd_per_hour for plan in plans})
    assert sliders["usd"]["values"] == [*prices[:-1], None]
    assert "batch" not in sliders  # all have the same: nothing to slide
    assert {entry["start"] for entry in spec["sliders"]} >= {len(sliders["workers"]["words"]) - 1}


def test_what_if_begins_within_the_requested_budget():
    result = recommended()
    prices = sorted(scored.usd_per_hour for scored in result.everything)
    asked = (prices[0] + prices[-1]) / 2
    spec = what_if_spec(result.everything, result.chosen, replace(result.request, budget_usd_per_hour=asked))
    slider = next(entry for entry in spec["sliders"] if entry["key"] == "usd")
    assert slider["values"][slider["start"]] == max(price for price in prices if price <= asked)


def test_words_and_cells_are_those_of_the_answer():
    result = saturated()
    spec = page_of(result).what_if()
    headings = [column["title"] for column in spec["columns"]]
    assert headings[:2] == ["machines", "run as"]
    outcome = result.points[1].scored
    point = next(point for point in spec["points"] if point["x"] == outcome.samples_per_s)
    assert outcome.plan.cluster_text in point["text"]
    assert f"{usd(outcome.usd_per_hour)}/h" in point["text"]
    assert point["cells"][headings.index("$/h")] == usd(outcome.usd_per_hour).removeprefix("$")
    assert point["rank"]["fastest"] == -outcome.samples_per_s
    assert point["rank"]["cheapest"] == outcome.usd_per_million_samples
    (chosen,) = [point for point in spec["points"] if point["chosen"]]
    assert spec["goal"] == "balanced"
    assert chosen["rank"]["balanced"] == min(point["rank"]["balanced"] for point in spec["points"])


def test_one_plan_leaves_nothing_to_ask():
    result = simulated()
    assert what_if_spec([result.scored], result.scored, result.request) == {}
    assert page_of(result).what_if is None
