"""Calibrations as tables: what was measured, in the units that people read."""

import pytest

from planner.calibrate.accelerator import AcceleratorCalibration
from planner.calibrate.compute import ComputeCalibration
from planner.calibrate.network import NetworkCalibration
from planner.report.profile import accelerator_table, compute_table, network_table

COMPUTE = ComputeCalibration(
    cpu="Some CPU",
    cores=2,
    clock_ghz=2.0,
    flop_per_cycle=32.0,
    memory_gib=16.0,
    cache_bytes=8 * 2**20,
    muladd_s=0.5e-9,
    muladd_out_of_cache_s=0.8e-9,
    interference=(1.0, 1.2),
    interference_out_of_cache=(1.0, 2.5),
    act_s=5e-9,
    err_s=1e-9,
    matrix_s=0.05e-9,
    matrix_out_of_cache_s=0.06e-9,
    copy_bytes_per_s=2e10,
)


def test_multiply_add_takes_longer_beside_other_threads():
    table = compute_table(COMPUTE)
    assert table.title == "Some CPU, 2 cores"
    assert [row["threads"] for row in table.rows] == [1, 2]
    assert [row["muladd_s"] for row in table.rows] == pytest.approx([0.5e-9, 0.6e-9])
    assert [row["muladd_out_of_cache_s"] for row in table.rows] == pytest.approx([0.8e-9, 2.0e-9])
    assert [row["interference_out_of_cache"] for row in table.rows] == [1.0, 2.5]


def test_latency_is_that_of_so_many_connections():
    table = network_table(NetworkCalibration("other", 1.25e9, (2e-5, 3e-5), "iperf3"))
    assert table.title == "other: 10 Gbit/s by iperf3"
    assert table.rows == [
        {"connections": 1, "latency_s": 2e-5},
        {"connections": 2, "latency_s": 3e-5},
    ]


def test_formats_have_the_rate_of_large_products():
    result = AcceleratorCalibration(
        name="Some GPU",
        vendor="nvidia",
        memory_bytes=16e9,
        matmul_flops={"fp32": 8.1234e12, "fp16": 65e12},
        copy_bytes_per_s=300e9,
        launch_s=5e-6,
        software="torch 2.6",
    )
    table = accelerator_table(result)
    assert table.title == "Some GPU"
    assert table.rows == [{"format": "fp32", "tflops": 8.12}, {"format": "fp16", "tflops": 65.0}]
    assert table.notes == ["Large copies move 300 GB/s; a kernel takes 5 us to launch; torch 2.6."]
