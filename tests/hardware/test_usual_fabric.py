"""Machines whose file names no fabric get the one that is usual for their device, marked as assumed."""

import pytest

from planner.hardware.catalog import hardware_names, load_hardware, load_with_file_prices


def machine(tmp_path, device, count, extra=""):
    path = tmp_path / "mine.toml"
    path.write_text(
        f'[machines.mine]\ndevice = "{device}"\ndevice_count = {count}\n{extra}'
        '[devices.my-gpu]\nkind = "gpu"\nfp32_tflops = 20\nmemory_gib = 24\nyear = 2017\n'
    )
    return load_hardware(str(path))


@pytest.mark.parametrize(
    ("device", "count", "kind", "gbyte_per_s"),
    [
        ("A100-SXM4-80GB", 8, "nvswitch", 300),
        ("A100-SXM4-80GB", 6, "nvswitch", 300),  # a switch joins any count
        ("H100-SXM5-80GB", 8, "nvswitch", 450),
        ("V100-SXM2-16GB", 4, "nvlink", 100),
        ("V100-SXM2-16GB", 8, "nvlink", 150),
        ("V100-SXM2-16GB", 3, "pcie", 15.8),  # no machine has three, and a mesh is that of its count
        ("RTX-4090", 8, "pcie", 31),
        ("T4", 4, "pcie", 15.8),
        ("my-gpu", 2, "pcie", 15.8),
    ],
)
def test_unnamed_fabric_is_that_of_the_catalogs_machines(tmp_path, device, count, kind, gbyte_per_s):
    fabric = machine(tmp_path, device, count).fabric
    assert (fabric.kind, fabric.bytes_per_s, fabric.assumed) == (kind, gbyte_per_s * 1e9, True)
    assert fabric.source.startswith("assumed: ")
    assert fabric.basis == "estimated"


def test_named_fabric_and_single_devices_stay(tmp_path):
    named = machine(tmp_path, "A100-SXM4-80GB", 8, 'fabric = "pcie-4"\n').fabric
    assert (named.kind, named.assumed) == ("pcie", False)
    assert machine(tmp_path, "A100-SXM4-80GB", 1).fabric is None


def test_catalog_machines_have_no_assumed_fabric():
    assert not any(
        (fabric := load_with_file_prices(name).fabric) and fabric.assumed for name in hardware_names()
    )


def test_own_folder_gets_the_usual_fabric(tmp_path, monkeypatch):
    machine(tmp_path, "H100-SXM5-80GB", 8)
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    assert load_hardware("mine").fabric.assumed


def test_file_of_a_provider_without_a_price_is_ones_own(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text('provider = "our lab"\n[machines.lab]\ndevice = "T4"\nmachines = 3\n')
    lab = load_hardware(str(path))
    assert (lab.standing, lab.machines, lab.has_price) == ("own", 3, False)
