"""Charts of curves: what is coloured, and what is said below."""

from dataclasses import replace

from report_answers import saturated, simulated

from planner.report.charts_curves import servers_chart, utilisation_by_workers_chart


def with_sizes(advised, workers):
    """One, two and three servers, each a tenth faster than one less."""
    result = simulated().scored
    plans = [
        replace(
            result,
            plan=replace(result.plan, workers=workers),
            prediction=replace(result.prediction, samples_per_s=result.samples_per_s * (1 + count / 10)),
        )
        for count in range(3)
    ]
    return replace(saturated(), sizes=list(enumerate(plans, 1)), size_advised=advised)


def test_as_many_servers_as_pay_off_are_coloured():
    curve = with_sizes(2, workers=1)
    chart = servers_chart(curve)
    (bars,) = chart.spec["data"]
    assert bars["x"] == [1, 2, 3]
    assert bars["y"] == [scored.samples_per_s for _, scored in curve.sizes]
    assert bars["marker"]["color"] == ["@faint", "@c1", "@faint"]
    assert chart.caption.startswith("With 1 worker, each number of servers")
    assert chart.caption.endswith("Coloured: 2, the most that pay off.")
    assert chart.title == "Throughput against servers"
    assert servers_chart(with_sizes(2, workers=2)).caption.startswith(
        "With 2 workers, each number of servers"
    )


def test_saturation_chart_within_error_has_no_coloured_points():
    chart = servers_chart(with_sizes(None, workers=2))
    assert set(chart.spec["data"][0]["marker"]["color"]) == {"@faint"}
    assert chart.caption.endswith("The number that pays off is within the simulation error.")


def test_every_worker_has_a_tick_up_to_twelve():
    result = saturated()
    ticks = utilisation_by_workers_chart(result).spec["layout"]["xaxis"]["dtick"]
    assert ticks == (1 if result.points[-1].workers <= 12 else None)
    for workers, tick in ((12, 1), (13, None)):
        last = replace(result.points[-1], workers=workers)
        curve = replace(result, points=[*result.points[:1], last])
        assert utilisation_by_workers_chart(curve).spec["layout"]["xaxis"]["dtick"] == tick
    for trace in utilisation_by_workers_chart(result).spec["data"]:
        assert trace["x"] == [point.workers for point in result.points]
        assert trace["line"]["color"] in {f"@c{n}" for n in range(1, 9)}
