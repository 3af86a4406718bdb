import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import planner
from planner.answers.curve import doublings, find_turning_points
from planner.answers.questions import parse_request, simulation_for, single_plan
from planner.answers.saturation import _advised_server_count, saturation_for
from planner.errors import BadInput, Infeasible
from planner.report.assumed import notes_of
from planner.report.page import page_of
from planner.report.saturation import saturation_page, saturation_sentence
from planner.search.request import Request
from planner.search.simulations import relative_gain
from planner.simulator.cluster import COMPUTATION, ResourceKind


def _said(curve):
    """The sentences of a curve's page before its table."""
    return " ".join(sentence for remark in page_of(curve).why for sentence in remark.sentences)


ALEXNET = Request(
    model="alexnet",
    batches=(64,),
    hardware=("p3.2xlarge",),
    exchanges=(("servers", {}),),
    servers=(1,),
    network="burst",
    interval_width=0.02,
)


def test_link_that_is_full_saturates():
    curve = saturation_for(ALEXNET, jobs=2, max_workers=8)
    rates = [point.scored.samples_per_s for point in curve.points]
    assert max(rates) <= curve.ceiling_samples_per_s
    assert curve.saturation_workers == 4
    usd = [point.scored.usd_per_hour for point in curve.points]
    least = min(price / rate for price, rate in zip(usd, rates, strict=True))
    value = [2 * least * rate - price for price, rate in zip(usd, rates, strict=True)]
    assert value.index(max(value)) == curve.saturation_workers - 1
    assert curve.peak_workers is not None
    assert rates[curve.peak_workers - 1] == max(rates)
    assert curve.bottleneck.kind in (ResourceKind.DOWNLINK, ResourceKind.UPLINK, ResourceKind.PS)
    counts = [count for count, _ in curve.sizes]
    assert counts == [1, 2, 3, 4, 6, 8][: len(counts)]
    # Servers are added until one adds less than a tenth; those before it are advised where the gain is clear.
    predictions = [scored.prediction for _, scored in curve.sizes]
    gains = [relative_gain(now, more) for now, more in pairwise(predictions)]
    assert all(added >= 0.1 for added, _ in gains[:-1])
    added, error = gains[-1]
    assert added < 0.1
    assert curve.size_advised == (counts[-2] if 0.1 - added > error else None)


def test_saturation_names_exposed_communication_where_links_are_full():
    """Alone it waits for nothing; what two of them fill is the link between their machines."""
    asked = replace(
        ALEXNET,
        model="resnet50",
        hardware=("g5.xlarge",),
        exchanges=(("allreduce", {}),),
        servers=None,
        network="baseline",
    )
    curve = saturation_for(asked, jobs=2, max_workers=2)
    assert curve.saturation_workers == 1
    assert curve.points[0].scored.prediction.bottleneck == COMPUTATION
    assert curve.bottleneck == curve.points[1].scored.prediction.bottleneck
    assert curve.bottleneck.kind is ResourceKind.LINK
    assert curve.limit == "exposed communication"


def test_saturation_not_reached_says_that_every_worker_is_worth_its_cost():
    asked = replace(ALEXNET, model="resnet50", hardware=("g4dn.xlarge",))
    curve = saturation_for(asked, jobs=2, max_workers=2)
    assert curve.saturation_workers is None
    assert curve.peak_workers is None
    assert curve.chosen.workers == 2
    assert "Up to 2 workers on g4dn.xlarge are worth their cost" in _said(curve)


@pytest.mark.parametrize(
    ("speeds", "efficiency", "turns"),
    [
        ([100, 200, 400, 800], 0.5, (3, None, 3)),  # in proportion
        ([100, 190, 270, 300], 0.5, (1, 3, 3)),  # the next two add 80 for what 200 cost at first
        ([100, 190, 270, 300], 0.05, (3, 3, 3)),
        ([100, 99, 98, 97], 0.5, (0, 1, 0)),
        ([100, 150.01, 200, 250], 0.5, (1, 2, 3)),  # the second adds 50 for 1, just within twice the cost
        ([100, 149.99, 200, 250], 0.5, (0, 2, 3)),
    ],
)
def test_turns_of_points(inception3, speeds, efficiency, turns):
    """Points of 1, 2, 4 and 8 workers at 1 USD per hour each."""
    first = inception3.points[0].scored

    def point(workers, speed):
        costs = (replace(first.costs[0], count=workers, usd_per_hour=float(workers)),)
        plan = replace(first.plan, workers=workers)
        return replace(
            first, plan=plan, costs=costs, prediction=replace(first.prediction, samples_per_s=speed)
        )

    points = [point(2**k, speed) for k, speed in enumerate(speeds)]
    result = find_turning_points(points, efficiency)
    assert (result.worth, result.doubled, result.peak) == turns


