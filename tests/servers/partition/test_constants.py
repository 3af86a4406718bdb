"""The constants of a machine that was not calibrated, and what a calibration may not say."""

from dataclasses import replace

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model import BYTES_PER_ELEMENT
from planner.servers.partition.layers import constants_for, reading_s_per_byte, receive_s


def test_estimates_come_from_the_kernel_rates_of_all_cores():
    machine = load_hardware("c4.8xlarge")
    constants = constants_for(machine)
    cores = machine.device.cores
    assert constants.threads == cores
    assert constants.muladd_s == pytest.approx(cores / machine.kernels.rates["conv"])
    assert constants.act_s == pytest.approx(10 * constants.muladd_s)
    assert constants.err_s == pytest.approx(2 * constants.muladd_s)
    assert constants.interference == (1.0,) * cores
    assert constants.latency_s == (50e-6,) * cores
    assert constants.basis == "estimated: muladd_s, latency_s"


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


def test_gpu_is_one_thread():
    constants = constants_for(load_hardware("p3.2xlarge"))
    assert (constants.threads, constants.muladd_out_of_cache_s) == (1, constants.muladd_s)


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


def test_bandwidth_that_was_measured_takes_the_place_of_the_nic():
    assert constants_for(load_hardware("c4.8xlarge"), bandwidth_bytes_per_s=7e8).nic_bytes_per_s == 7e8


def test_weights_are_read_through_the_narrower_side_and_in_the_worst_case_from_one_server():
    constants = constants_for(load_hardware("c4.8xlarge"))
    nic = constants.nic_bytes_per_s
    assert reading_s_per_byte(constants, 1, 4) == pytest.approx(1 / nic + constants.parse_s_per_byte)
    assert reading_s_per_byte(constants, 4, 2) == pytest.approx(
        1 / (2 * nic) + constants.parse_s_per_byte / 4
    )
    assert reading_s_per_byte(constants, 2, 4) == pytest.approx(
        1 / (2 * nic) + constants.parse_s_per_byte / 2
    )
    wide = replace(constants, server_nic_bytes_per_s=8 * nic, parse_s_per_byte=1e-9)
    assert reading_s_per_byte(wide, 4, 1) == pytest.approx(1 / (4 * nic) + 0.25e-9)
    assert reading_s_per_byte(wide, 4, 1, reading=1.0) == pytest.approx(1 / (4 * nic) + 0.25e-9)
    narrow = replace(constants, server_nic_bytes_per_s=nic / 2, parse_s_per_byte=0.0)
    assert reading_s_per_byte(narrow, 4, 4, reading=1.0) == pytest.approx(2 / nic)
    assert reading_s_per_byte(narrow, 4, 4, reading=0.5) == pytest.approx((2 / nic + 1 / (2 * nic)) / 2)


def test_received_data_waits_for_the_network_shared_by_threads():
    changed = replace(constants_for(load_hardware("c4.8xlarge")), latency_s=(1e-5, 2e-5))
    nic = changed.nic_bytes_per_s
    assert receive_s(changed, 0, 2) == 0.0
    assert receive_s(changed, 100, 1) == pytest.approx(1e-5 + 100 * BYTES_PER_ELEMENT / nic)
    assert receive_s(changed, 100, 2) == pytest.approx(2e-5 + 2 * 100 * BYTES_PER_ELEMENT / nic)
