"""The constants of a machine that was not calibrated, and what a calibration may not say."""

from dataclasses import replace

import pytest

from planner.catalog import load_hardware
from planner.cost.constants import constants_for
from planner.errors import BadInput


def test_estimates_come_from_the_kernel_rates_of_all_cores():
    machine = load_hardware("c4.8xlarge")
    found = constants_for(machine)
    cores = machine.device.cores
    assert found.threads == cores
    assert found.muladd_s == pytest.approx(cores / machine.kernels.rates["conv"])
    assert found.act_s == pytest.approx(10 * found.muladd_s)
    assert found.err_s == pytest.approx(2 * found.muladd_s)
    assert found.interference == (1.0,) * cores
    assert found.latency_s == (50e-6,) * cores
    assert found.basis == "estimated: muladd_s, latency_s"


def test_without_rates_a_third_of_the_peak_is_taken():
    machine = replace(load_hardware("c4.8xlarge"), kernels=None)
    device = machine.device
    assert constants_for(machine).muladd_s == pytest.approx(device.cores / (0.3 * device.fp32_flops / 2))


def test_out_of_cache_memory_limits():
    """Four bytes of weights a multiply-add, shared by all threads, where that is slower."""
    machine = load_hardware("c4.8xlarge")
    slow = replace(machine, device=replace(machine.device, memory_bytes_per_s=1e9))
    assert constants_for(slow).muladd_out_of_cache_s == pytest.approx(machine.device.cores * 4 / 1e9)
    fast = replace(machine, device=replace(machine.device, memory_bytes_per_s=1e15))
    assert constants_for(fast).muladd_out_of_cache_s == constants_for(fast).muladd_s


def test_a_gpu_is_one_thread():
    found = constants_for(load_hardware("p3.2xlarge"))
    assert (found.threads, found.muladd_out_of_cache_s) == (1, found.muladd_s)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        ({"muladd_s": 0.0}, "muladd_s must be one number"),
        ({"act_s": -1.0}, "act_s must be one number"),
        ({"muladd_s": (1.0, 2.0)}, "muladd_s must be one number"),
        (
            {"interference": (1.0, 1.1), "latency_s": (1e-5,)},
            "latency_s needs one number or one for",
        ),
        ({"interference": (1.0, -1.0)}, "interference needs one number or one for each of 2"),
    ],
)
def test_calibrations_that_cannot_be(calibration, said):
    with pytest.raises(BadInput, match=said):
        constants_for(replace(load_hardware("c4.8xlarge"), calibration=calibration))


def test_a_bandwidth_that_was_measured_takes_the_place_of_the_nic():
    assert constants_for(load_hardware("c4.8xlarge"), bandwidth_bytes_per_s=7e8).nic_bytes_per_s == 7e8
