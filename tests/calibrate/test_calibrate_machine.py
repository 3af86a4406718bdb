"""Calibrations: files the catalog reads back, the probe over loopback, and what is said when it fails."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.calibrate import compute, network
from planner.calibrate.accelerator import merge_network, to_toml, write_hardware_file
from planner.calibrate.compute import (
    ComputeCalibration,
    _interpolate_slowdowns,
    _thread_counts,
    hardware_tables,
)
from planner.calibrate.network import calibrate_network
from planner.errors import BadInput, PlannerError
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.partition.layers import constants_for
from planner.servers.partition.search import PartitionRequest, partition

FOUND = ComputeCalibration(
    cpu="Some CPU @ 2.0",
    cores=4,
    clock_ghz=2.0,
    flop_per_cycle=32.0,
    memory_gib=16.0,
    cache_bytes=8 * 2**20,
    muladd_s=0.5e-9,
    muladd_out_of_cache_s=0.9e-9,
    interference=(1.0, 1.0, 1.1, 1.2),
    interference_out_of_cache=(1.0, 1.3, 1.8, 2.4),
    act_s=5e-9,
    err_s=1e-9,
    matrix_s=0.05e-9,
    matrix_out_of_cache_s=0.06e-9,
    copy_bytes_per_s=2e10,
)


def test_written_file_is_accepted_by_the_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    tables = hardware_tables(FOUND, "mine", usd_per_hour=0.25)
    write_hardware_file(path, tables)
    with pytest.raises(BadInput, match="calibrate network"):
        constants_for(load_hardware(str(path)))
    source = {"basis": "measured", "source": "planner calibrate network", "as_of": "2026-11-16"}
    merge_network(tables, {"nic_gbit_per_s": 9.4, "latency_s": (2e-5, 3e-5)}, source)
    write_hardware_file(path, tables)
    hardware = load_hardware(str(path))
    constants = constants_for(hardware)
    assert constants.muladd_s == 0.5e-9
    assert constants.interference_out_of_cache == (1.0, 1.3, 1.8, 2.4)
    assert constants.latency_s == (2e-5, 3e-5, 3e-5, 3e-5)
    assert constants.nic_bytes_per_s == pytest.approx(9.4e9 / 8)
    assert hardware.price.on_demand_usd_per_hour == 0.25
    assert hardware.device.fp32_flops == 4 * 2e9 * 32
    assert partition(load_model("mnist-adam"), hardware, PartitionRequest(4)).plans


def test_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ends in \.toml"):
        write_hardware_file(tmp_path / "mine.txt", hardware_tables(FOUND, "mine"))
    assert not (tmp_path / "mine.txt").exists()
    with pytest.raises(BadInput, match=r"\[machines.NAME\]"):
        merge_network({}, {"nic_gbit_per_s": 1.0, "latency_s": (1e-5,)}, {})


def test_toml_round_trip() -> None:
    tables = {"a": 1, "t": {"x y": 'say "hi"', "list": [1.5, 2e-9], "flag": True, "deep": {"k": "v"}}}
    assert tomllib.loads(to_toml(tables)) == tables


def test_threads_between_those_measured_are_interpolated() -> None:
    assert _thread_counts(3) == [1, 2, 3]
    assert _thread_counts(64)[-1] == 64
    assert _interpolate_slowdowns({1: 1.0, 3: 2.0}, 3) == (1.0, 1.5, 2.0)
    assert _interpolate_slowdowns({1: 1.0, 2: 0.9}, 2) == (1.0, 1.0)


def test_probe_over_loopback() -> None:
    result = calibrate_network("localhost", connections=2, seconds=0.05)
    assert result.bytes_per_s > 1e6
    assert len(result.latency_s) == 2
    assert all(0 < value < 1 for value in result.latency_s)


def test_calibrate_network_without_server_is_refused() -> None:
    with pytest.raises(BadInput, match="--serve"):
        calibrate_network("127.0.0.2", port=1)


TIMES = {
    ("muladd", 1): 1e-9,
    ("muladd", 2): 1.5e-9,
    ("muladd_out_of_cache", 1): 2e-9,
    ("muladd_out_of_cache", 2): 5e-9,
    ("matrix", 1): 1e-10,
    ("matrix", 2): 1.25e-10,
    ("matrix_out_of_cache", 2): 2.5e-10,
    ("act", 1): 4e-9,
    ("err", 1): 3e-9,
    ("copy", 2): 1e-10,  # of a byte
}


def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let another program take the place of the canonical computations, on a machine of two cores."""
    (tmp_path / "canonical.py").write_text(script)
    monkeypatch.setattr(compute, "__file__", str(tmp_path / "compute.py"))
    monkeypatch.setattr(compute.os, "sched_getaffinity", lambda process: {3, 5}, raising=False)


