"""The measurement of GPUs, run on the CPU build of torch: the same code path."""

from __future__ import annotations

import pytest

from planner.calibrate.accelerator import (
    COPY_SHARE,
    AcceleratorCalibration,
    accelerator_tables,
    calibrate_accelerator,
    merge_compute,
    write_hardware_file,
)
from planner.device.precision import BF16
from planner.device.rates.times import computation_s
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.report.profile import accelerator_table

FOUND = AcceleratorCalibration(
    "NVIDIA Test", "nvidia", 24e9, {"fp32": 50e12, "bf16": 160e12}, 850e9, 5e-6, "torch 2"
)


def test_file_that_is_written_predicts_by_what_was_measured(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    write_hardware_file(path, accelerator_tables(FOUND, "mine", 1.5))
    hardware = load_hardware(str(path))
    assert hardware.price.on_demand_usd_per_hour == 1.5
    device = hardware.device
    assert device.matmul_flops["bf16"] == 160e12
    assert device.basis == "measured"
    assert device.memory_bytes_per_s == pytest.approx(850e9 / COPY_SHARE)
    assert computation_s(load_model("gpt2"), 8, device, BF16).basis == "matmul"


def test_merge_compute_keeps_the_cluster_and_replaces_its_device(tmp_path) -> None:
    tables = {
        "family": "mine",
        "provider": "own",
        "machines": {"mine": {"device": "A100-SXM4-80GB", "device_count": 8, "machines": 4}},
    }
    merge_compute(tables, accelerator_tables(FOUND, "ignored"))
    write_hardware_file(tmp_path / "mine.toml", tables)
    hardware = load_hardware(str(tmp_path / "mine.toml"))
    assert (hardware.device_count, hardware.machines) == (8, 4)
    assert hardware.device.matmul_flops["bf16"] == 160e12
    with pytest.raises(BadInput, match="no machine"):
        merge_compute({}, accelerator_tables(FOUND, "ignored"))


def test_table_shows_formats_and_memory() -> None:
    table = accelerator_table(FOUND)
    assert table.rows[1] == {"format": "bf16", "tflops": 160.0}
    assert "850 GB/s" in table.notes[0]


def test_machine_without_a_gpu_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BadInput, match="torch sees no GPU"):
        calibrate_accelerator("cuda")


def test_cpu_build_measures_itself() -> None:
    pytest.importorskip("torch")
    said = []
    result = calibrate_accelerator(
        "cpu", lambda done, total, words: said.append(words), sizes=(64,), memory_bytes=2**20, least_s=1e-3
    )
    assert set(result.matmul_flops) == {"fp32", "fp16", "bf16"}
    assert all(flops > 1e6 for flops in result.matmul_flops.values())
    assert result.copy_bytes_per_s > 1e6
    assert 0 < result.launch_s < 1
    assert said[-1] == "launches"
    assert len(said) == 6