def test_doublings_keep_the_ends():
    assert doublings(list(range(8, 1025, 8))) == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert doublings(list(range(8, 1001, 8))) == [8, 16, 32, 64, 128, 256, 512, 1000]
    assert doublings([40, 80, 200]) == [40, 80, 200]
    assert doublings([8, 16, 24]) == [8, 16, 24]


@pytest.fixture(scope="module")
def inception3():
    """Two workers take turns at the server's link, which short runs do not come to; three do not."""
    return saturation_for(
        Request(model="inception3", hardware=("p3.2xlarge",), exchanges=(("servers", {}),)), jobs=2
    )


def test_wide_interval_gets_the_runs_of_simulate(inception3):
    wide = [point for point in inception3.points if point.scored.prediction.precision > 0.03]
    if not wide:
        pytest.skip("no interval is wide with the draws of this numpy")
    for point in wide:
        whole = simulation_for(replace(inception3.request, workers=(point.workers,), servers=(1,)))
        assert point.scored.prediction == whole.scored.prediction


def test_few_workers_are_not_cut_short(inception3):
    two = inception3.points[1].scored
    whole = simulation_for(replace(inception3.request, workers=(2,), servers=(1,)))
    assert two.samples_per_s == pytest.approx(whole.scored.samples_per_s, rel=0.01)


def test_no_server_is_advised_that_brings_nothing(inception3):
    assert inception3.size_advised == 1


def test_servers_within_the_error_are_not_judged(inception3):
    (_, first), (_, two) = inception3.sizes
    first = replace(first, prediction=measured(first.prediction, 115, 0.5))
    two = replace(two, prediction=measured(two.prediction, 126, 0.5))
    by_servers = [(1, first), (2, two)]
    assert _advised_server_count(by_servers, 0.1) is None
    assert _advised_server_count(by_servers, 0.05) == 2
    assert _advised_server_count(by_servers, 0.12) == 1
    unclear = replace(inception3, sizes=by_servers, size_advised=None)
    assert page_of(unclear).tables[1].title == (
        "1 server may be enough for 2 workers: 2 servers change throughput by +9.6% ± 0.6%, and 10% would be "
        "worth it."
    )


def _limit(curve):
    (remark,) = [remark for remark in page_of(curve).then if remark.label == "Limit"]
    return remark.sentences[0]


def measured(prediction, mean, half_width):
    return replace(
        prediction,
        samples_per_s=mean,
        samples_per_s_low=mean - half_width,
        samples_per_s_high=mean + half_width,
    )


def test_servers_beside_workers_are_judged_by_a_single_worker():
    """Four servers need four machines: the first point has four workers, and a tenth is that of one."""
    request = replace(ALEXNET, servers=(4,), server_hardware=("colocated",))
    curve = saturation_for(request, jobs=2, max_workers=6)
    rates = [point.scored.samples_per_s for point in curve.points]
    assert [point.workers for point in curve.points] == [4, 5, 6]
    single = rates[0] / 4
    assert all(more - now > 0.1 * single for now, more in pairwise(rates))


def test_fewer_workers_than_the_servers_need_are_refused():
    request = replace(ALEXNET, hardware=("p3.8xlarge",), servers=(2,), server_hardware=("colocated",))
    with pytest.raises(BadInput, match=r"--max-workers is 4, but .*p3\.8xlarge .* at least 5 workers"):
        saturation_for(request, max_workers=4)


def test_several_machines_where_one_is_needed():
    with pytest.raises(BadInput, match=r"--hardware names"):
        single_plan(replace(ALEXNET, hardware=("p3.*",)))


def test_batch_that_does_not_fit():
    with pytest.raises(Infeasible, match="largest batch that fits"):
        simulation_for(replace(ALEXNET, batches=(100_000,)))


