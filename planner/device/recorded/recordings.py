"""Recorded steps for any device and batch that they can speak for: the one door for plans with a profile.

A recording is used as it is on the device that it was made on. On others it is moved by kind of op
(`rescale`), and at other batches scaled (`rescale_batch`), where it holds op shapes; each with the error
that published runs say such a move has. A device that the catalog does not hold is used for itself only.

A recorded step stays what it is for parameter servers (`Computation.step`); other exchanges take only its
compute ops. Parsing of messages belongs to the transfers and goes with them. A tensor is read by the compute
ops that wait for its download, and its gradient is made by what its upload waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from planner.device.computation import Computation, Parameter
from planner.device.precision import FP32, PRECISIONS, Precision
from planner.device.rates import CONVOLUTIONS, Error, model_error
from planner.device.recorded.rescale import (
    batch_error,
    combine_errors,
    device_error,
    interpolate_batch,
    rescale,
    rescale_batch,
)
from planner.errors import BadInput
from planner.hardware import Device, Hardware
from planner.hardware.catalog import find_device
from planner.model.layers.base import KERNEL_KINDS
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER, OpRole, Profile

if TYPE_CHECKING:
    from planner.device.rates import Network
    from planner.simulator.step.recorded import OpPart


def recorded_computation(profile: Profile) -> Computation:
    """Computation of one worker in recorded steps."""
    order = profile.topological_order().tolist()
    parsing = profile.parsing_ops()
    kept = [op for op in order if profile.resource[op] == WORKER and op not in parsing]
    place = {op: at for at, op in enumerate(kept)}
    behind = _compute_deps(profile, order, place)
    deps = [{dep for before in profile.deps(op).tolist() for dep in behind[before]} for op in kept]
    durations_s = np.ascontiguousarray(profile.durations_s[:, kept])
    durations_s.flags.writeable = False
    precision = recorded_precision(profile)
    parameters = _parameters(profile, place, behind, precision.gradient_bytes)
    return Computation(
        model=profile.model,
        batch=profile.batch,
        names=tuple(profile.names[op] for op in kept),
        role=np.ascontiguousarray(profile.role[kept]),
        layer=np.ascontiguousarray(profile.layer[kept]),
        layers=profile.layers,
        deps=tuple(tuple(sorted(waits)) for waits in deps),
        durations_s=durations_s,
        parameters=parameters,
        optimizer_s=_optimizer_s(profile),
        blocks=tuple(parameter.name for parameter in parameters) or ("",),
        precision=precision,
        hardware=profile.hardware,
        basis=profile.basis,
        source=profile.source,
        notes=profile.notes,
        step=profile,
        buckets=profile.buckets,
    )


def recorded_precision(profile: Profile) -> Precision:
    """Number formats of a recorded run; under autocast, those of parameters and gradients are fp32."""
    facts = profile.recorded.facts if profile.recorded is not None else None
    if facts is None or facts.precision not in PRECISIONS:
        return FP32
    known = PRECISIONS[facts.precision]
    elements = sum(size for _, size in facts.parameters)
    sent = int(profile.bytes[profile.resource == UPLINK].sum())
    if elements and sent < 3 * elements:  # two bytes each, but for what is kept wider
        narrow = known if known.gradient_bytes == 2 else PRECISIONS["bf16"]
        return replace(narrow, master_bytes=0)  # the bytes that were recorded, under DDP too
    return replace(known, parameter_bytes=4, gradient_bytes=4, master_bytes=0)


def _optimizer_s(profile: Profile) -> float:
    """Mean seconds of the optimizer if recorded on the worker (PyTorch traces); 0 with parameter servers."""
    own = profile.role == OpRole.OPTIMIZER
    if has_servers(profile) or not own.any():
        return 0.0
    return float(profile.durations_s[:, own].sum(axis=1).mean())


def _compute_deps(profile: Profile, order: list[int], place: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """For each op by index, the positions of the nearest compute ops before it that it depends on."""
    nearest: dict[int, tuple[int, ...]] = {}
    for op in order:
        behind = {dep for before in profile.deps(op).tolist() for dep in nearest[before]}
        nearest[op] = (place[op],) if op in place else tuple(sorted(behind))
    return nearest


def _parameters(
    profile: Profile, place: dict[int, int], behind: dict[int, tuple[int, ...]], element_bytes: int
) -> tuple[Parameter, ...]:
    """Parameters of the computation, from the recorded transfers of each tensor."""
    readers: dict[int, set[int]] = {}
    start, index = profile.dependents()
    for op in np.flatnonzero(profile.resource == DOWNLINK).tolist():
        waiting = [op]
        for before in waiting:  # grows while it is read
            for after in index[start[before] : start[before + 1]].tolist():
                if after in place:
                    readers.setdefault(int(profile.tensor[op]), set()).add(place[after])
                elif profile.resource[after] in (WORKER, HOST):
                    waiting.append(after)
    sizes: dict[int, int] = {}
    ready: dict[int, int] = {}
    for op in np.flatnonzero(profile.is_transfer).tolist():
        tensor, size = int(profile.tensor[op]), int(profile.bytes[op])
        sizes[tensor] = max(sizes.get(tensor, 0), size)
        if profile.resource[op] == UPLINK and behind[op]:
            ready[tensor] = max(*behind[op], ready.get(tensor, -1))
    return tuple(
        Parameter(
            profile.tensors[tensor] if 0 <= tensor < len(profile.tensors) else f"tensor {tensor}",
            max(1, sizes[tensor] // element_bytes),
            tuple(sorted(readers.get(tensor, ()))),
            ready.get(tensor),
            block,
        )
        for block, tensor in enumerate(sorted(number for number in sizes if number >= 0))
    )


def has_servers(profile: Profile) -> bool:
    """Whether a step was recorded with parameter servers."""
    return bool(((profile.resource == PS) & (profile.role != OpRole.OPTIMIZER)).any())


CONVOLVES = {KERNEL_KINDS[at] for at in CONVOLUTIONS}


class Recordings:
    """Profiles of one loop on one device, at one or several batches."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        if not profiles:
            raise BadInput("give at least one profile")
        self.profiles = tuple(profiles)
        self.first = profiles[0]
        for other in profiles[1:]:
            for name in ("model", "hardware"):
                mine, its = getattr(self.first, name), getattr(other, name)
                if mine != its:
                    raise BadInput(
                        f"the profiles given are of two {name}s, {mine or 'unnamed'} and {its or 'unnamed'}; "
                        "give recordings of one loop on one device"
                    )
        self.batches = [profile.batch for profile in profiles]
        if len(set(self.batches)) < len(profiles):
            twice = max(self.batches, key=self.batches.count)
            raise BadInput(f"two of the profiles given have batch {twice}")
        self.source: Device | None = find_device(self.first.hardware)
        self._made: dict[tuple[int, str], Computation] = {}

    @property
    def can_scale(self) -> bool:
        """Whether the recording can be scaled, because it holds the work of its ops."""
        return all(profile.recorded is not None and profile.recorded.work for profile in self.profiles)

    @property
    def _parts(self) -> list[OpPart]:
        """Parts of all recorded ops."""
        work = self.first.recorded.work if self.first.recorded else {}
        return list(chain.from_iterable(work.values()))

    @property
    def network(self) -> Network:
        """Kind of network to which most of the recorded FLOPs belong."""
        images = sum(part.flops for part in self._parts if part.kind in CONVOLVES)
        return "cnn" if images > sum(part.flops for part in self._parts) / 2 else "transformer"

    def is_recorded_on(self, device: Device) -> bool:
        """Whether a device is the recorded one; also true if the recorded device is not named."""
        if not self.first.hardware:
            return True
        return device.name == self.first.hardware if self.source is None else device == self.source

    def mismatch_reason(self, hardware: Hardware) -> str:
        """Explains why the recording cannot predict a machine; empty string if it can."""
        device, source, name = hardware.device, self.source, self.first.hardware
        if self.is_recorded_on(device) or hardware.name == name:
            return ""
        if source is None:
            return (
                f"the profile was recorded on {name}, which the catalog does not hold: its times are those "
                f"of that device only, not of {device.name}; leave --hardware out, or import it with the "
                "--hardware that it is"
            )
        if not self.can_scale:
            return (
                f"the profile was recorded on {source.name} and holds no shapes of ops to scale it to "
                f"{device.name} by; name machines with {source.name}, or record with `planner record`"
            )
        if "cpu" in (source.kind, device.kind):
            return (
                f"the profile was recorded on {_device_text(source)}, and nothing measured says how a "
                f"step moves from there to {_device_text(device)}; name machines with "
                f"{_device_text(source)}, or record on a GPU"
            )
        lacking = sorted(self.formats - {"tf32"} - set(device.flops))
        if lacking:
            return f"the profile computes in {', '.join(lacking)}, and {device.name} does not"
        if device.memory_bytes_per_s is None:
            return f"the memory bandwidth of {device.name} is unknown, so that nothing can be scaled to it"
        return ""

    @property
    def formats(self) -> set[str]:
        """Number formats of the arithmetic and memory traffic of the recorded ops."""
        return {part.format for part in self._parts if part.flops or part.moved_bytes}

    def check_batch(self, batch: int) -> None:
        """Raises BadInput if the recording cannot be scaled to this batch."""
        if batch in self.batches or self.can_scale or len(self.profiles) > 1:
            return
        raise BadInput(
            f"--batch {batch} contradicts --profile, which was recorded at batch {self.first.batch} and "
            "holds no shapes of ops to scale it by; record one for each batch"
        )

    def scaled_profile(self, batch: int, device: Device) -> Profile:
        """Recorded steps scaled to a batch and a device."""
        if len(self.profiles) > 1:
            profile = interpolate_batch(self.profiles, batch)
        else:
            self.check_batch(batch)
            profile = rescale_batch(self.first, batch, self._rated_device)
        if self.source is None or self.is_recorded_on(device):
            return profile
        return replace(rescale(profile, self.source, device), basis="scaled", hardware=device.name)

    @property
    def _rated_device(self) -> Device | None:
        """The recorded device if it is a GPU with known memory bandwidth, else None."""
        known = self.source
        return known if known is not None and known.kind == "gpu" and known.memory_bytes_per_s else None

    def computation(self, batch: int, device: Device) -> Computation:
        """Computation of the recorded steps, scaled to a batch and a device; cached."""
        key = (batch, repr(device))
        if key not in self._made:
            self._made[key] = recorded_computation(self.scaled_profile(batch, device))
        return self._made[key]

    def error(self, batch: int, device: Device) -> Error | None:
        """Error of the scaled recording; None if its run was not described."""
        if self.first.recorded is None:
            return None
        error = replace(model_error("recorded", "all"), source="the spread between steps of one recording")
        if batch not in self.batches:
            error = combine_errors(error, batch_error(self.batches, batch, self._rated_device))
        if self.source is not None and not self.is_recorded_on(device):
            error = combine_errors(error, device_error(self.source, device, self.network))
        return error

    def origin_text(self, batch: int, device: Device) -> str:
        """Text on the origin: `recorded on A10G at batch 32, scaled to H100: range 0.71 to 1.41 times`."""
        known = self.source
        name = (known.name if known else self.first.hardware) or "an unnamed device"
        batches = "batches" if len(self.batches) > 1 else "batch"
        origin = f"recorded on {name} at {batches} {' and '.join(map(str, sorted(self.batches)))}"
        to = [] if known is None or self.is_recorded_on(device) else [device.name]
        if batch not in self.batches:
            to.append(f"batch {batch}")
        error = self.error(batch, device)
        if not to or error is None:
            return origin
        low, high = error.range_around(1.0)
        return f"{origin}, scaled to {' and '.join(to)}: range {low:.2f} to {high:.2f} times ({error.source})"


def _device_text(device: Device) -> str:
    """Name of a device, with its number of cores if it is a CPU."""
    return f"{device.cores} cores of {device.name}" if device.kind == "cpu" else device.name