def test_measurements_become_constants_and_rates(tmp_path, monkeypatch) -> None:
    lines = [{"measurements": len(TIMES)}]
    lines += [{"name": name, "threads": n, "seconds": seconds} for (name, n), seconds in TIMES.items()]
    pretended(tmp_path, monkeypatch, f"import json\nfor line in {lines}: print(json.dumps(line))")
    seen: list[tuple[int, int, str]] = []
    calibrate_compute = compute.calibrate_compute(lambda *said: seen.append(said))
    assert seen[0] == (1, 10, "muladd, 1 threads")
    assert len(seen) == 10
    assert (calibrate_compute.cores, calibrate_compute.muladd_s, calibrate_compute.muladd_out_of_cache_s) == (
        2,
        1e-9,
        2e-9,
    )
    assert (calibrate_compute.interference, calibrate_compute.interference_out_of_cache) == (
        (1.0, 1.5),
        (1.0, 2.5),
    )
    assert (calibrate_compute.act_s, calibrate_compute.err_s) == (4e-9, 3e-9)
    assert (calibrate_compute.matrix_s, calibrate_compute.matrix_out_of_cache_s) == (1.25e-10, 2.5e-10)
    assert calibrate_compute.copy_bytes_per_s == pytest.approx(
        4e10
    )  # two threads, each byte read and written
    assert calibrate_compute.memory_gib > 0.1
    assert calibrate_compute.flop_per_cycle in (8.0, 16.0, 32.0, 64.0)
    kernels = hardware_tables(calibrate_compute, "mine")["kernels"]["mine-cpu"]["rates"]
    assert kernels["conv"] == pytest.approx(2 / 1.25e-10)
    assert kernels["fc"] == pytest.approx(2 / 2.5e-10)


def test_computations_that_fail_say_why(tmp_path, monkeypatch) -> None:
    pretended(tmp_path, monkeypatch, "import sys\nsys.exit('no memory')")
    with pytest.raises(PlannerError, match=r"failed: .*no memory"):
        compute.calibrate_compute()


def test_canonical_computations_measure_all_that_is_needed(monkeypatch, capsys) -> None:
    import json

    from planner.calibrate import canonical

    monkeypatch.setattr(canonical, "_LEAST_S", 1e-4)
    monkeypatch.setattr(canonical, "_REPEATS", 1)
    canonical.measure(2**16, [1, 2])
    first, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"measurements": len(TIMES)}
    assert {(line["name"], line["threads"]) for line in lines} == set(TIMES)
    assert all(1e-13 < line["seconds"] < 1e-5 for line in lines)


def test_command_writes_a_file_that_plans_can_use(tmp_path, monkeypatch, capsys) -> None:
    from planner.cli.profile import measure_compute as command

    monkeypatch.setattr(compute, "calibrate_compute", lambda progress: FOUND)
    path = tmp_path / "mine.toml"
    call(command, name="mine", usd_per_hour=0.5, output=path)
    said = capsys.readouterr()
    assert "planner calibrate network HOST --into" in said.err
    assert "Some CPU" in said.out
    assert load_hardware(str(path)).price.on_demand_usd_per_hour == 0.5
    with pytest.raises(BadInput, match=r"\.toml"):
        call(command, name="mine", output=tmp_path / "mine.txt")