def test_simulate_says_everything_of_a_plan():
    result = simulation_for(replace(ALEXNET, workers=(2,)))
    data = result.as_dict()
    assert data["plan"]["workers"] == 2
    assert data["prediction"]["samples_per_s"] == data["plan"]["samples_per_s"]
    assert set(data["prediction"]["utilisation"]) == {"downlink[0]", "worker", "host", "uplink[0]", "ps[0]"}


def test_second_server_needs_a_good_placement():
    """Li et al., Fig. 25h: greedy placement puts 407 of VGG-11's 507 MB on one server."""

    def rate(servers, placement):
        request = Request(
            model="vgg11",
            hardware=("p3.2xlarge",),
            exchanges=(("servers", {}),),
            workers=(8,),
            servers=(servers,),
            placements=(placement,),
            network="burst",
            interval_width=0.02,
        )
        return simulation_for(request).scored.samples_per_s

    first, greedy, split = rate(1, "greedy"), rate(2, "greedy"), rate(2, "mxnet")
    assert greedy / first < 1.35
    assert split / first > 1.45


def test_recorded_profile_of_an_unknown_network(tmp_path):
    """Three recorded steps of distributed TensorFlow; its model is not in the catalog."""
    files = sorted((Path(__file__).parents[1] / "data" / "tensorflow").glob("alexnet_ps1_step*.pb.gz"))
    profile = replace(planner.import_profile(files, batch=16), model="mine")
    request = Request(
        model="mine",
        profile=profile,
        hardware=("p3.2xlarge",),
        exchanges=(("servers", {}),),
        workers=(3,),
        servers=(2,),
        bandwidth_bytes_per_s=1.25e7,
    )
    result = simulation_for(request)
    assert result.scored.plan.batch == 16
    assert result.scored.prediction.samples_per_s <= result.scored.bound_samples_per_s
    assert any("your profile" in text for text in result.as_dict()["assumptions"])


def test_fall_is_explained_and_one_worker_is_one_worker():
    """Two workers on g5.xlarge take turns, three fall into step."""
    saturation = planner.saturation(
        "inception3", hardware="g5.xlarge", exchange="servers", precision="tf32", max_workers=3
    )
    said = [sentence for remark in page_of(saturation).why for sentence in remark.sentences]
    assert re.match(r"3 workers are [12]\d% slower than 2: they fall into lockstep", said[-1])
    alone = replace(saturation, points=saturation.points[:1], saturation_workers=None)
    said = [sentence for remark in page_of(alone).why for sentence in remark.sentences]
    assert said[0].startswith("1 worker on ")
    assert not any("lockstep" in sentence for sentence in said)


def test_workers_that_do_not_hold_the_model_are_no_points() -> None:
    curve = planner.saturation(
        "llama3-70b",
        hardware="p5.48xlarge",
        workers="32",
        exchange="sharded:stage=3",
        recompute="full",
        global_batch=960,
        interval_width=0.1,
        max_workers=48,
    )
    assert all(point.scored.fits_memory for point in curve.points)
    assert [point.workers for point in curve.points] == [24, 32, 40, 48]


LLAMA = Request(model="llama3-8b", hardware=("p5.48xlarge",))


def test_model_that_one_device_does_not_hold_is_counted_from_the_fewest_that_do():
    """One H100 does not hold it; eight hold it sharded, longer sequences with per-op recompute."""
    curve = saturation_for(LLAMA, jobs=2)
    plans = [point.scored.plan for point in curve.points]
    assert plans[0].workers == 8
    assert plans[-1].workers == 4096
    assert {plan.exchange.kind for plan in plans} == {"sharded"}
    assert {plan.recompute for plan in plans} == {"none"}  # as little as each needs
    (longer, *_) = saturation_for(replace(LLAMA, sequence_length=12288), jobs=2, max_workers=16).points
    assert (longer.workers, longer.scored.plan.recompute) == (8, "per-op")
    note = str(curve.assumptions[0])
    assert note.startswith("Memory: 1 worker of p5.48xlarge cannot hold llama3-8b as it is asked for: ")
    assert "points begin with 8 workers, by FSDP" in note
    assert note in list(map(str, page_of(curve).assumptions))
    rates = [point.scored.samples_per_s for point in curve.points]
    assert rates[1] > 1.9 * rates[0]
    assert max(rates) <= curve.ceiling_samples_per_s
    # half as many do not
    with pytest.raises(Infeasible):
        simulation_for(replace(LLAMA, workers=(4,), exchanges=(("sharded", {}),), recompute=("attention",)))


