"""What replaces a machine that is no longer sold."""

import pytest

from planner.hardware.catalog import hardware_names, load_hardware
from planner.hardware.prices.offers import find_replacement

RETIRED = [name for name in hardware_names() if not load_hardware(name).still_sold]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("p3.2xlarge", "g5.2xlarge"), ("p3.16xlarge", "p3dn.24xlarge"), ("g3.4xlarge", "g4dn.4xlarge")],
)
def test_known_successors(name: str, expected: str) -> None:
    nearest = find_replacement(load_hardware(name))
    assert nearest is not None
    assert nearest.hardware.name == expected


@pytest.mark.parametrize("name", RETIRED)
def test_every_retired_machine_has_one_that_is_sold_and_not_smaller(name: str) -> None:
    old = load_hardware(name)
    nearest = find_replacement(old)
    assert nearest is not None
    new = nearest.hardware
    assert new.still_sold
    assert new.ownership is None
    assert new.device.memory_bytes >= old.device.memory_bytes
    assert new.device_count * new.device.fp32_flops >= old.device_count * old.device.fp32_flops
    assert new.device.name in nearest.reason
    assert "the price" in nearest.reason


def test_nearest_current_machine_is_none_where_all_are_smaller() -> None:
    assert find_replacement(load_hardware("p3.16xlarge"), [load_hardware("g4dn.xlarge")]) is None
