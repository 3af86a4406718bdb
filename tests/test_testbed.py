"""The conversion of recorded runs, on the real files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks/accuracy"
sys.path.insert(0, str(BENCHMARKS))

import testbed  # noqa: E402

from planner.servers.calibration import infer_window  # noqa: E402
from planner.servers.transmissions import Wire  # noqa: E402
from planner.servers.validation.testbed import recorded_profile  # noqa: E402
from planner.simulator import simulate  # noqa: E402
from planner.simulator.cluster import Cluster  # noqa: E402
from planner.simulator.policy import DEFAULT_WINDOW_BYTES  # noqa: E402
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER  # noqa: E402


@pytest.fixture(scope="module")
def two_servers() -> dict[str, object]:
    return testbed.read_trace("vgg11_b8_100_ps2")


def test_every_op_but_control_messages_is_kept(two_servers: dict[str, object]) -> None:
    profile = testbed.profile_of(two_servers, latency=False)
    counts = [int((profile.resource == r).sum()) for r in (DOWNLINK, WORKER, UPLINK, PS)]
    assert counts == [22, 23, 22, 22]
    assert not any("NoOp" in name for name in profile.names)
    by_server = [
        int(profile.bytes[(profile.resource == UPLINK) & (profile.server == s)].sum()) for s in (0, 1)
    ]
    assert by_server == [1925484, 474516]


def test_each_tensor_has_its_download_upload_and_update(two_servers: dict[str, object]) -> None:
    profile = testbed.profile_of(two_servers)
    assert len(profile.tensors) == 22
    assert "affine0/weights" in profile.tensors
    for tensor in range(22):
        ops = profile.tensor == tensor
        assert sorted(profile.resource[ops].tolist()) == [DOWNLINK, UPLINK, PS]
        assert len(set(profile.server[ops].tolist())) == 1
        assert len(set(profile.bytes[ops & profile.is_transfer].tolist())) == 1


def test_order_is_that_of_the_requests(two_servers: dict[str, object]) -> None:
    profile = testbed.profile_of(two_servers, latency=False)
    assert profile.order is not None
    assert profile.starts_s is not None
    first = np.argsort(profile.order[5])
    assert (np.diff(profile.starts_s[5][first]) >= 0).all()
    assert not (profile.order[5] == profile.order[6]).all()  # TensorFlow asks in another order every step


def test_lost_records_are_filled_with_medians() -> None:
    trace = testbed.read_trace("alexnet_b16_100_ps1")
    lost = [
        (k, i)
        for k, step in enumerate(trace["steps"])
        for i, time in enumerate(step["times"])
        if time is None
    ]
    assert lost
    profile = testbed.profile_of(trace, latency=False)
    for step, op in lost:
        known = [s["times"][op][1] - s["times"][op][0] for s in trace["steps"] if s["times"][op]]
        assert profile.durations_s[step, op] == pytest.approx(np.median(known) * 1e-6)


@pytest.mark.parametrize("name", testbed.traces())
def test_one_simulated_worker_takes_as_long_as_the_recorded_one(name: str) -> None:
    trace = testbed.read_trace(name)
    profile = testbed.profile_of(trace)
    recorded_s = np.mean([step["duration_us"] for step in trace["steps"]]) * 1e-6
    cluster = Cluster.uniform(1, profile.servers, testbed.bandwidth_bytes_per_s(trace))
    prediction = simulate(profile, cluster, testbed.recorded_policy(profile) if "big" in name else None)
    assert prediction.step_s == pytest.approx(recorded_s, rel=0.015)


def test_window_is_read_from_the_trace() -> None:
    """The 9.8 MB tensor was sent whole, so the window had grown beyond gRPC's first 4 MiB."""
    profile = testbed.profile_of(testbed.read_trace("alexnet_big_200_ps1"))
    assert testbed.recorded_policy(profile).window_bytes == profile.bytes.max() == 9766444


def test_repeats_weigh_by_their_windows() -> None:
    points = {(p.config, p.servers, p.workers): p for p in testbed.measured_points()}
    assert len(points) == 42
    point = points["vgg11_b8_100", 1, 2]  # 2.9052 steps/s in 28.01 s, 3.4198 in 90.00 s, batches of 8
    assert point.runs == 2
    assert point.samples_per_s == pytest.approx((23.242 * 28.01 + 27.358 * 90) / 118.01)
    assert point.spread == pytest.approx((27.358 - 23.242) / np.sqrt(2) / point.samples_per_s)
    assert np.isnan(points["vgg11_b8_100", 1, 4].spread)


@pytest.mark.parametrize("name", testbed.traces())
def test_package_ships_these_profiles(name: str) -> None:
    made, shipped = testbed.profile_of(testbed.read_trace(name)), recorded_profile(name)
    assert made.names == shipped.names
    for array in ("resource", "server", "bytes", "dep_start", "dep_index", "tensor", "durations_s", "order"):
        assert np.array_equal(getattr(made, array), getattr(shipped, array)), array
    assert made.starts_s is not None
    assert np.array_equal(made.starts_s, shipped.starts_s)
    assert made.bandwidth_bytes_per_s == shipped.bandwidth_bytes_per_s


def test_window_is_fitted_only_where_the_first_one_cuts_a_transfer() -> None:
    profile = recorded_profile("resnet50_b16_100_ps1")
    fit = infer_window([profile], Wire(profile.bandwidth_bytes_per_s))
    assert min(fit.window_bytes, fit.largest_bytes) <= DEFAULT_WINDOW_BYTES
    assert testbed.recorded_policy(profile).window_bytes == DEFAULT_WINDOW_BYTES