def call(command: Callable[..., None], **given: object) -> None:
    """Call a command as typer does: with the defaults of its options."""
    parameters = inspect.signature(command).parameters.items()
    defaults = {name: getattr(each.default, "default", each.default) for name, each in parameters}
    command(**{**defaults, **given})


def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Let nothing be measured between machines; what is asked for is kept."""
    asked: list[dict[str, object]] = []

    def calibrated(host, *, port, connections, progress):
        asked.append({"host": host, "port": port, "connections": connections})
        progress("one connection")
        return network.NetworkCalibration(host, 1.25e9, (2e-5,) * connections, "iperf3")

    monkeypatch.setattr(network, "calibrate_network", calibrated)
    return asked


def test_network_is_measured_into_a_file(tmp_path, monkeypatch, capsys) -> None:
    from planner.cli.profile import measure_network as command

    asked, path = measured(monkeypatch), tmp_path / "mine.toml"
    write_hardware_file(path, hardware_tables(FOUND, "mine"))
    call(command, host="other", connections=2)
    said = capsys.readouterr()
    assert said.err == "planner: one connection\n"
    assert "other: 10 Gbit/s by iperf3" in said.out
    assert load_hardware(str(path)).nic_baseline_bytes_per_s is None
    call(command, host="other", connections=2, port=7, into=path)
    assert capsys.readouterr().err == f"planner: one connection\nplanner: wrote {path}\n"
    assert asked[-1] == {"host": "other", "port": 7, "connections": 2}
    assert load_hardware(str(path)).nic_baseline_bytes_per_s == pytest.approx(1.25e9)
    assert "planner calibrate network other (iperf3)" in path.read_text("utf-8")


def test_other_machine_answers_and_somebody_has_to_be_it(monkeypatch, capsys) -> None:
    from planner.cli.profile import measure_network as command

    asked = measured(monkeypatch)
    with pytest.raises(BadInput, match="name the other machine"):
        call(command)
    assert capsys.readouterr().err == ""

    def answering(port: int) -> None:
        raise KeyboardInterrupt(port)

    monkeypatch.setattr(network, "serve", answering)
    with pytest.raises(KeyboardInterrupt, match="7"):
        call(command, serve=True, port=7)
    assert capsys.readouterr().err == "planner: answering on port 7; Ctrl-C ends it\n"
    assert asked == []


def test_progress_of_a_measurement_is_counted_where_its_length_is_known(capsys) -> None:
    from planner.cli.profile import _print_progress

    _print_progress(2, 10, "muladd")
    _print_progress(0, 0, "latency")
    assert capsys.readouterr().err == "planner: 2/10 muladd\nplanner: latency\n"


def test_gpu_is_measured_where_there_is_one_or_where_it_is_asked_for(monkeypatch, capsys) -> None:
    from planner.calibrate import accelerator
    from planner.cli.profile import UnitOption
    from planner.cli.profile import measure_compute as command

    gpu = accelerator.AcceleratorCalibration("Some GPU", "nvidia", 16e9, {"fp32": 8e12}, 3e11, 5e-6, "torch")
    monkeypatch.setattr(accelerator, "calibrate_accelerator", lambda device, progress: gpu)
    monkeypatch.setattr(compute, "calibrate_compute", lambda progress: FOUND)
    for there, device, name in (
        (True, UnitOption.auto, "Some GPU"),
        (False, UnitOption.auto, "Some CPU"),
        (False, UnitOption.gpu, "Some GPU"),
        (True, UnitOption.cpu, "Some CPU"),
    ):
        monkeypatch.setattr(accelerator, "has_accelerator", lambda there=there: there)
        call(command, device=device)
        assert name in capsys.readouterr().out
