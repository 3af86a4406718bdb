"""The catalog's own data: every machine has a price, a date, a source and a NIC or a stated absence, and
every figure is the one that was collected (tests/data/hardware, with sources)."""

import csv
import re
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest

from planner.hardware import Hardware
from planner.hardware.catalog import hardware_names, load_hardware
from planner.hardware.schema import GIB
from planner.units import GBIT_BYTES_PER_S

DATA = Path(__file__).parents[1] / "data/hardware"
INSTANCES = {row["name"]: row for row in csv.DictReader((DATA / "instances.csv").open())}
OFFERS = list(csv.DictReader((DATA / "offers.csv").open()))
DEVICES = list(csv.DictReader((DATA / "devices.csv").open()))
PEAKS = list(csv.DictReader((DATA / "cpu_peaks.csv").open()))
DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")


# three that one list prices by the device and no list describes
ADDED = {"oci-BM.GPU.B200.8", "oci-BM.GPU.B300.8", "oci-BM.GPU.MI300X.8"}


@lru_cache
def sold_by(provider: str) -> list[Hardware]:
    return [machine for machine in map(load_hardware, hardware_names()) if machine.provider == provider]


def offered(row: dict[str, str]) -> Hardware | None:
    """The machine of a row; None for the price of one device alone."""
    if row["name"].startswith("1x "):
        return None
    names = {machine.offered_as or machine.name: machine for machine in sold_by(row["provider"])}
    if row["provider"] == "coreweave":
        return names["coreweave-" + row["name"].lower().replace(" ", "-")]
    return names[row["name"]]


def number(text: str) -> float | None:
    return float(text) if text else None


def test_every_collected_machine_is_there_and_no_other() -> None:
    assert len(INSTANCES) == 84
    named = {load_hardware(name).name for name in INSTANCES}
    named |= {machine.name for row in OFFERS for machine in [offered(row)] if machine}
    assert {name for name in set(hardware_names()) - named if not name.startswith("crusoe-")} == ADDED
    assert len(hardware_names()) == 290


@pytest.mark.parametrize("row", OFFERS, ids=lambda row: f"{row['provider']}-{row['name']}-{row['region']}")
def test_offers_are_those_collected(row: dict[str, str]) -> None:
    hardware = offered(row)
    if hardware is None:  # a price of one device, which machines take times their number
        assert row["as_of"] == "2026-10-10"
        usd = float(row["price_usd_hour"])
        priced = [h for h in sold_by(row["provider"]) if h.device.name == row["accel_name"]]
        assert priced
        for machine in priced:
            if machine.price.as_of == "2026-10-10":
                assert machine.price.on_demand_usd_per_hour == pytest.approx(usd * machine.device_count)
        return
    assert hardware.standing == "rentable"
    assert (hardware.device.name, hardware.device_count) == (row["accel_name"], int(row["accel_count"]))
    assert hardware.vcpus == number(row["vcpus"])
    assert (hardware.memory_bytes or 0) == (number(row["memory_gib"]) or 0) * GIB
    for figure, column in (("burst", "net_gbps_nominal"), ("baseline", "net_gbps_baseline")):
        gbit = number(row[column])
        result = getattr(hardware, f"nic_{figure}_bytes_per_s")
        assert result == (None if gbit is None else pytest.approx(gbit * GBIT_BYTES_PER_S))
    assert (hardware.local_disk_bytes or 0) == (number(row["local_nvme_gb"]) or 0) * 1e9
    if row["rdma"] and "only" not in row["rdma"]:
        assert hardware.rdma == (row["rdma"] != "none")
        assert hardware.nics == number(row["rdma_nics"])
        total = number(row["rdma_total_gbps"])
        expected = None if total is None else total * GBIT_BYTES_PER_S
        assert hardware.rdma_bytes_per_s == (pytest.approx(expected) if expected else None)
    price = hardware.price_in("any" if row["region"].startswith(("any", "all")) else row["region"])
    assert price is not None
    assert price.source
    assert DATE.fullmatch(price.as_of)
    assert price.spot_usd_per_hour == number(row["spot_usd_hour"])
    if price.as_of == row["as_of"] and "Flex-start" not in hardware.status:
        assert price.on_demand_usd_per_hour == number(row["price_usd_hour"])
    elif price.as_of != row["as_of"]:  # a later list
        assert price.as_of == "2026-10-10" > row["as_of"]


