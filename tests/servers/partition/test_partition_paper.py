"""What Yan et al. (KDD 2015) found on 20 machines; benchmarks/accuracy/papers.py prints it all, with what
fails."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.partition.page import partition_data, partition_tables
from planner.servers.partition.search import PartitionRequest, PartitionResult, partition
from planner.servers.validation.yan import (
    best_plan,
    layer_costs,
    most_samples_within,
    samples_within,
)

CLUSTER = "private-2xe5-2450-10gbe"
copies = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/accuracy" / "papers.py"))
copies_pay_below, copy_readings = copies["copies_pay_below"], copies["copy_readings"]


@pytest.fixture(scope="module")
def small() -> PartitionResult:
    return partition(load_model("mnist-adam"), load_hardware(CLUSTER), PartitionRequest(20, max_workers=4))


@pytest.fixture(scope="module")
def large() -> PartitionResult:
    return partition(
        load_model("imagenet22k-adam"), load_hardware(CLUSTER), PartitionRequest(20, max_workers=4)
    )


def speedup(model: str, few: tuple[int, int, int], many: tuple[int, int, int]) -> float:
    return best_plan(model, CLUSTER, few).epoch_s / best_plan(model, CLUSTER, many).epoch_s


def test_best_configurations(small: PartitionResult, large: PartitionResult) -> None:
    assert small.plans[0].name == "<2,9,2>"
    assert large.plans[0].name == "<4,4,4>"


def test_spread_is_more_than_tenfold_and_near_the_published(large: PartitionResult) -> None:
    ratio = large.plans[-1].epoch_s / large.plans[0].epoch_s
    assert ratio > 10
    assert ratio == pytest.approx(218.08 / 11.88, rel=0.25)


def test_worst_epoch_gives_the_images_of_the_best(large: PartitionResult) -> None:
    """The paper prints both times and no number of images: one figure is taken from it, one predicted."""
    best, worst = large.plans[0], large.plans[-1]
    images = samples_within(worst, 218.08 * 60)
    assert images / best.samples_per_s / 60 == pytest.approx(11.88, rel=0.25)
    model, hardware = load_model("imagenet22k-adam"), load_hardware(CLUSTER)
    assert images < most_samples_within(model, hardware, 16, 11.88 * 60)


def test_data_set_does_not_fit_in_the_best_epoch() -> None:
    """By hand: 2.07 billion connections, three passes but for the data, 268.8 GFLOP/s a machine."""
    model = load_model("imagenet22k-adam")
    first = next(layer.macs for layer in model if layer.macs)
    most = 11.88 * 60 * 16 * 268.8e9 / (2 * (3 * model.macs - first))
    assert most_samples_within(model, load_hardware(CLUSTER), 16, 11.88 * 60) == pytest.approx(most)
    assert most < 15_000_000 / 50


def test_answer_says_what_an_epoch_is(small: PartitionResult) -> None:
    model, hardware = load_model("mnist-adam"), load_hardware(CLUSTER)
    own = partition_tables(small)[0].notes
    assert any("60,000 samples" in note and "--samples" in note for note in own)
    asked = PartitionRequest(4, samples=1000)
    result = partition(model, hardware, asked)
    assert "An epoch is 1,000 samples, as --samples says." in partition_tables(result)[0].notes
    data = partition_data(result)
    assert data["best"]["epoch_s"] * data["best"]["samples_per_s"] == pytest.approx(data["samples"])


def test_model_parallelism_is_superlinear_where_the_cache_gains() -> None:
    assert speedup("imagenet22k-adam", (1, 4, 4), (2, 4, 4)) > 2
    assert speedup("imagenet22k-adam", (1, 4, 4), (4, 4, 4)) > 4
    two, four = (speedup("mnist-adam", (1, 4, 4), (w, 4, 4)) for w in (2, 4))
    assert 1.9 < two <= 2
    assert four / two < two  # flattens


def test_servers_matter_more_for_the_large_network() -> None:
    large = [speedup("imagenet22k-adam", (4, 4, 1), (4, 4, s)) for s in (2, 4)]
    assert large[0] > 1.2
    assert large[1] / large[0] < large[0]  # diminishing
    assert speedup("mnist-adam", (4, 4, 1), (4, 4, 4)) - 1 < (large[1] - 1) / 2


def test_two_workers_read_faster_than_one() -> None:
    two, first = (
        best_plan("mnist-adam", CLUSTER, (2, 9, 2)),
        best_plan("mnist-adam", CLUSTER, (1, 18, 2)),
    )
    assert two.epoch_s < first.epoch_s
    assert first.split.reading_s - two.split.reading_s > first.epoch_s - two.epoch_s  # for the paper's reason


def test_reading_less_often_helps() -> None:
    model, hardware = load_model("imagenet22k-adam"), load_hardware(CLUSTER)
    times = [
        partition(model, hardware, PartitionRequest(20, every, workers=4, replicas=4, servers=4))
        .plans[0]
        .epoch_s
        for every in (35, 70, 150)
    ]
    assert times == sorted(times, reverse=True)


def test_replicated_output_sends_fewer_activations_and_reads_more() -> None:
    parts, copies = layer_costs("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4))
    assert copies.activations_s < parts.activations_s
    assert copies.reading_s > parts.reading_s


def test_copies_of_an_output_layer_pay_only_for_few_inputs() -> None:
    """By hand: parts exchange 3/4 of the outputs' errors and of the inputs, copies read three times more."""
    nic, outputs, inputs = 1.25e9, 22_000, copies_pay_below(CLUSTER, 22_000, (4, 4, 4))
    parts_s = 0.75 * (outputs + inputs) * 4 / nic + 2 * 1.2e-5 / 16
    copies_s = 3 * outputs * inputs * 4 / (4 * nic) / 70 * 4
    assert parts_s == pytest.approx(copies_s)
    assert inputs < 20


def test_no_reading_of_the_paper_with_dearer_weights_lets_copies_win() -> None:
    """Copies win only if they are read once and no cache helps the parts; the paper says neither."""
    ways = {way.name: way for way in copy_readings("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4))}
    copies_win = [name for name, way in ways.items() if sum(way.replicated_s) < sum(way.partitioned_s)]
    assert copies_win == ["copies are read once, no cache effect"]
    ours = ways["as we count"]
    turn_s = 264_088_000 / (4 * 1.25e9) / 70 * 4  # 22,000 x 3,001 weights, 4 links, 4 replicas in turn
    assert (ours.partitioned_s[2], ours.replicated_s[2]) == pytest.approx((turn_s, 4 * turn_s))
    assert ours.partitioned_s[1] == pytest.approx(2 * (0.75 * 3000 * 4 / 1.25e9 + 1.2e-5 / 16))


def test_layer_alone_costs_what_it_costs_in_the_search() -> None:
    ours = copy_readings("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4))[0]
    best = best_plan("imagenet22k-adam", CLUSTER, (4, 4, 4)).spread
    assert best.choices[-1].degrees == (4, 1)
    split = best.splits[-1]
    assert ours.partitioned_s[0] == pytest.approx(split.compute_s)
    assert ours.partitioned_s[1] == pytest.approx(split.network_s)
    parts, copies = layer_costs("imagenet22k-adam", CLUSTER, "fc2", (4, 4, 4))
    more = copies.reading_s - parts.reading_s
    assert ours.replicated_s[2] - ours.partitioned_s[2] == pytest.approx(more)
