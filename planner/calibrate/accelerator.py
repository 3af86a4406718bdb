"""`calibrate compute` on a GPU: what matrix products and memory passes reach by precision, by torch.

The same code measures CUDA, ROCm and, in tests, the CPU build of torch. Each figure is the best of several
timings of enough calls to fill a moment; all takes less than two minutes. Files are written
whole or not at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.tomlfile import read_toml, toml_key, toml_value


def to_toml(tables: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> str:
    """Formats nested tables as TOML text, with floats of six significant digits."""
    lines = [
        f"{toml_key(k)} = {toml_value(_round_floats(v))}"
        for k, v in tables.items()
        if not isinstance(v, Mapping)
    ]
    text = "\n".join(lines) + "\n" if lines else ""
    if prefix and lines:
        text = f"[{'.'.join(map(toml_key, prefix))}]\n" + text + "\n"
    elif lines:
        text += "\n"
    return text + "".join(to_toml(v, (*prefix, k)) for k, v in tables.items() if isinstance(v, Mapping))


def _round_floats(value: Any) -> Any:
    """Rounds floats, also those inside lists, to six significant digits."""
    if isinstance(value, list | tuple):
        return [_round_floats(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


MEASURED = "# Measured by `planner calibrate`; docs/hardware.md and docs/parameter-servers.md explain it.\n"


def check_toml_suffix(path: Path) -> None:
    """Raises BadInput unless the path ends in .toml, as hardware files must."""
    if path.suffix != ".toml":
        raise BadInput(f"a hardware file's name ends in .toml; {path} would not be recognised as one")


def write_hardware_file(path: Path, tables: Mapping[str, Any], head: str = MEASURED) -> None:
    """Writes a hardware file, then loads each of its machines to check that it is valid."""
    from planner.files.regular_file import write_file
    from planner.hardware.catalog import load_hardware

    check_toml_suffix(path)
    write_file(path, head + to_toml(tables))
    for name in tables.get("machines", {}):
        load_hardware(f"{path}:{name}")


def read_hardware_tables(path: Path) -> dict[str, Any]:
    """Reads the tables of a hardware file; raises BadInput if it defines no machine."""
    tables = read_toml(path).data
    _machine_tables(tables)
    return tables


def merge_compute(tables: dict[str, Any], measured: Mapping[str, Any]) -> None:
    """Adds the measured device, kernel rates and calibration to every machine of a hardware file."""
    machines = _machine_tables(tables)
    (own,) = measured["machines"].values()
    for machine in machines.values():
        machine |= {key: own[key] for key in ("device", "calibration") if key in own}
        machine.setdefault("sources", {}).update(own["sources"])
    for table in ("devices", "kernels"):
        tables.setdefault(table, {}).update(measured.get(table, {}))


def _machine_tables(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Tables of all machines in a hardware file, by machine name; raises BadInput if there is none."""
    machines: dict[str, dict[str, Any]] = tables.get("machines", {})
    if not machines:
        raise BadInput("the file defines no machine to put the figures into; it needs [machines.NAME]")
    return machines


def merge_network(tables: dict[str, Any], network: Mapping[str, Any], source: Mapping[str, str]) -> None:
    """Sets the measured bandwidth and latency of every machine in a hardware file's tables."""
    for machine in _machine_tables(tables).values():
        machine["nic_baseline_gbit_per_s"] = network["nic_gbit_per_s"]
        machine["nic_burst_gbit_per_s"] = network["nic_gbit_per_s"]
        threads = len(machine.get("calibration", {}).get("interference", [])) or int(machine.get("cores", 1))
        curve = list(network["latency_s"])
        curve = (curve + [curve[-1]] * threads)[:threads]
        machine.setdefault("calibration", {})["latency_s"] = curve
        machine.setdefault("sources", {}).update({"nic_baseline": dict(source), "nic_burst": dict(source)})


def measured_source(source: str) -> dict[str, str]:
    """Provenance entry (`basis`, `source`, `as_of`) for figures measured today."""
    return {"basis": "measured", "source": source, "as_of": date.today().isoformat()}


def own_machine_tables(
    name: str,
    machine: Mapping[str, Any],
    device: Mapping[str, Any],
    source: Mapping[str, str],
    usd_per_hour: float | None,
) -> dict[str, Any]:
    """Hardware-file tables of a user's own machine: its family, machine and device."""
    called = f"{name}-{device['kind']}"
    price = {} if usd_per_hour is None else {"on_demand_usd_per_hour": usd_per_hour}
    return {
        "family": name,
        "provider": "own",
        "machines": {name: {"device": called, **machine, "sources": {"machine": dict(source)}, **price}},
        "devices": {called: {**device, **source}},
    }


Progress = Callable[[int, int, str], None]
FORMATS = ("fp32", "tf32", "fp16", "bf16")
SIZES = (2048, 4096, 8192)  # of square products; the best of them counts, as published figures do
MEMORY_BYTES = 2**29  # of one tensor: far above any cache
LEAST_S, ROUNDS = 0.2, 3
# A copy of large tensors reaches this share of a published bandwidth: A100 1.70 to 1.75 of 2.04 TB/s
# (Azure/AI-benchmarking-guide), which is what the figure of a hardware file stands for.
COPY_SHARE = 0.85


