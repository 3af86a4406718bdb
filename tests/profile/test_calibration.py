"""The stored kernel rates meet published throughputs; the benchmark prints the same table."""

import sys
from pathlib import Path

import numpy as np
import pytest

from planner.catalog import hardware_names, load_hardware, load_model, model_names
from planner.profile import DOWNLINK, UPLINK, WORKER
from planner.profile.compute import KINDS, costs_of, step_s, work_of
from planner.profile.placement import place_model, server_bytes
from planner.profile.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.units import MIB

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def published():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import calibration
        import profiles

        yield calibration, profiles
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_published_throughputs_are_met(published):
    calibration, profiles = published
    used = [row for row in calibration.read_rows() if row.role == "fit"]
    assert {row.device.split("-")[0] for row in used} == {"V100", "P100", "K80", "M60"}
    assert len(used) == 96
    wrong = abs(calibration.errors(profiles.stored_fit(used), used))
    assert np.median(wrong) < 0.08
    assert wrong.max() < 0.20


def test_the_stored_rates_are_those_of_the_fit(published):
    calibration, profiles = published
    fitted = calibration.fit([row for row in calibration.read_rows() if row.role == "fit"])
    stored = profiles.stored_costs()
    for device, costs in fitted.costs.items():
        assert stored[device] == pytest.approx(costs, rel=0.01)


def test_rates_of_a_device_without_data_meet_its_rows_where_there_are_some(published):
    """A100 in plain fp32, which no fit has seen, from the V100's share of peak."""
    calibration, profiles = published
    rows = [row for row in calibration.read_rows() if row.framework == "TensorFlow 2.3"]
    assert len(rows) == 6
    assert {row.same_device for row in rows} == {calibration.NO_TF32}
    guess = calibration.Fit(profiles.stored_costs(), {})
    assert abs(calibration.errors(guess, rows)).max() < 0.20


def test_every_machine_has_kernel_rates():
    for name in hardware_names():
        kernels = load_hardware(name).kernels
        assert kernels is not None, name
        assert set(kernels.rates) == set(KINDS), name
        assert kernels.source, name


def test_a_tensorflow_row_through_the_catalogue():
    """TensorFlow 2.2 on a V100, ResNet-50, batch 192: 432 images a second."""
    seconds = step_s(load_model("resnet50"), 192, load_hardware("p3.2xlarge").kernels)
    assert 192 / seconds == pytest.approx(432, rel=0.08)


@pytest.mark.parametrize("name", model_names())
def test_a_catalogue_models_profile_carries_its_bytes_each_way(name):
    model = load_model(name)
    profile = profile_for(model, 8, load_hardware("p3.2xlarge"), servers=2, variation=NO_VARIATION, steps=1)
    for direction in (DOWNLINK, UPLINK):
        assert profile.bytes[profile.resource == direction].sum() == model.bytes
    assert len(profile.tensors) == len(model.tensors)


def critical_path_s(profile):
    ends = np.zeros(profile.ops)
    for op in profile.topological_order():
        ends[op] = ends[profile.deps(op)].max(initial=0.0) + profile.durations_s[0, op]
    return ends[profile.resource == WORKER].max()


@pytest.mark.parametrize(("name", "branches"), [("vgg11", False), ("inception3", True), ("resnet50", True)])
def test_only_models_with_branches_have_a_critical_path_below_their_computation(name, branches):
    model, hardware = load_model(name), load_hardware("p3.2xlarge")
    profile = profile_for(model, 8, hardware, parsing=NO_PARSING, variation=NO_VARIATION, steps=1)
    total = profile.durations_s[0, profile.resource == WORKER].sum()
    path = critical_path_s(profile)
    assert path < 0.99 * total if branches else path == pytest.approx(total)
    without_update = step_s(model, 8, hardware.kernels) - float(
        work_of(model).update @ costs_of(hardware.kernels)
    )
    assert total == pytest.approx(without_update)


# TensorFlow's greedy rule over every variable, moving averages included; MiB of trained tensors alone
@pytest.mark.parametrize(
    ("name", "two"),
    [
        ("alexnet", [85.91, 150.00]),
        ("vgg11", [100.21, 406.64]),
        ("vgg16", [417.46, 110.35]),
        ("vgg19", [120.89, 427.17]),
        ("googlenet", [12.05, 14.65]),
        ("inception3", [42.08, 48.78]),
        ("inception4", [83.88, 78.82]),
        ("resnet50", [45.96, 51.54]),
        ("resnet101", [87.91, 82.04]),
        ("resnet152", [117.61, 112.02]),
    ],
)
def test_greedy_splits_of_the_catalogue(name, two):
    parts = place_model(load_model(name), 2, "greedy")
    assert [round(size / MIB, 2) for size in server_bytes(parts, 2)] == two