def test_as_little_as_can_be_is_computed_again():
    """With a shorter sequence eight devices hold it without."""
    shorter = replace(LLAMA, sequence_length=1024)
    (first, *_) = saturation_for(shorter, jobs=2, max_workers=16).points
    assert (first.scored.plan.workers, first.scored.plan.recompute) == (8, "none")


def test_named_settings_stay_fixed():
    with pytest.raises(Infeasible, match="it fits with"):
        saturation_for(replace(LLAMA, workers=(1,)))
    with pytest.raises(Infeasible):
        saturation_for(replace(LLAMA, exchanges=(("allreduce", {}),)))
    named = saturation_for(replace(LLAMA, exchanges=(("sharded", {"stage": "2"}),)), jobs=2, max_workers=64)
    assert {point.scored.plan.exchange.stage for point in named.points} == {2}


def test_fitting_plan_has_no_memory_note():
    curve = saturation_for(replace(ALEXNET, exchanges=(("allreduce", {}),), servers=None), max_workers=2)
    assert not [note for note in notes_of(curve.assumptions) if str(note).startswith("Memory")]


def test_global_batch_stays_the_same_however_many_share_it():
    """Strong scaling: fewer micro-batches each, and only as many workers as can share it."""
    curve = saturation_for(replace(LLAMA, global_batch=96), jobs=2, max_workers=128)
    plans = [point.scored.plan for point in curve.points]
    assert [(plan.workers, plan.accumulate) for plan in plans] == [
        (8, 12),
        (16, 6),
        (24, 4),
        (32, 3),
        (48, 2),
        (96, 1),
    ]
    assert {plan.samples_per_step * plan.replicas for plan in plans} == {96}
    said = saturation_sentence(curve, "p5.48xlarge")
    assert "more do not divide a global batch of 96" in said
    fastest = max(point.scored.samples_per_s for point in curve.points)
    assert fastest <= curve.ceiling_samples_per_s < 1.1 * fastest  # that of 96 workers
    with pytest.raises(BadInput, match="--global-batch 96"):
        saturation_for(replace(LLAMA, global_batch=96), max_workers=4)
    with pytest.raises(Infeasible, match=r"no number of workers .* --global-batch 7 holds llama3-8b"):
        saturation_for(replace(LLAMA, global_batch=7))
    # numbers that are no powers of two share it
    odd = saturation_for(replace(LLAMA, model="llama3-70b", global_batch=1000), jobs=2)
    assert [point.workers for point in odd.points] == [40, 200, 1000]


def test_too_few_workers_are_refused_and_not_recommended():
    with pytest.raises(Infeasible, match=r"does not fit on 16 workers or fewer of p5.48xlarge; 24 hold it"):
        saturation_for(replace(LLAMA, model="llama3-70b"), max_workers=16)


def test_large_model_without_a_machine_gets_one_that_is_full_of_devices():
    curve = saturation_for(Request(model="llama3-8b"), jobs=2, max_workers=8)
    assert curve.points[0].scored.plan.machine == "p5.48xlarge"
    first = str(notes_of(curve.assumptions)[0])
    assert first == "Machines: p5.48xlarge by default; --hardware or --gpu chooses another."
    by_device = single_plan(Request(model="llama3-8b", gpu="L4"), joined=True)  # one of them alone is cheaper
    assert by_device.workers_per_machine == 8
    assert single_plan(Request(model="gpt2", gpu="A100"), joined=True).workers_per_machine == 1
    small = saturation_for(Request(model="gpt2"), max_workers=2)
    assert str(notes_of(small.assumptions)[0]).startswith("Machines: g5.xlarge by default")


def test_choices_of_another_exchange_are_refused():
    with pytest.raises(
        BadInput, match="--servers is a choice of --exchange servers, and --exchange names sharded"
    ):
        Request(model="gpt2", exchanges=(("sharded", {}),), servers=(2,))
    with pytest.raises(BadInput, match="--mode is a choice"):
        Request(model="gpt2", exchanges=(("allreduce", {}),), mode="sync")
    Request(model="gpt2", exchanges=(("allreduce", {}), ("servers", {})), servers=(2,))


