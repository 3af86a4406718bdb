"""The catalogue's own data: every machine has a price, a date, a source and a NIC or a stated absence, and
every figure is the one that was collected (tests/data/hardware, with sources)."""

import csv
import re
from pathlib import Path

import pytest

from planner.catalog import hardware_names, load_hardware
from planner.hardware_build import GIB
from planner.units import GBIT_BYTES_PER_S

DATA = Path(__file__).parent / "data/hardware"
INSTANCES = {row["name"]: row for row in csv.DictReader((DATA / "instances.csv").open())}
DEVICES = list(csv.DictReader((DATA / "devices.csv").open()))
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
    # NC6s_v3 was collected as SXM2; the machine holds the slower PCIe card
    assert device.name == ("V100-PCIE-16GB" if name == "Standard_NC6s_v3" else row["accel_name"])
    # the driver leaves up to a sixteenth of what the label says to error correction
    assert 0.93 < device.memory_bytes / (float(row["accel_mem_gib"]) * GIB) <= 1
    assert device.memory_bytes_per_s == float(row["accel_mem_gbps"]) * 1e9


@pytest.mark.parametrize("row", DEVICES, ids=lambda row: row["name"])
def test_devices_are_those_collected(row: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(f'[machines.m]\ndevice = "{row["name"]}"\n')
    device = load_hardware(str(file)).device
    columns = {"fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "tensor_fp16_tflops"}
    columns |= {"bf16": "bf16_tflops", "fp8": "fp8_tflops"}
    for number_format, column in columns.items():
        peak, reached = device.flops.get(number_format), device.matmul_flops.get(number_format)
        if number_format == "fp16" and row["name"].startswith("P100"):  # no tensor cores, yet twice the rate
            assert peak == pytest.approx(2 * device.fp32_flops, rel=0.01)
            continue
        assert peak == (pytest.approx(float(row[column]) * 1e12) if row[column] else None)
        measured = row[f"measured_{number_format}"].split("-") if peak else [""]
        if measured == [""]:
            assert reached is None
        else:
            assert float(measured[0]) <= reached / 1e12 <= float(measured[-1])  # type: ignore[operator]
            assert device.matmul_source
            assert reached < 1.05 * peak  # type: ignore[operator]  # a card may clock above its sheet
    assert device.memory_bytes == float(row["mem_bytes"])
    assert device.memory_bytes_per_s == float(row["mem_gbps"]) * 1e9
    assert device.power_w == number(row["tdp_w"])
    assert (device.year, device.vendor) == (int(row["year"]), row["vendor"])
    assert device.source
    assert DATE.fullmatch(device.as_of)


def test_formats_are_absent_where_a_device_lacks_them() -> None:
    assert load_hardware("p3.2xlarge").device.formats == ("fp32", "fp16")
    assert load_hardware("p4d.24xlarge").device.formats == ("fp32", "tf32", "fp16", "bf16")
    assert load_hardware("p5.48xlarge").device.formats == ("fp32", "tf32", "fp16", "bf16", "fp8")
    assert load_hardware("c5.18xlarge").device.formats == ("fp32",)


@pytest.mark.parametrize("name", hardware_names())
def test_devices_of_one_machine_are_joined_by_a_fabric_with_a_source(name: str) -> None:
    hardware = load_hardware(name)
    assert (hardware.fabric is not None) == (hardware.device_count > 1)
    if hardware.fabric:
        assert 10e9 < hardware.fabric.bytes_per_s < 1e12
        assert hardware.fabric.source
        assert DATE.fullmatch(hardware.fabric.as_of)
        assert (hardware.fabric.kind == "pcie") == (hardware.fabric.topology == "pcie")


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
        "rdma": hardware.rdma,
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
