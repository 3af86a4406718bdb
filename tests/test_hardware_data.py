"""The catalogue's own data: every machine has a price, a date, a source and a NIC or a stated absence, and
every figure is the one that was collected (tests/data/hardware, with sources)."""

import csv
import re
from pathlib import Path

import pytest

from planner.catalog import hardware_names, load_hardware
from planner.hardware_files import GIB
from planner.units import GBIT_BYTES_PER_S

DATA = Path(__file__).parent / "data/hardware"
INSTANCES = {row["name"]: row for row in csv.DictReader((DATA / "instances.csv").open())}
PEAKS = list(csv.DictReader((DATA / "cpu_peaks.csv").open()))
DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")


def number(text: str) -> float | None:
    return float(text) if text else None


def test_every_collected_machine_is_there_and_no_other() -> None:
    assert len(INSTANCES) == 84
    assert {load_hardware(name).name for name in INSTANCES} == set(hardware_names())


@pytest.mark.parametrize("name", INSTANCES)
def test_figures_are_those_collected(name: str) -> None:
    row, hardware = INSTANCES[name], load_hardware(name)
    assert hardware.provider == row["provider"]
    assert hardware.vcpus == int(row["vcpus"])
    assert hardware.memory_bytes == float(row["memory_gib"]) * GIB
    for figure, column in (("burst", "net_gbps_nominal"), ("baseline", "net_gbps_baseline")):
        gbit = number(row[column])
        expected = None if gbit is None else pytest.approx(gbit * GBIT_BYTES_PER_S)
        assert getattr(hardware, f"nic_{figure}_bytes_per_s") == expected
    assert hardware.price.spot_usd_per_hour == number(row["spot_usd_hour"])
    if row["provider"] != "private":
        assert hardware.price.region == row["region"]
        assert hardware.price.on_demand_usd_per_hour == number(row["price_usd_hour"])


@pytest.mark.parametrize("name", [name for name, row in INSTANCES.items() if row["accel_name"]])
def test_accelerators_are_those_collected(name: str) -> None:
    row, hardware = INSTANCES[name], load_hardware(name)
    device = hardware.device
    assert device.kind == "gpu"
    assert hardware.device_count == int(row["accel_count"])
    assert device.memory_bytes == float(row["accel_mem_gib"]) * GIB
    assert device.memory_bytes_per_s == float(row["accel_mem_gbps"]) * 1e9
    if name == "Standard_NC6s_v3":  # collected as SXM2; the machine holds the slower PCIe card
        assert (device.name, device.fp32_flops) == ("V100-PCIE-16GB", 14e12)
        return
    assert device.name == row["accel_name"]
    assert device.fp32_flops == pytest.approx(float(row["accel_fp32_tflops"]) * 1e12)
    tensor = number(row["accel_tensor_tflops"])
    assert device.tensor_flops == (None if tensor is None else pytest.approx(tensor * 1e12))


@pytest.mark.parametrize("row", PEAKS, ids=lambda row: row["machine"])
def test_cpu_peaks(row: dict[str, str]) -> None:
    assert load_hardware(row["machine"]).device.fp32_flops == pytest.approx(float(row["fp32_tflops"]) * 1e12)


@pytest.mark.parametrize("name", hardware_names())
def test_every_figure_has_a_source_a_date_and_a_basis(name: str) -> None:
    hardware = load_hardware(name)
    price = hardware.price
    assert price.on_demand_usd_per_hour
    assert price.region
    assert price.source
    assert DATE.fullmatch(price.as_of)
    assert price.basis == ("estimated" if hardware.ownership else "published")
    figures = {
        "on_demand": price.on_demand_usd_per_hour,
        "spot": price.spot_usd_per_hour,
        "nic_burst": hardware.nic_burst_bytes_per_s,
        "nic_baseline": hardware.nic_baseline_bytes_per_s,
        "flow": hardware.flow_bytes_per_s,
        "machine": hardware.vcpus,
    }
    for figure, value in figures.items():
        assert (figure in hardware.sources) == (value is not None), figure
    for figure, source in hardware.sources.items():
        assert DATE.fullmatch(source.as_of), figure
        assert "TODO" not in source.source
    assert hardware.device.source
    assert DATE.fullmatch(hardware.device.as_of)
    if hardware.ownership:
        assert len(hardware.ownership.reasoning) > 40
    if not hardware.still_sold:
        assert hardware.status
        assert "status" in hardware.sources


@pytest.mark.parametrize("name", hardware_names())
def test_a_nic_or_a_stated_absence(name: str) -> None:
    hardware = load_hardware(name)
    if hardware.nic_bytes_per_s("baseline") is None:
        said = Path(hardware.path).read_text()
        assert hardware.nic_label or "no network figure" in said
    else:
        assert hardware.nic_bytes_per_s("burst") >= hardware.nic_bytes_per_s("baseline")  # type: ignore[operator]


def test_spot_is_not_above_on_demand() -> None:
    for name in hardware_names():
        price = load_hardware(name).price
        if price.spot_usd_per_hour:
            assert price.spot_usd_per_hour <= price.on_demand_usd_per_hour  # type: ignore[operator]


def test_kernel_rates_are_sane_where_there_are_any() -> None:
    for name in hardware_names():
        hardware = load_hardware(name)
        if hardware.kernels:
            assert hardware.kernels.source
            macs = [rate for kind, rate in hardware.kernels.rates.items() if kind != "memory"]
            # Winograd and FFT need fewer multiply-adds than they are counted for, yet not ten times fewer
            assert all(0 < 2 * rate < 10 * hardware.device.fp32_flops for rate in macs)
