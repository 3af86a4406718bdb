"""Offers of devices by price, as `sky show-gpus` lists them, and successors of retired machines.

A device is named by some words of its name: `H100` is any H100, `A100-80GB` and `H100-SXM` are narrower,
`H100:8` means machines with exactly eight. The catalog's own names are `A100-SXM4-80GB` and the like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from planner.errors import BadInput, unknown_name
from planner.hardware import CHEAPEST, Device, Hardware, Price, devices_label
from planner.hardware.catalog import catalog_device_name, match_hardware


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine in a region, at a price."""

    hardware: Hardware
    price: Price
    spot: bool = False

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the machine in USD per hour, spot or on demand; None if it has none."""
        return self.price.usd_per_hour(spot=self.spot)

    @property
    def usd_per_device_hour(self) -> float | None:
        """Price per device in USD per hour; None if the offer has no price."""
        usd = self.usd_per_hour
        return None if usd is None else usd / self.hardware.device_count

    @property
    def sort_key(self) -> tuple[float, float, str]:
        """Sort key: USD per device-hour, the other price, the name; offers without a price come last."""
        other = self.price.spot_usd_per_hour or self.price.on_demand_usd_per_hour or 1e9
        return self.usd_per_device_hour or 1e9, other / self.hardware.device_count, self.hardware.name


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A requested device and its count per machine (None: any)."""

    words: str
    count: int | None = None

    def is_met_by(self, hardware: Hardware) -> bool:
        """Whether a machine has the requested device, in the requested number if one is given."""
        return self.count in (None, hardware.device_count) and has_name(hardware.device, self.words)


def offers(
    gpu: str | None = None,
    *,
    provider: str | Iterable[str] | None = None,
    region: str | None = None,
    sold: bool = True,
    spot: bool = False,
    machines: Iterable[Hardware] | None = None,
) -> tuple[Offer, ...]:
    """Offers sorted by USD per device-hour, cheapest first.

    `gpu` names devices (`H100:8`, `A100,L4`), `provider` providers (`aws,gcp`). `region` is a region's name,
    `cheapest` for each machine's cheapest, or None for the first in its file. `sold` leaves out retired
    machines and example clusters. `spot` ranks by the spot price. `machines` defaults to the catalog. Unknown
    names are refused, with the nearest known ones.
    """
    kinds = tuple(match_hardware("*") if machines is None else machines)
    if provider is not None:
        kinds = filter_by_provider(kinds, provider)
    if gpu is not None:
        kinds = machines_with_devices(kinds, gpu)
    if sold:
        kinds = tuple(kind for kind in kinds if kind.is_available)
    if region not in (None, CHEAPEST):
        _check_region(region, kinds)
    priced = ((kind, kind.price_in(region, spot=spot)) for kind in kinds)
    found = (Offer(kind, price, spot) for kind, price in priced if price is not None)
    return tuple(sorted(found, key=lambda offer: offer.sort_key))


def machines_with_devices(machines: Iterable[Hardware], gpu: str) -> tuple[Hardware, ...]:
    """Selects machines that have one of the requested devices: `H100:8`, `A100,L4`."""
    machines = tuple(machines)
    wanted = parse_devices(gpu)
    names = {kind.device.name for kind in machines if kind.device.kind == "gpu"}
    for want in wanted:
        if not any(want.is_met_by(kind) for kind in machines):
            counts = sorted({k.device_count for k in machines if has_name(k.device, want.words)})
            if counts:
                known = ", ".join(map(str, counts))
                raise BadInput(f"no machine has {want.count} x {want.words}; there are machines with {known}")
            short = names | {name.partition("-")[0] for name in names}
            raise unknown_name("device", want.words, short, "`planner hardware` lists devices by machine")
    return tuple(kind for kind in machines if any(want.is_met_by(kind) for want in wanted))


def parse_devices(gpu: str) -> tuple[DeviceRequest, ...]:
    """Parses requested devices and their counts per machine from text: `H100:8,A100`."""
    parts = []
    for part in filter(None, (part.strip() for part in gpu.split(","))):
        words, colon, count = part.partition(":")
        if colon and not (count.isascii() and count.isdecimal() and 0 < int(count) <= 4096):
            raise BadInput(f"--gpu {part}: {count!r} is not a number of devices; write H100 or H100:8")
        parts.append(DeviceRequest(words.strip(), int(count) if colon else None))
    if not parts:
        raise BadInput("--gpu names no device; write H100, H100:8 or A100,L4")
    return tuple(parts)