@pytest.mark.parametrize("kind", ["sharded", "owned"])
def test_setting_that_a_site_does_not_have_says_why(kind):
    inside = Request(
        model="gpt2", hardware=("p4d.24xlarge",), workers=(8,), exchanges=((kind, {"within": "machine"}),)
    )
    with pytest.raises(BadInput, match="several whole machines with several devices; use within=all"):
        single_plan(inside)


def test_servers_that_hold_too_little_are_refused_in_a_sentence():
    """Replicas of servers are not split by layers: no such remedy."""
    with pytest.raises(Infeasible, match=r"llama3-70b at batch 1 needs .* GiB"):
        saturation_for(Request(model="llama3-70b", exchanges=(("servers", {}),), servers=(2,)))


def test_strategy_inside_machines_takes_whole_machines():
    """Points begin with two of them, and a device that would be alone on its machine is refused."""
    inside = Request(
        model="bert-large", hardware=("p4d.24xlarge",), exchanges=(("owned", {"within": "machine"}),)
    )
    curve = saturation_for(inside, jobs=2, max_workers=32)
    assert [point.workers for point in curve.points] == [16, 24, 32]
    for kind in ("sharded", "owned"):
        with pytest.raises(BadInput, match="several whole machines"):
            single_plan(replace(inside, workers=(9,), exchanges=((kind, {"within": "machine"}),)))


def test_fewest_that_hold_a_model_are_named():
    with pytest.raises(Infeasible, match=r"does not fit on 336 workers or fewer of p5.48xlarge; 344 hold it"):
        saturation_for(replace(LLAMA, model="llama3-405b"), max_workers=343)


def test_saturation_recommends_no_larger_step_than_recipes_are_known_for():
    """Throughput grows with every batch that is added, but nobody trains ResNet-50 in steps of a million."""
    asked = parse_request("resnet50", hardware="g7e.2xlarge", batch=256, interval_width=0.05)
    curve = saturation_for(asked, jobs=1, max_workers=100)
    assert curve.most_step_samples == 8192
    assert curve.saturation_workers == curve.chosen.workers == 8192 // 256
    assert curve.points[-1].workers > curve.chosen.workers
    said = saturation_sentence(curve, "g7e.2xlarge")
    assert "more would exceed 8,192 samples per step" in said
    fixed = parse_request("resnet50", hardware="g7e.2xlarge", global_batch=16384, interval_width=0.05)
    assert saturation_for(fixed, jobs=1, max_workers=64).most_step_samples is None


def test_saturation_machine_without_published_network_ends_at_its_devices() -> None:
    curve = saturation_for(parse_request("resnet50", hardware="runpod-8x-h100-nvl"), jobs=1)
    assert [point.workers for point in curve.points] == list(range(1, 9))
    assert any("one machine only" in note.text for note in notes_of(curve.assumptions))
    answer = planner.recommend("resnet50", hardware="runpod-8x-h100-nvl", workers=4)
    assert answer.chosen.plan.workers == 4
    assert answer.saturation is not None
    assert answer.saturation.points[-1].workers == 8


def test_saturation_single_device_has_the_speed_of_the_first_point() -> None:
    asked = parse_request("bert-large", hardware="p4d.24xlarge", exchange="ddp", interval_width=0.05)
    curve = saturation_for(asked, jobs=1, max_workers=32)
    assert curve.baseline is not None
    assert curve.points[0].workers == 1
    assert curve.baseline.samples_per_s == curve.points[0].scored.samples_per_s


def test_saturation_page_shows_the_gain_per_added_worker() -> None:
    asked = parse_request("bert-large", hardware="p4d.24xlarge", exchange="ddp", interval_width=0.05)
    curve = saturation_for(asked, jobs=1, max_workers=32)
    rows = saturation_page(curve).tables[0].rows
    for fewer, row in pairwise(rows):
        gain = (row["tokens_per_s"] - fewer["tokens_per_s"]) / (row["workers"] - fewer["workers"])
        assert row["_per_added_worker"] == pytest.approx(gain)
