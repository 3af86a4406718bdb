"""Energy and carbon by hand, and what is not known said to be so."""

from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.hardware.catalog import hardware_names, load_hardware
from planner.hardware.prices.cost import _grids, find_grid, machine_energy, machine_watts


def test_by_hand() -> None:
    p5 = load_hardware("p5.48xlarge")
    energy = machine_energy(p5, hours=10, machines=2)
    assert energy is not None
    assert energy.kwh == pytest.approx(2 * 10 * 8 * 700 * 1.8 / 1000 * 1.135)
    assert energy.kg_co2e == pytest.approx(energy.kwh * 379.07 / 1000)
    assert "379.07 g CO2e/kWh in us-east-1" in energy.method
    assert "PUE 1.135" in energy.method


def test_region_has_its_grid() -> None:
    energy = machine_energy(load_hardware("g4dn.xlarge"), hours=1.0, region="eu-north-1")
    assert energy is not None
    assert energy.kwh == pytest.approx(70 * 1.8 / 1000 * 1.135)
    assert energy.kg_co2e == pytest.approx(energy.kwh * 0.0407)  # over the life cycle, as the others


def test_energy_is_none_or_estimated_where_unknown() -> None:
    assert machine_energy(load_hardware("c5.18xlarge"), hours=1) is None
    runpod = machine_energy(load_hardware("runpod-1x-l4"), hours=1)
    assert runpod is not None
    assert runpod.kg_co2e is None
    assert runpod.kwh == pytest.approx(0.072 * 1.8 * 1.6)
    assert "not known" in runpod.method


def test_machine_of_ones_own(tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    lab.write_text(
        '[machines.lab]\ndevice = "T4"\ndevice_count = 4\n[machines.lab.ownership]\ncapital_usd = 18000\n'
        "lifetime_years = 4\npower_watts = 700\nenergy_usd_per_kwh = 0.25\ncooling_factor = 1.3\n"
    )
    energy = machine_energy(load_hardware(str(lab)), hours=2)
    assert energy is not None
    assert (energy.kwh, energy.kg_co2e) == (pytest.approx(1.82), None)


def test_every_gpu_machine_of_the_large_clouds_has_an_answer() -> None:
    for machine in map(load_hardware, hardware_names()):
        if machine.device.kind == "gpu" and machine.device.name != "GH200-96GB":
            assert machine_watts(machine), machine.name
        if machine.provider in ("aws", "azure", "gcp") and machine.device.kind == "gpu":
            assert find_grid(machine.provider, machine.price.region), machine.name


def test_grids_are_plausible_and_dated() -> None:
    for (provider, region), grid in _grids().items():
        assert 1 < grid.g_co2e_per_kwh < 1000, (provider, region)
        assert grid.pue is None or 1.05 < grid.pue < 1.25
        assert grid.source
        assert grid.as_of


def test_absurd_figures() -> None:
    with pytest.raises(BadInput):
        machine_energy(load_hardware("g5.xlarge"), hours=-1)
