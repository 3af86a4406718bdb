"""`planner profile show`: what it counts, and what makes it suspicious."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.device.recorded.importers import import_profile
from planner.errors import BadInput
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile
from planner.simulator.step.summary import critical_path, summarize

DATA = Path(__file__).parents[2] / "data"
STEPS = [DATA / "tensorflow" / f"alexnet_ps1_step{k}.pb.gz" for k in range(3)]

OPS = [
    Op("d0", DOWNLINK, 0, 100, (), 0),
    Op("d1", DOWNLINK, 0, 300, (), 1),
    Op("f0", WORKER, deps=(0,)),
    Op("f1", WORKER, deps=(1, 2)),
    Op("u1", UPLINK, 0, 300, (3,), 1),
    Op("b0", WORKER, deps=(3,)),
    Op("u0", UPLINK, 0, 100, (5,), 0),
    Op("p1", PS, 0, deps=(4,), tensor=1),
    Op("p0", PS, 0, deps=(6,), tensor=0),
]
MEAN = [0, 0, 1.0, 2.0, 0, 4.0, 0, 0.5, 0.25]


def profile(steps=20, **about):
    rows = np.tile(MEAN, (steps, 1))
    given = {"model": "m", "batch": 2, "tensors": ["a", "b"], "bandwidth_bytes_per_s": 100.0, **about}
    return Profile.build(OPS, rows, **given)


def test_time_by_resource_critical_path_and_ratio():
    summary = summarize(profile())
    assert [(str(r.resource), r.ops, r.bytes, r.time_s) for r in summary.resources] == [
        ("downlink[0]", 2, 400, 4.0),
        ("worker", 3, 0, 7.0),
        ("uplink[0]", 2, 400, 4.0),
        ("ps[0]", 2, 0, 0.75),
    ]
    assert summary.communication_to_computation == pytest.approx(8 / 7)
    assert summary.critical_path == ("d1", "f1", "b0", "u0", "p0")
    assert summary.critical_path_s == pytest.approx(3 + 2 + 4 + 1 + 0.25)
    assert [op.name for op in summary.slowest[:3]] == ["b0", "d1", "u1"]
    assert summary.suspicious == ()
    assert critical_path(profile(), np.array([9, 0, 1, 2, 0, 4, 0, 0, 0.0])) == [0, 2, 3, 5]


def test_another_bandwidth_and_none():
    assert summarize(profile(), 1000.0).communication_s == pytest.approx(0.8)
    unknown = summarize(profile(bandwidth_bytes_per_s=None))
    assert unknown.communication_s is None
    assert unknown.resources[0].time_s is None
    assert any("--bandwidth" in text for text in unknown.suspicious)
    with pytest.raises(BadInput):
        summarize(profile(), -1.0)


def changed(base, **arrays):
    return replace(base, **{name: np.ascontiguousarray(value) for name, value in arrays.items()})


def test_suspicious_profile_is_noted():
    base = profile()

    def says(subject, words, **given):
        return any(words in text for text in summarize(subject, **given).suspicious)

    assert says(profile(steps=1), "one step only")
    assert says(profile(steps=4), "4 steps only")
    assert says(profile(notes=("3 of 900 records were lost and are filled with medians (x)",)), "lost")
    slow = base.durations_s.copy()
    slow[0] *= 3
    assert says(changed(base, durations_s=slow), "warm-up")
    assert says(changed(base, durations_s=slow), "1 of 20 steps compute more than twice")
    varied = base.durations_s * np.linspace(0.5, 1.5, 20)[:, None]
    assert says(changed(base, durations_s=varied), "varies by 30%")
    sizes = base.bytes.copy()
    sizes[4] = 200
    assert says(changed(base, bytes=sizes), "gradients or parameters are missing")
    assert says(changed(base, durations_s=base.durations_s * 0), "no time at all")
    assert not says(base, "")


def test_times_that_contradict_dependencies_or_the_bandwidth():
    starts = np.tile([0, 0, 1.0, 3.0, 5.0, 5.0, 9.0, 8.0, 10.0], (20, 1))
    durations = np.tile([1, 3, 1.0, 2.0, 3.0, 4.0, 1.0, 0.5, 0.25], (20, 1))
    good = Profile.build(
        OPS, durations, model="m", batch=1, tensors=["a", "b"], bandwidth_bytes_per_s=130.0, starts_s=starts
    )
    assert summarize(good).suspicious == ()
    assert summarize(good).recorded_step_s == 10.25
    starts = starts.copy()
    starts[7, 5] = 4.0
    text = " ".join(summarize(changed(good, starts_s=starts)).suspicious)
    assert "1 ops start before what they wait for has ended (b0 in step 7, by 1 s)" in text
    assert any("44% of the stated bandwidth" in text for text in summarize(good, 300.0).suspicious)
    assert any("133% of the stated bandwidth" in text for text in summarize(good, 100.0).suspicious)


def test_real_profile():
    summary = summarize(import_profile(STEPS, batch=4), 0.993 * 25e6)
    assert summary.communication_to_computation == pytest.approx(1.78, abs=0.01)
    assert summary.recorded_step_s == pytest.approx(0.209, abs=0.002)
    assert summary.critical_path[0] == "edge_35_affine0/weights/read"
    assert summary.suspicious == ("3 steps only: their variation is poorly known; record 20 to 100",)
