"""One worker's profile made into that of a replica of several."""

from __future__ import annotations

import numpy as np
import pytest

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.partition.layers import constants_for
from planner.servers.partition.replica import (
    Span,
    fastest_span,
    find_spans,
    has_memory_for_span,
    is_worth_spanning,
    scale_profile,
)
from planner.servers.synthesis import profile_for
from planner.simulator.step import DOWNLINK, PS, UPLINK, Profile

HARDWARE = load_hardware("private-32core-1gbe")
MODEL = load_model("vgg11")


@pytest.fixture(scope="module")
def alone() -> Profile:
    return profile_for(MODEL, 64, HARDWARE, 2, "mxnet")


@pytest.fixture(scope="module")
def spans(alone: Profile) -> list[Span]:
    return find_spans(MODEL, HARDWARE, constants_for(HARDWARE), alone, 4)


def seconds(profile: Profile, way: str) -> float:
    times = profile.durations_s.mean(axis=0).tolist()
    return sum(s for s, name in zip(times, profile.names, strict=True) if name.endswith(way))


def test_fully_connected_layers_are_cut_and_convolutions_copied(spans: list[Span]) -> None:
    most = spans[-1]
    parts = {stage.name: cut[0] for stage, cut in zip(most.stages, most.cuts, strict=True) if cut[0] > 1}
    assert parts == {"affine0": 4, "affine1": 4, "affine2": 4}
    for stage, (partitions, replications) in zip(most.stages, most.cuts, strict=True):
        assert partitions * replications == 4
        assert stage.dense or partitions == 1
    reads = [span.read_bytes for span in spans]
    busy = [span.busy_s for span in spans]
    assert reads == sorted(reads, reverse=True)  # from the cheapest byte to the dearest
    assert busy == sorted(busy)


def test_bytes_of_a_replica(alone: Profile, spans: list[Span]) -> None:
    """Four copies of what is not cut, one of what is; down, up and in memory."""
    dense = sum(stage.weight_bytes for stage in spans[-1].stages if stage.dense)
    expected = dense + 4 * (MODEL.bytes - dense)
    profile = scale_profile(alone, spans[-1])
    for resource in (DOWNLINK, UPLINK):
        assert profile.bytes[profile.resource == resource].sum() == pytest.approx(expected, rel=1e-6)
    assert spans[-1].read_bytes == pytest.approx(expected)
    assert profile.batch == 256
    assert (profile.dep_index == alone.dep_index).all()


def test_times_of_a_replica(alone: Profile, spans: list[Span]) -> None:
    """Four batches on four workers take as long as one on one, and the exchanges besides."""
    for span in spans:
        profile = scale_profile(alone, span)
        exchanged = sum(span.forward_s) + sum(span.backward_s)
        once = seconds(alone, "/forward") + seconds(alone, "/backward")
        assert seconds(profile, "/forward") + seconds(profile, "/backward") == pytest.approx(
            once + exchanged, rel=1e-3
        )
        assert span.busy_s == pytest.approx(once + exchanged, rel=1e-3)
        assert exchanged > 0
    applied = scale_profile(alone, spans[-1]).durations_s[:, alone.resource == PS]
    assert (applied >= alone.durations_s[:, alone.resource == PS] - 1e-15).all()
    assert np.count_nonzero(applied == alone.durations_s[:, alone.resource == PS])  # of cut layers


def test_exchanges_by_hand() -> None:
    """affine0 reads 7x7x512 activations: with 2 copies of the convolutions and 2 parts of affine0, each part
    needs every sample's, of which half are on the other worker."""
    alone = profile_for(MODEL, 64, HARDWARE)
    (span,) = find_spans(MODEL, HARDWARE, constants_for(HARDWARE), alone, 2)
    at = next(i for i, stage in enumerate(span.stages) if stage.name == "affine0")
    nic = HARDWARE.nic_bytes_per_s("baseline")
    elements = span.stages[at].links[0].elements
    # of 128 samples each is sent once, from the worker that has it to the other
    assert span.forward_s[at] == pytest.approx(128 * elements * 4 / nic, rel=0.01)


def test_dear_bytes_are_cut_further(spans: list[Span]) -> None:
    nic = HARDWARE.nic_bytes_per_s("baseline")
    slow = fastest_span(spans, 16, nic, nic)
    fast = fastest_span(spans, 1, 1000 * nic, 1000 * nic)
    assert slow.read_bytes < fast.read_bytes
    assert slow.busy_s > fast.busy_s


def test_may_span_needs_weights_to_split_and_memory() -> None:
    assert is_worth_spanning(MODEL, 64, HARDWARE, 2)
    assert not is_worth_spanning(load_model("resnet50"), 64, HARDWARE, 2)  # hardly any weights to cut
    assert not is_worth_spanning(MODEL, 100_000, HARDWARE, 2)  # activations do not fit


def test_cut_weights_take_less_memory(spans: list[Span]) -> None:
    """A model whose weights fill a machine fits on four."""
    from dataclasses import replace

    need = 2 * MODEL.bytes + 500 * 2**20
    small = replace(HARDWARE, device=replace(HARDWARE.device, memory_bytes=int(need / 0.9)))
    span = replace(spans[-1], samples=4)
    assert has_memory_for_span(MODEL, small, span)
    assert not has_memory_for_span(MODEL, small, replace(span, cuts=((1, 4),) * len(span.cuts)))
