"""What a worker of the partition search is: one device of a machine, as fast as synthesis says.

A machine whose file has measured constants (`[calibration]` with `muladd_s`, as the paper's) computes by
them. Every other computes each layer as `planner simulate` does, by the kernel rates of its device for a
batch of what is trained between two reads, and parses what it receives as gRPC does. The devices of a machine
share its NIC: each is a worker with its part of it.
"""

from __future__ import annotations

from dataclasses import replace

from planner.device.computation.synthesis import kernel_rates
from planner.device.rates.times import fitted_times
from planner.hardware import Hardware, Network
from planner.model import Model
from planner.servers.partition.constants import PaperConstants, constants_for
from planner.servers.partition.layers import Split
from planner.servers.partition.stages import Stage
from planner.servers.served_step import GRPC_PARSING


def worker_constants(hardware: Hardware, network: Network = "baseline") -> PaperConstants:
    """The constants of one device of a machine."""
    constants = constants_for(hardware, network)
    if not calibrated(hardware):
        constants = replace(
            constants,
            parse_s_per_byte=GRPC_PARSING.alpha_s_per_byte,
            parse_s=GRPC_PARSING.beta_s,
            basis=f"by the kernel rates of {hardware.device.name}, as `planner simulate` computes",
        )
    devices = hardware.device_count
    if devices == 1:
        return constants
    nic = constants.nic_bytes_per_s
    return replace(constants, nic_bytes_per_s=nic / devices, server_nic_bytes_per_s=nic)


def calibrated(hardware: Hardware) -> bool:
    """Whether a machine's file says how long its threads take for a multiply-add."""
    return "muladd_s" in hardware.calibration


def stage_splits(
    model: Model, stages: tuple[Stage, ...], hardware: Hardware, batch: int
) -> tuple[Split, ...] | None:
    """Computing of one sample of each stage on a whole device; None where constants say it."""
    if calibrated(hardware):
        return None
    times = fitted_times(model, batch, kernel_rates(hardware))
    forward, backward = times.forward_s / batch, times.backward_s / batch
    at = {layer.name: index for index, layer in enumerate(model.layers)}
    return tuple(
        Split(
            forward_compute_s=float(sum(forward[at[name]] for name in stage.layers)),
            backward_compute_s=float(sum(backward[at[name]] for name in stage.layers)),
        )
        for stage in stages
    )
