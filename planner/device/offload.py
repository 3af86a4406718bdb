"""Offload: optimizer state, parameters or saved activations in host memory, and what moving them takes.

`footprint` says what is left on the device and what host memory has to hold; here is the time. A device
copies over its PCIe slot, which works in both directions at once; N parameters of a device, P their bytes, A
saved activations of a micro-batch, G gradients, each the device's shard:

    forward pass     P comes, A goes             exposed: max(P, A) / copy - forward time
    backward pass    P and A come, G goes        exposed: max(P + A, G) / copy - backward time
    update           the host's processors update N; the parameters come back unless they stay there

Only what exceeds the pass that it runs beside makes a step longer. The update runs alone, as in DeepSpeed's
ZeRO-Offload, whose Adam updates 1 billion parameters in 0.22 to 0.26 s on the 96 threads of a DGX-2 (as
recalled of Ren et al. 2021, table 4). It reads and writes about 30 bytes per parameter. Hosts of 2024 with
twice the threads are hardly faster (Llama 3.1 8B by ZeRO-3 on 8 H200 and 8 B200, docs/memory.md), so that the
rate of a machine is bounded. Its devices share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.device.activations import Recompute
from planner.device.computation import BACKWARD, FORWARD, Computation
from planner.device.memory import OFFLOADED, WHOLE, Shares, footprint, training_settings
from planner.errors import BadInput
from planner.model import Model

if TYPE_CHECKING:
    from planner.hardware import Device, Hardware

COPY_SHARE = 0.82  # of a PCIe slot's line rate, by a copy from pinned memory
UPDATES_PER_VCPU = 42e6  # parameters per second, by Adam
MOST_UPDATES_PER_S = 4.3e9  # of a machine
ASSUMED_VCPUS = 8  # of a device, where a machine's file does not say
PACKING_PASSES = 3  # bytes read and written for each byte of an activation that is put into eight bits
PCIE_BYTES_PER_S = {2022: 63e9, 2020: 31e9, 0: 15.8e9}  # x16, each way, by the first year of a generation
BOARD_PCIE_BYTES_PER_S = 31e9  # of graphics boards of 2022 and 2023


@dataclass(frozen=True, slots=True)
class HostLink:
    """Rates at which the host serves one of a machine's devices."""

    copy_bytes_per_s: float  # each way
    updates_per_s: float  # parameters


@dataclass(frozen=True, slots=True)
class OffloadTimes:
    """Seconds that offload adds to passes and to the update on the host."""

    forward_s: float
    backward_s: float
    update_s: float


def offload_parts(names: Sequence[str]) -> tuple[str, ...]:
    """Validates the parts to offload and orders them; offloading parameters adds the optimizer."""
    for name in names:
        if name not in OFFLOADED:
            raise BadInput(f"--offload is {name!r}; it is one or several of {', '.join(OFFLOADED)}")
    asked = {*names, "optimizer"} if "parameters" in names else set(names)
    return tuple(part for part in OFFLOADED if part in asked)


def pcie_bytes_per_s(device: Device) -> float:
    """PCIe line rate of a device in bytes per second each way: published, or assumed from its year."""
    if device.pcie_bytes_per_s is not None:
        return device.pcie_bytes_per_s
    year = device.year or 2020
    rate = next(rate for first, rate in PCIE_BYTES_PER_S.items() if year >= first)
    return min(rate, BOARD_PCIE_BYTES_PER_S) if device.memory_kind == "gddr" and year < 2025 else rate


def host_link(hardware: Hardware, workers: int) -> HostLink:
    """Copy rate and update rate that each of `workers` devices gets from its host."""
    devices = min(workers, hardware.device_count)
    vcpus = hardware.vcpus or ASSUMED_VCPUS * hardware.device_count
    updates_per_s = min(UPDATES_PER_VCPU * vcpus, MOST_UPDATES_PER_S) / devices
    return HostLink(COPY_SHARE * pcie_bytes_per_s(hardware.device), updates_per_s)


def add_offload_times(
    computation: Computation,
    shard: Model,
    hardware: Hardware,
    *,
    batch: int,
    workers: int,
    recompute: Recompute = "none",
    shares: Shares = WHOLE,
) -> Computation:
    """Adds exposed offload copies, and the packing of eight-bit activations, to a computation. `shard` holds
    the layers of a replica as one device has them, of which a pipeline stage computes some."""
    settings = training_settings(shard)
    if not settings.offload and settings.activations is None:
        return computation
    memory = footprint(shard, computation.precision, recompute=recompute)
    stage = computation.elements / max(shard.trained_parameters, 1)
    link = host_link(hardware, workers)
    moved_bytes = memory.host_saved_bytes * batch * stage
    times = offload_times(computation, settings.offload, link, shares, moved_bytes)
    if settings.activations is not None and hardware.device.memory_bytes_per_s:
        saved_bytes = (memory.saved_bytes + memory.host_saved_bytes) * batch * stage
        packing_s = PACKING_PASSES * saved_bytes / hardware.device.memory_bytes_per_s
        times = OffloadTimes(times.forward_s + packing_s, times.backward_s + packing_s, times.update_s)
    factors = np.ones(computation.ops)
    for role, added_s in ((FORWARD, times.forward_s), (BACKWARD, times.backward_s)):
        if added_s:
            factors[computation.role == role] += added_s / _pass_s(computation, role)
    durations_s = computation.durations_s * factors
    durations_s.flags.writeable = False
    return replace(
        computation,
        durations_s=durations_s,
        once_s=None if computation.once_s is None else computation.once_s * factors,
        optimizer_s=times.update_s if "optimizer" in settings.offload else computation.optimizer_s,
    )


def offload_times(
    computation: Computation, parts: Sequence[str], link: HostLink, shares: Shares, saved_bytes: float
) -> OffloadTimes:
    """Seconds that offload adds to each pass of a micro-batch and to the update. `saved_bytes` are the
    activations of a micro-batch that move to the host."""
    precision = computation.precision
    elements = computation.elements
    weights = elements * precision.parameter_bytes + sum(each.frozen_bytes for each in computation.parameters)
    moved = weights * shares.parameters if "parameters" in parts else 0.0
    gradients = elements * precision.gradient_bytes * shares.optimizer if "optimizer" in parts else 0.0
    saved = saved_bytes if "activations" in parts else 0.0
    copy = link.copy_bytes_per_s
    exposed_forward = max(moved, saved) / copy - _pass_s(computation, FORWARD)
    exposed_backward = max(moved + saved, gradients) / copy - _pass_s(computation, BACKWARD)
    update_s = 0.0
    if "optimizer" in parts:
        returned = 0.0 if "parameters" in parts else elements * precision.parameter_bytes
        update_s = elements / link.updates_per_s + returned / copy
    return OffloadTimes(max(exposed_forward, 0.0), max(exposed_backward, 0.0), update_s)


def _pass_s(computation: Computation, role: int) -> float:
    """Mean seconds per step of all ops with a role."""
    return float(computation.durations_s[:, computation.role == role].sum(axis=1).mean())
