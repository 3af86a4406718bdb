"""Who talks to whom where a replica is cut: the devices that share layers, and the replicas.

Devices that share layers stand beside each other, those of the next replica follow, stages come last, as
Megatron numbers its ranks. So the group that shares layers is inside a machine where it fits, and a group of
replicas has one member for each such group: fewer members a machine, and their part of its NICs, because the
other groups exchange at the same time.
"""

from __future__ import annotations

from dataclasses import replace

from planner.hardware import Hardware
from planner.model import Model
from planner.parallel.cut.tensor import refusal
from planner.parallel.site import Site


def replicas_site(site: Site) -> Site:
    """The site as one group of replicas sees it: its members as workers, its part of every machine."""
    return site if site.cut.kind != "layers" else site.once("replicas", lambda: _replicas(site))


def _replicas(site: Site) -> Site:
    tensor, hardware = site.cut.tensor, site.hardware
    members = max(site.devices // tensor, 1)
    # a group of more devices than a machine has takes whole machines, and all of their NICs
    part = min(tensor, site.devices)

    def share(rate: float | None) -> float | None:
        return None if rate is None else rate / part

    seen = replace(
        hardware,
        device_count=members,
        nic_burst_bytes_per_s=share(hardware.nic_burst_bytes_per_s),
        nic_baseline_bytes_per_s=share(hardware.nic_baseline_bytes_per_s),
        rdma_bytes_per_s=share(hardware.rdma_bytes_per_s),
        nics=max((hardware.nics or 1) // part, 1),
        network_curves=hardware.network_curves if part == 1 else {},
    )
    given = site.market.bandwidth_bytes_per_s
    market = replace(site.market, bandwidth_bytes_per_s=given / part) if given else site.market
    return replace(site, hardware=seen, workers=site.replicas, market=market)


def sharing_site(site: Site) -> Site:
    """The devices that share layers, as a site of their own."""
    return replace(site, workers=site.cut.tensor)


def crowded(model: Model, tensor: int, hardware: Hardware) -> str:
    """Why so many devices of a machine cannot share layers, with the nearest degree that works; else empty.
    Sums among them run in every layer, so that they have to be joined by the machine's fabric."""
    devices = hardware.device_count * (hardware.fabric.machines if hardware.fabric else 1)
    if devices % tensor == 0:
        return ""
    works = max(d for d in range(1, min(tensor, devices) + 1) if devices % d == 0 and not refusal(model, d))
    return (
        f"a tensor degree of {tensor} does not divide the {devices} devices of {hardware.name}; the nearest "
        f"that does is {works}"
    )


def stages_cross_machines(site: Site) -> bool:
    """Whether the next stage is on another machine."""
    return site.workers // site.cut.pipeline >= site.devices