def test_topologies_are_those_collected() -> None:
    kinds = {"NVSwitch": "nvswitch", "NVLink 3": "nvswitch", "NVLink 5": "nvswitch", "NVLink 2": "nvlink"}
    kinds |= {"NVLink pair": "nvlink", "2 NVLink pairs": "nvlink", "xGMI": "xgmi", "PCIe": "pcie"}
    for row in OFFERS:
        hardware = offered(row)
        if hardware and hardware.fabric and row["topology"]:
            expected = next(kind for words, kind in kinds.items() if row["topology"].startswith(words))
            assert hardware.fabric.kind == expected, hardware.name


def test_pairs_are_slow_between_and_meshes_give_a_pair_one_link() -> None:
    four = load_hardware("Standard_NC96ads_A100_v4").fabric
    assert four is not None
    assert (four.topology, four.bytes_per_s, four.between_bytes_per_s) == ("pairs", 300e9, 31e9)
    assert four.allreduce_bytes_per_s == 25e9
    two = load_hardware("runpod-2x-mi300x").fabric
    assert two is not None
    assert two.bytes_per_s == 64e9


def test_unrentable_machines_are_not_marked_rentable() -> None:
    standing = {name: load_hardware(name).standing for name in hardware_names()}
    retired = {name for name, value in standing.items() if value == "retired"}
    assert {name.partition(".")[0] for name in retired} == {
        "p2",
        "p3",
        "g3",
        "Standard_NC6",
        "Standard_NC6s_v3",
    }
    assert {name for name, value in standing.items() if value == "example"} == {
        "private-opteron", "private-2xe5-2450-10gbe", "private-32core-1gbe"
    }  # fmt: skip
    assert set(standing.values()) == {"rentable", "retired", "example"}


def test_names_by_lines_are_those_that_the_files_define() -> None:
    """Machines are found by lines of text; reading the files in full must give the same."""
    by_name = {}
    for path in sorted(Path(load_hardware("p3.2xlarge").path).parent.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        by_name |= {name: data.get("family", path.stem) for name in data.get("machines", {})}
        for name, machine in data.get("machines", {}).items():
            for alias in (*machine.get("aliases", ()), machine.get("offered_as", name)):
                assert load_hardware(alias).name == name
    assert by_name == {name: load_hardware(name).family for name in hardware_names()}


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
        if number_format == "tf32" and row["name"].startswith("RTX-PRO-6000"):  # not published
            assert peak == pytest.approx(device.flops["bf16"] / 2)
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
    assert price.on_demand_usd_per_hour or (price.spot_usd_per_hour and hardware.status)
    assert price.region
    for other in hardware.other_prices:
        assert other.region
        assert other.source
        assert DATE.fullmatch(other.as_of)
        assert other.on_demand_usd_per_hour or other.spot_usd_per_hour
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
def test_nic_or_a_stated_absence(name: str) -> None:
    hardware = load_hardware(name)
    if hardware.nic_bytes_per_s("baseline") is None:
        said = Path(hardware.path).read_text()
        assert hardware.nic_label or "no network figure" in said.lower()
    else:
        assert hardware.nic_bytes_per_s("burst") >= hardware.nic_bytes_per_s("baseline")  # type: ignore[operator]


def test_spot_is_not_above_on_demand() -> None:
    for name in hardware_names():
        price = load_hardware(name).price
        if price.spot_usd_per_hour:
            assert price.spot_usd_per_hour <= (price.on_demand_usd_per_hour or 1e4)


def test_kernel_rates_are_sane_where_there_are_any() -> None:
    for name in hardware_names():
        hardware = load_hardware(name)
        if hardware.kernels:
            assert hardware.kernels.source
            macs = [rate for kind, rate in hardware.kernels.rates.items() if kind != "memory"]
            # Winograd and FFT need fewer multiply-adds than they are counted for, yet not ten times fewer
            assert all(0 < 2 * rate < 10 * hardware.device.fp32_flops for rate in macs)
