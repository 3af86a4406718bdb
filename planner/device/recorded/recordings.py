"""Recorded steps for any device and batch that they can speak for: the one door for plans with a profile.

A recording is used as it is on the device that it was made on. On others it is moved by kind of op
(`moved`), and at other batches scaled (`batched`), where it holds the shapes of its ops; each with the error
that published runs say such a move has. A device that the catalogue does not hold is used for itself only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.device.rates.constants import Error, error_of
from planner.device.rates.kernels import CONVOLUTIONS
from planner.device.recorded.rescale import (
    batch_error,
    combined_error,
    device_error,
    interpolate_batch,
    rescale,
    rescale_batch,
)
from planner.errors import BadInput
from planner.hardware import Device, Hardware
from planner.hardware.device_names import device_called
from planner.model.layers import KERNEL_KINDS
from planner.simulator.step import Profile

if TYPE_CHECKING:
    from planner.device.computation import Computation
    from planner.device.rates.kernels import Network

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
        batches = [profile.batch for profile in profiles]
        if len(set(batches)) < len(batches):
            raise BadInput(f"two of the profiles given have batch {max(batches, key=batches.count)}")
        self.source: Device | None = device_called(self.first.hardware)
        self._made: dict[tuple[int, str], Computation] = {}

    @property
    def scales(self) -> bool:
        """Whether it holds what ops ask of a device."""
        return all(profile.recorded is not None and profile.recorded.work for profile in self.profiles)

    @property
    def network(self) -> Network:
        """By what most of its arithmetic is."""
        recorded = self.first.recorded
        parts = [part for each in (recorded.work.values() if recorded else ()) for part in each]
        images = sum(part.flops for part in parts if part.kind in CONVOLVES)
        return "cnn" if images > sum(part.flops for part in parts) / 2 else "transformer"

    def same(self, device: Device) -> bool:
        """Whether a device is the one that was recorded, or nobody knows what that was."""
        if not self.first.hardware:
            return True
        return device.name == self.first.hardware if self.source is None else device == self.source

    def refusal(self, hardware: Hardware) -> str:
        """Why the recording says nothing of a machine; empty if it does."""
        device, source, name = hardware.device, self.source, self.first.hardware
        if self.same(device) or hardware.name == name:
            return ""
        if source is None:
            return (
                f"the profile was recorded on {name}, which the catalogue does not hold: its times are those "
                f"of that device only, not of {device.name}; leave --hardware out, or import it with the "
                "--hardware that it is"
            )
        if not self.scales:
            return (
                f"the profile was recorded on {source.name} and holds no shapes of ops to scale it to "
                f"{device.name} by; name machines with {source.name}, or record with `planner record`"
            )
        if "cpu" in (source.kind, device.kind):
            return (
                f"the profile was recorded on {_device_words(source)}, and nothing measured says how a "
                f"step moves from there to {_device_words(device)}; name machines with "
                f"{_device_words(source)}, or record on a GPU"
            )
        lacking = sorted(self.formats - {"tf32"} - set(device.flops))
        if lacking:
            return f"the profile computes in {', '.join(lacking)}, and {device.name} does not"
        if device.memory_bytes_per_s is None:
            return f"the memory bandwidth of {device.name} is unknown, so that nothing can be scaled to it"
        return ""

    @property
    def formats(self) -> set[str]:
        recorded = self.first.recorded
        parts = [part for each in (recorded.work.values() if recorded else ()) for part in each]
        return {part.format for part in parts if part.flops or part.moved_bytes}

    def check_batch(self, batch: int) -> None:
        if batch in {profile.batch for profile in self.profiles} or self.scales or len(self.profiles) > 1:
            return
        raise BadInput(
            f"--batch {batch} contradicts --profile, which was recorded at batch {self.first.batch} and "
            "holds no shapes of ops to scale it by; record one for each batch"
        )

    def profile(self, batch: int, device: Device) -> Profile:
        """The steps at a batch on a device."""
        if len(self.profiles) > 1:
            profile = interpolate_batch(self.profiles, batch)
        else:
            self.check_batch(batch)
            profile = rescale_batch(self.first, batch, self._rated)
        if self.source is None or self.same(device):
            return profile
        return replace(rescale(profile, self.source, device), basis="scaled", hardware=device.name)

    @property
    def _rated(self) -> Device | None:
        """The recorded device, where there are rates of it."""
        known = self.source
        return known if known is not None and known.kind == "gpu" and known.memory_bytes_per_s else None

    def computation(self, batch: int, device: Device) -> Computation:
        from planner.device.recorded.recorded import computation_of

        key = (batch, repr(device))
        if key not in self._made:
            self._made[key] = computation_of(self.profile(batch, device))
        return self._made[key]

    def error(self, batch: int, device: Device) -> Error | None:
        """How far off it may be; None where nobody has said what was recorded."""
        if self.first.recorded is None:
            return None
        error = replace(error_of("recorded", "all"), source="the spread between steps of one recording")
        batches = [profile.batch for profile in self.profiles]
        if batch not in batches:
            error = combined_error(error, batch_error(batches, batch, self._rated))
        if self.source is not None and not self.same(device):
            error = combined_error(error, device_error(self.source, device, self.network))
        return error

    def words(self, batch: int, device: Device) -> str:
        """`recorded on A10G at batch 32, scaled to H100 and batch 64: range 0.71 to 1.41 times`."""
        recorded_at = "batches" if len(self.profiles) > 1 else "batch"
        at = " and ".join(
            str(profile.batch) for profile in sorted(self.profiles, key=lambda profile: profile.batch)
        )
        known = self.source
        name = (known.name if known else self.first.hardware) or "an unnamed device"
        said = f"recorded on {name} at {recorded_at} {at}"
        to = [] if known is None or self.same(device) else [device.name]
        if batch not in [profile.batch for profile in self.profiles]:
            to.append(f"batch {batch}")
        error = self.error(batch, device)
        if not to or error is None:
            return said
        low, high = error.range_of(1.0)
        return f"{said}, scaled to {' and '.join(to)}: range {low:.2f} to {high:.2f} times ({error.source})"


def _device_words(device: Device) -> str:
    return f"{device.cores} cores of {device.name}" if device.kind == "cpu" else device.name