@dataclass(frozen=True)
class AcceleratorCalibration:
    """Measured rates of one device.

    Copies count bytes read and written; `launch_s` is per empty kernel.
    """

    name: str
    vendor: str
    memory_bytes: float
    matmul_flops: Mapping[str, float]
    copy_bytes_per_s: float
    launch_s: float
    software: str


def has_accelerator() -> bool:
    """Whether torch is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def calibrate_accelerator(
    device: str = "cuda",
    progress: Progress | None = None,
    *,
    sizes: tuple[int, ...] = SIZES,
    memory_bytes: int = MEMORY_BYTES,
    least_s: float = LEAST_S,
) -> AcceleratorCalibration:
    """Measures matrix products, memory copies and kernel launches on a torch device such as `cuda:1`."""
    torch = _import_torch(device)
    done = count(1)

    def report_progress(message: str) -> None:
        """Reports the message and the number of measurements started so far."""
        if progress:
            progress(next(done), len(FORMATS) + 2, message)

    matmul_flops = {}
    for format in FORMATS:
        report_progress(f"matrix products in {format}")
        flops = _matmul_flop_per_s(torch, device, format, sizes, least_s)
        if flops is not None:
            matmul_flops[format] = flops
    report_progress("memory")
    source = torch.empty(memory_bytes // 4, device=device).fill_(1.0)
    target = torch.empty_like(source)
    copy = 2 * memory_bytes / _seconds_per_call(torch, device, lambda: target.copy_(source), least_s)
    report_progress("launches")
    tiny = torch.zeros(1, device=device)
    launch_s = _seconds_per_call(torch, device, lambda: tiny.add_(1.0), least_s)
    name, vendor = "CPU", ""
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, float(properties.total_memory)
        vendor = "amd" if torch.version.hip else "nvidia"
    software = f"torch {torch.__version__}"
    return AcceleratorCalibration(name, vendor, memory, matmul_flops, copy, launch_s, software)


def accelerator_tables(
    measured: AcceleratorCalibration, name: str, usd_per_hour: float | None = None
) -> dict[str, Any]:
    """Hardware-file tables of a measured accelerator.

    Peaks are unknown: achieved rates replace them, marked as measured.
    """
    source = measured_source(f"planner calibrate compute, {measured.software}")
    tflops = {format: flops / 1e12 for format, flops in measured.matmul_flops.items()}
    device = {
        "kind": "gpu",
        "vendor": measured.vendor,
        "tflops": tflops,
        "matmul_tflops": tflops,
        "matmul_source": source["source"],
        "memory_bytes": round(measured.memory_bytes),
        "memory_gbyte_per_s": measured.copy_bytes_per_s / COPY_SHARE / 1e9,
        "note": f"{measured.name}; large copies reach {measured.copy_bytes_per_s / 1e9:.0f} GB/s",
    }
    return own_machine_tables(name, {"device_count": 1}, device, source, usd_per_hour)


def _import_torch(device: str) -> Any:
    """Imports torch; raises BadInput if torch or a visible GPU is missing."""
    try:
        import torch
    except ImportError as error:
        raise BadInput(
            "torch is not installed, without which no GPU can be measured: pip install torch"
        ) from error
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise BadInput("torch sees no GPU here; --device cpu measures the processor")
    return torch


def _matmul_flop_per_s(
    torch: Any, device: str, format: str, sizes: tuple[int, ...], least_s: float
) -> float | None:
    """Highest FLOP/s of square matrix products of the given sizes; None if the device lacks the format."""
    gpu = torch.device(device).type == "cuda"
    if gpu and format == "bf16" and not torch.cuda.is_bf16_supported():
        return None
    ampere = gpu and not torch.version.hip and torch.cuda.get_device_capability(device)[0] >= 8
    if format == "tf32" and not ampere:
        return None
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(format, torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = format == "tf32"
    try:
        best = 0.0
        for size in sizes:
            left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
            out = torch.empty(size, size, device=device, dtype=kind)
            seconds = _seconds_per_call(torch, device, partial(torch.mm, left, right, out=out), least_s)
            best = max(best, 2.0 * size**3 / seconds)
        return best
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _seconds_per_call(torch: Any, device: str, call: Callable[[], Any], least_s: float) -> float:
    """Seconds per call: the fastest of several rounds that take at least about `least_s` each."""
    wait: Callable[[], None] = torch.cuda.synchronize if torch.device(device).type == "cuda" else lambda: None

    def elapsed_s(calls: int) -> float:
        """Seconds that this number of calls takes on the device."""
        wait()
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return time.perf_counter() - begun

    elapsed_s(2)  # libraries load and choose their kernels
    calls = 1
    while (took := elapsed_s(calls)) < least_s and calls < 2**20:
        calls = max(calls + 1, min(calls * 10, round(calls * 1.2 * least_s / max(took, 1e-9))))
    return min(elapsed_s(calls) for _ in range(ROUNDS)) / calls
