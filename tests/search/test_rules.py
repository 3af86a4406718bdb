"""The rules that an answer depends on, one by one: limits of time and money, advice, bounds that are near."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import planner
from planner.answers.advise import SHOWN, _best_of_each_kind, next_changes
from planner.answers.choice import choose
from planner.answers.curve import worker_counts
from planner.answers.questions import parse_request, simulation_for
from planner.answers.results import Change, Recommendation
from planner.hardware.catalog import load_hardware
from planner.parallel.plan import Plan
from planner.report.assumed import notes_of
from planner.search.cases import Cases
from planner.search.flag_values import CONFIDENCE
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan, Training, plans_within_limits
from planner.search.simulations import Simulations
from planner.servers.parameter_servers import ParameterServers

SAMPLES = 1e6
SPACE = {
    "hardware": "p3.2xlarge,c4.8xlarge",
    "server_hardware": "own",
    "workers": "1,2,4",
    "servers": "1",
    "batch": 64,
    "exchange": "servers",
    "workers_per_replica": "1",
    "interval_width": 0.05,
}


def recommended(**more: object) -> Recommendation:
    return planner.recommend("alexnet", **{**SPACE, **more})


@pytest.fixture(scope="module")
def free() -> Recommendation:
    """Without limits, so that every plan is simulated."""
    from planner.answers.recommend import recommend_for

    words = {key: str(value) if key == "batch" else value for key, value in SPACE.items()}
    request = parse_request(model="alexnet", samples=SAMPLES, **words)
    return recommend_for(request, exhaustive=True, advice=False)


def confident_s(plan: ScoredPlan) -> float:
    """The time within which the job ends with the default confidence."""
    return Training(SAMPLES, "").confident_s(plan, CONFIDENCE)


def test_deadline_keeps_the_plans_that_meet_it(free: Recommendation) -> None:
    plans = sorted(free.everything, key=confident_s, reverse=True)
    assert len(plans) >= 6
    for at in (1, 3, 5):
        for share, kept in ((1.0001, len(plans) - at), (0.9999, len(plans) - at - 1)):
            deadline_s = share * confident_s(plans[at])
            request = replace(free.request, deadline_s=deadline_s)
            assert plans_within_limits(plans, request) == plans[len(plans) - kept :]
    hours = 1.05 * confident_s(plans[-2]) / 3600
    result = recommended(samples=SAMPLES, deadline=f"{hours}h")
    assert result.everything
    assert {scored.plan.key for scored in result.everything} <= {plan.plan.key for plan in plans[-2:]}
    assert all(SAMPLES / scored.samples_per_s <= hours * 3600 for scored in result.everything)


def test_limit_on_spending_keeps_the_plans_that_meet_it(free: Recommendation) -> None:
    def confident_usd(plan: ScoredPlan) -> float:
        return confident_s(plan) / 3600 * plan.usd_per_hour

    plans = sorted(free.everything, key=confident_usd)
    for at in (0, 2, 4):
        for share, kept in ((1.0001, at + 1), (0.9999, at)):
            request = replace(free.request, spend_usd=share * confident_usd(plans[at]))
            assert plans_within_limits(plans, request) == plans[:kept]
    spend = 1.02 * confident_usd(plans[1])
    result = recommended(samples=SAMPLES, spend=spend)
    assert result.everything
    assert {scored.plan.key for scored in result.everything} <= {plan.plan.key for plan in plans[:2]}
    assert all(scored.usd_per_million_samples <= spend for scored in result.everything)


def test_least_throughput_keeps_the_plans_that_reach_it(free: Recommendation) -> None:
    plans = sorted(free.everything, key=lambda scored: scored.samples_per_s)
    least = plans[3].samples_per_s
    assert plans_within_limits(plans, replace(free.request, min_samples_per_s=least)) == plans[3:]
    assert plans_within_limits(plans, replace(free.request, min_samples_per_s=1.0001 * least)) == plans[4:]


def advice(host: str, workers: int, **more: object) -> list[Change]:
    request = Request(model="vgg11", batches=(32,), hardware=("g5.xlarge",), interval_width=0.02, **more)  # type: ignore[arg-type]
    cases = Cases(request, model_of(request))
    plan = Plan("vgg11", 32, "g5.xlarge", workers, ParameterServers(1, host))
    chosen = cases.score_plan(plan, cases.predict(plan))
    with ThreadPoolExecutor(2) as pool:
        return next_changes(chosen, Simulations(cases, pool))


def test_servers_with_a_slow_nic_are_advised_a_faster_one() -> None:
    """What limits vgg11 is the NIC of its server; the machine advised has a faster one, and is named."""
    slow = load_hardware("c5n.large")
    changes = {change.kind: change for change in advice(slow.name, 4)}
    assert "faster NIC" in changes
    change = changes["faster NIC"]
    host = change.scored.plan.exchange.host  # type: ignore[attr-defined]
    assert change.words == f"servers with a faster NIC ({host})"
    assert load_hardware(host).nic_bytes_per_s("baseline") > slow.nic_bytes_per_s("baseline")
    assert change.gain > 0.02
    assert change.scored.plan.workers == 4


def test_no_faster_nic_is_advised_where_there_is_none() -> None:
    """Neighbours have NICs that are faster, none as fast."""
    request = Request(model="vgg11", hardware=("g5.xlarge",))
    cases = Cases(request, model_of(request))
    plan = Plan("vgg11", 32, "g5.xlarge", 2, ParameterServers(1, "g5.xlarge"))
    site = cases.site(plan)
    now = site.market.nic_bytes_per_s(site.hardware)
    hosts = [
        variant.exchange.host for variant in plan.exchange.variants(site) if variant.change == "faster NIC"
    ]  # type: ignore[attr-defined]
    assert all(site.market.nic_bytes_per_s(load_hardware(host)) > now for host in hosts)
    assert "g5.xlarge" not in hosts


def test_best_change_of_each_kind_is_advised() -> None:
    changes = advice("c5n.large", 4)
    kinds = [change.kind for change in changes]
    assert len(set(kinds)) == len(kinds)
    assert len(kinds) <= SHOWN
    costs = [change.scored.usd_per_million_samples for change in changes]
    assert costs == sorted(costs)
    several = [replace(changes[0], words=f"{at}", kind=kind) for at, kind in enumerate("abacb")]
    assert [(entry.kind, entry.words) for entry in _best_of_each_kind(several)] == [
        ("a", "0"),
        ("b", "1"),
        ("c", "3"),
    ]


# plans whose simulation comes near the bound, and how near it comes; a bound a fifth looser would not
DEVICES = "servers:aggregate=device"
NEAR = [
    ({"model": "resnet50", "hardware": "c4.8xlarge", "workers": "1"}, 0.96),
    ({"model": "resnet50", "hardware": "p3.2xlarge", "workers": "1", "precision": "fp32"}, 0.92),
    ({"model": "vgg16", "hardware": "p3.2xlarge", "workers": "8", "precision": "fp32"}, 0.92),
    ({"model": "alexnet", "hardware": "p3.8xlarge", "workers": "8", "exchange": DEVICES}, 0.91),
    ({"model": "alexnet", "hardware": "p3.8xlarge", "workers": "8"}, 0.75),
    ({"model": "inception3", "hardware": "c4.8xlarge", "workers": "4", "mode": "sync"}, 0.88),
]


@pytest.mark.parametrize(
    ("words", "near"), NEAR, ids=lambda item: "-".join(item.values()) if isinstance(item, dict) else ""
)
def test_bounds_are_near(words: dict[str, str], near: float) -> None:
    asked = parse_request(
        servers="1", server_hardware="own", interval_width=0.02, **{"exchange": "servers"} | words
    )
    share = simulation_for(asked).scored.bound_share
    assert near <= share <= 1.0


def test_saturation_counts_whole_replicas() -> None:
    """Replicas of two workers: two, four, six workers; each point has whole ones, the bound too."""
    saturation = planner.saturation(
        "vgg16",
        hardware="c4.8xlarge",
        workers_per_replica="2",
        servers="2",
        server_hardware="own",
        placement="mxnet",
        max_workers=6,
        interval_width=0.05,
    )
    assert [point.workers for point in saturation.points] == [2, 4, 6]
    assert {point.scored.plan.mesh.size for point in saturation.points} == {2}
    assert [point.scored.plan.replicas for point in saturation.points] == [1, 2, 3]
    assert saturation.points[0].efficiency == 1.0
    result = saturation.points[0].scored
    assert result.usd_per_hour == pytest.approx(4 * load_hardware("c4.8xlarge").price.on_demand_usd_per_hour)


def test_synchronous_training_is_recommended_where_it_is_asked_for() -> None:
    result = recommended(mode="sync")
    assert {scored.plan.exchange.mode for scored in result.everything} == {"sync"}  # type: ignore[attr-defined]
    assert result.chosen.prediction.staleness_max == 0
    assert result.chosen.as_dict()["mode"] == "sync"
    assert "Training: synchronous SGD with parameter servers." in map(str, notes_of(result.assumptions))


def test_marks_are_on_the_plans_that_they_name(free: Recommendation) -> None:
    """The cheapest a sample, the fastest, and for each goal the plan that has its mark."""
    plans = [  # the costlier per hour, the faster, but less than in proportion
        replace(scored, prediction=replace(scored.prediction, samples_per_s=100 * scored.usd_per_hour**0.5))
        for scored in free.everything
    ]
    costs = {plan.plan.key: plan.usd_per_million_samples for plan in plans}
    speeds = {plan.plan.key: plan.samples_per_s for plan in plans}
    shown = choose(plans, free.request).shown
    marked = {mark: plan for plan in shown for mark in plan.marks}
    assert costs[marked["cheapest"].plan.key] == min(costs.values())
    assert speeds[marked["fastest"].plan.key] == max(speeds.values())
    assert min(costs.values()) < costs[marked["fastest"].plan.key]
    for goal in ("cheapest", "fastest", "balanced"):
        decision = choose(plans, replace(free.request, objective=goal))
        assert "recommended" in decision.recommended.marks
        assert decision.cheapest.plan == marked["cheapest"].plan
        assert decision.fastest.plan == marked["fastest"].plan


def test_machines_are_filled_before_another_is_looked_at() -> None:
    assert worker_counts(1, 32, 1, 8) == [1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32]
    assert worker_counts(1, 4, 1, 8) == [1, 2, 3, 4]
    assert worker_counts(1, 5, 1, 1) == [1, 2, 3, 4, 5]
    assert worker_counts(4, 16, 4, 4) == [4, 8, 12, 16]
