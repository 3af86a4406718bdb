"""Calibrations of the machine and its network as tables."""

from __future__ import annotations

from planner.calibrate.accelerator import AcceleratorCalibration
from planner.calibrate.compute import ComputeCalibration
from planner.calibrate.network import NetworkCalibration
from planner.report.output import Column, Table
from planner.units import format_bandwidth, format_bytes, format_seconds


def compute_table(found: ComputeCalibration) -> Table:
    """Threads against the time of one multiply-add, in cache and out of it."""
    rows = [
        {
            "threads": at + 1,
            "muladd_s": found.muladd_s * inside,
            "muladd_out_of_cache_s": found.muladd_out_of_cache_s * outside,
            "interference": inside,
            "interference_out_of_cache": outside,
        }
        for at, (inside, outside) in enumerate(
            zip(found.interference, found.interference_out_of_cache, strict=True)
        )
    ]
    columns = [
        Column("threads"),
        Column("muladd_s", "multiply-add", format_seconds, "right"),
        Column("interference", "C_interf"),
        Column("muladd_out_of_cache_s", "out of cache", format_seconds, "right"),
        Column("interference_out_of_cache", "C_interf"),
    ]
    notes = [
        f"Last-level cache {format_bytes(found.cache_bytes)}; activation {format_seconds(found.act_s)}, "
        f"error term {format_seconds(found.err_s)} a neuron.",
        f"Matrix-matrix multiply-add with all cores busy: {format_seconds(found.matrix_s)} in cache, "
        f"{format_seconds(found.matrix_out_of_cache_s)} out of it.",
    ]
    return Table(rows, columns, f"{found.cpu}, {found.cores} cores", notes)


def network_table(found: NetworkCalibration) -> Table:
    """Latency by concurrent connections, and the bandwidth in words."""
    rows = [{"connections": at + 1, "latency_s": value} for at, value in enumerate(found.latency_s)]
    columns = [Column("connections"), Column("latency_s", "one-way latency", format_seconds, "right")]
    return Table(rows, columns, f"{found.host}: {format_bandwidth(found.bytes_per_s)} by {found.method}")


def accelerator_table(found: AcceleratorCalibration) -> Table:
    """Formats against what large matrix products reach."""
    rows = [{"format": name, "tflops": round(flops / 1e12, 2)} for name, flops in found.matmul_flops.items()]
    columns = [Column("format"), Column("tflops", "TFLOP/s of matrix products", align="right")]
    notes = [
        f"Large copies move {found.copy_bytes_per_s / 1e9:,.0f} GB/s; a kernel takes "
        f"{format_seconds(found.launch_s)} to launch; {found.software}."
    ]
    return Table(rows, columns, found.name, notes)
