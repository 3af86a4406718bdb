"""One machine as plain values: what is known of it, in the units of hardware files, and None for the rest."""

from dataclasses import replace

import pytest

from planner.hardware import Fabric
from planner.hardware.catalog import hardware_names, load_hardware
from planner.report.hardware import _fabric_figures, hardware_row, hardware_table
from planner.report.output import render

GIB, GBIT = 2.0**30, 1e9 / 8


@pytest.mark.parametrize("name", hardware_names()[::7])
def test_row_says_what_the_machine_says(name):
    machine = load_hardware(name)
    row, price = hardware_row(machine), machine.price
    assert (row["name"], row["family"], row["provider"]) == (name, machine.family, machine.provider)
    assert (row["device"], row["device_kind"]) == (machine.device.name, machine.device.kind)
    assert row["device_memory_gib"] == pytest.approx(machine.device.memory_bytes / GIB)
    assert row["device_fp32_tflops"] == pytest.approx(machine.device.fp32_flops / 1e12)
    for key, value, unit in (
        ("memory_gib", machine.memory_bytes, GIB),
        ("nic_baseline_gbit_per_s", machine.nic_baseline_bytes_per_s, GBIT),
        ("nic_burst_gbit_per_s", machine.nic_burst_bytes_per_s, GBIT),
        ("flow_gbit_per_s", machine.flow_bytes_per_s, GBIT),
        ("placement_group_flow_gbit_per_s", machine.placement_group_flow_bytes_per_s, GBIT),
        ("on_demand_usd_per_hour", price.on_demand_usd_per_hour, 1.0),
    ):
        assert row[key] == (None if value is None else pytest.approx(value / unit))
    assert row["spot_usd_per_hour"] == price.spot_usd_per_hour
    assert (row["region"] or "", row["price_as_of"] or "") == (price.region, price.as_of)
    assert row["offered_as"] == (machine.offered_as or name)
    assert row["still_sold"] is machine.still_sold
    if machine.ownership is None:
        assert row["state"] == ("sold" if machine.still_sold else "retired")


def test_unknown_words_are_none_and_another_offer_is_named():
    machine = replace(load_hardware("p3.2xlarge"), cpu="", nic_label="", status="", offered_as="a2")
    row = hardware_row(machine)
    assert (row["cpu"], row["nic_label"], row["status"], row["offered_as"]) == (None, None, None, "a2")


def test_list_says_what_its_signs_mean_and_when_prices_were_read():
    machines = [load_hardware(name) for name in ("p3.2xlarge", "g5.xlarge", "private-opteron")]
    table = hardware_table(machines)
    text = " ".join(render(table, "table").split())  # which breaks lines at the width of a terminal
    dates = sorted(machine.price.as_of for machine in machines[:2])
    assert f"Prices as of {dates[0]} to {dates[1]}." in text
    assert "~0." in text  # an estimate
    assert "For a retired machine, `planner hardware NAME`" in text
    alone = " ".join(render(hardware_table(machines[1:2]), "table").split())
    assert "retired" not in alone
    assert f"Prices as of {machines[1].price.as_of}." in alone


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        ({}, "NVLink, 300 GB/s per device each way"),
        ({"topology": "mesh"}, "NVLink, 300 GB/s per device each way, a mesh"),
        ({"topology": "pairs"}, "NVLink, 300 GB/s per device each way, in pairs"),
        (
            {"topology": "pairs", "between_bytes_per_s": 12e9},
            "NVLink, 300 GB/s per device each way, in pairs (12 between them)",
        ),
        ({"machines": 18}, "NVLink, 300 GB/s per device each way, over 18 machines"),
    ],
)
def test_links_between_devices_are_said_as_they_are(fabric, words):
    joined = Fabric(
        **{"kind": "nvlink", "topology": "switch", "bytes_per_s": 300e9, "basis": "published", "source": "x"}
        | fabric
    )
    machine = replace(load_hardware("p3.16xlarge"), fabric=joined)
    ((name, said, source),) = _fabric_figures(machine)
    assert (name, said, source.source) == ("fabric", words, "x")
    assert _fabric_figures(replace(machine, fabric=None)) == [("fabric", "not published", None)]
    assert _fabric_figures(replace(load_hardware("p3.2xlarge"), fabric=None)) == []
