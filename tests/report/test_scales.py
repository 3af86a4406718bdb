"""Labels of marked plans: all there, apart, and inside of the plot."""

from itertools import combinations

import pytest
from report_answers import twenty_machines

from planner.report.charts import PLOT, _has_overlap, _label_box, label_annotations
from planner.report.plots import PlotScale


def test_labels_of_neighbours_are_apart_and_inside():
    plans = twenty_machines().plans
    x = PlotScale.spanning(plan.samples_per_s for plan in plans)
    y = PlotScale.spanning(plan.usd_per_million_samples for plan in plans)
    labels = label_annotations(plans, x, y)
    assert {label["text"] for label in labels} == {"cheapest", "fastest", "best value"}
    marked = {", ".join(plan.marks): plan for plan in plans if plan.marks}
    boxes = []
    for label in labels:
        plan = marked[label["text"]]
        up = y.position(plan.usd_per_million_samples)
        boxes.append(
            _label_box(label["text"], x.position(plan.samples_per_s), up, label["xanchor"], label["ay"])
        )
    assert not any(_has_overlap(*pair) for pair in combinations(boxes, 2))
    assert all(left > 0 and top > 0 and bottom < PLOT[1] for left, top, _, bottom in boxes)


def _per_decade(axis):
    """Ticks from 1 up to 10; None where plotly chooses."""
    return sum(1 <= value < 10 for value in axis["tickvals"]) if "tickvals" in axis else None


@pytest.mark.parametrize(
    ("values", "log", "wide", "narrow"),
    [
        ([10, 79], False, None, None),
        ([10, 81], True, 3, 3),
        ([1, 50], True, 3, 1),
        ([1, 1000], True, 1, 1),
    ],
)
def test_axis_has_as_many_ticks_as_there_is_room_for(values, log, wide, narrow):
    scale = PlotScale.spanning(values)
    assert scale.log is log
    assert _per_decade(scale.axis("x", wide=True)) == wide
    assert _per_decade(scale.axis("x")) == narrow


def test_value_stands_where_its_axis_has_it():
    log = PlotScale.spanning([1, 100])
    assert log.position(10) == pytest.approx(0.5)
    assert log.plotly_coordinate(10) == pytest.approx(1.0)
    plain = PlotScale.spanning([0.0, 5.0, float("inf")])
    assert (plain.position(5.0), plain.plotly_coordinate(5.0)) == (1.0, 5.0)