def has_name(device: Device, words: str) -> bool:
    """Whether words match a GPU's name, either its start (`H100`, `RTX4090`) or its parts (`A100-80GB`)."""
    if device.kind != "gpu":
        return False
    if catalog_device_name(words) == device.name:
        return True
    have, asked = device.name.lower().split("-"), words.lower().replace("_", "-").replace(" ", "-").split("-")
    for length in range(1, len(have) + 1):
        if "".join(have[:length]) == "".join(asked):  # RTX4090 is RTX-4090, and A10 is no A100
            return True
    rest = iter(have[1:])
    return have[0] == asked[0] and all(any(h.startswith(a) for h in rest) for a in asked[1:])


def filter_by_provider(machines: tuple[Hardware, ...], provider: str | Iterable[str]) -> tuple[Hardware, ...]:
    """Selects machines offered by the named providers; raises BadInput for unknown providers."""
    asked = provider.split(",") if isinstance(provider, str) else list(provider)
    names = [name.strip().lower() for name in asked if name.strip()]
    known = {kind.provider for kind in machines}
    for name in names:
        if name not in known:
            raise unknown_name("provider", name, known, f"known: {', '.join(sorted(known))}")
    return tuple(kind for kind in machines if kind.provider in names)


def _check_region(region: str | None, machines: tuple[Hardware, ...]) -> None:
    """Raises BadInput if no machine has a price in the region."""
    known = {price.region for kind in machines for price in kind.prices}
    if region not in known:
        hint = f"regions with prices: {', '.join(sorted(filter(None, known)))}"
        raise unknown_name("region", region or "", known, hint)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A machine still sold, and how it compares with the retired one."""

    hardware: Hardware
    reason: str


def find_replacement(hardware: Hardware, candidates: Iterable[Hardware] | None = None) -> Replacement | None:
    """Finds the most similar machine still sold that is at least as large; None if there is none.

    Its devices are of the same kind, have at least as much memory each, and together at least the peak and
    the memory. The most similar machine has the least sum of |log ratio| over peak, memory and memory
    bandwidth of a device, device count, vCPU count, and a higher price. Figures that either machine lacks do
    not count. Another provider's machine is chosen only if the machine's own provider has none.
    """
    known = match_hardware("*") if candidates is None else candidates
    best = min(
        (other for other in known if _can_replace(other, hardware)),
        key=lambda other: (other.provider != hardware.provider, _dissimilarity(hardware, other), other.name),
        default=None,
    )
    return Replacement(best, _replacement_reason(hardware, best)) if best else None


def _can_replace(candidate: Hardware, hardware: Hardware) -> bool:
    """Whether a machine is rentable and at least as large as the retired one."""
    return (
        candidate.standing == "rentable"
        and candidate.price.on_demand_usd_per_hour is not None
        and candidate.name != hardware.name
        and candidate.device.kind == hardware.device.kind
        and candidate.device.memory_bytes >= hardware.device.memory_bytes
        and candidate.devices_memory_bytes >= hardware.devices_memory_bytes
        and candidate.device_count * candidate.device.fp32_flops
        >= hardware.device_count * hardware.device.fp32_flops
    )


def _figure_ratios(hardware: Hardware, candidate: Hardware) -> dict[str, float]:
    """Ratios of two machines' figures, the candidate's divided by the other's, by name of the figure."""
    pairs = {
        "FP32 peak": (hardware.device.fp32_flops, candidate.device.fp32_flops),
        "memory": (hardware.device.memory_bytes, candidate.device.memory_bytes),
        "memory bandwidth": (hardware.device.memory_bytes_per_s, candidate.device.memory_bytes_per_s),
        "devices": (hardware.device_count, candidate.device_count),
        "vCPUs": (hardware.vcpus, candidate.vcpus),
        "price": (hardware.price.on_demand_usd_per_hour, candidate.price.on_demand_usd_per_hour),
    }
    return {name: theirs / ours for name, (ours, theirs) in pairs.items() if ours and theirs}


def _dissimilarity(hardware: Hardware, candidate: Hardware) -> float:
    """Sum of |log ratio| over the figures of two machines; a lower price does not count."""
    ratios = _figure_ratios(hardware, candidate)
    costlier = max(0.0, math.log(ratios.pop("price", 1.0)))
    return costlier + sum(abs(math.log(ratio)) for ratio in ratios.values())


def _replacement_reason(hardware: Hardware, candidate: Hardware) -> str:
    """Text that compares a replacement with the retired machine: devices, figures and price."""
    ratios = _figure_ratios(hardware, candidate)
    figures = ("FP32 peak", "memory", "memory bandwidth")
    changed = [f"{ratios[name]:.2g}x the {name}" for name in figures if abs(ratios.get(name, 1) - 1) > 0.02]
    each = f": each with {', '.join(changed)}" if changed else ""
    price = f"; {ratios['price']:.2g}x the price" if "price" in ratios else ""
    return f"{devices_label(candidate)} for {devices_label(hardware)}{each}{price}"
