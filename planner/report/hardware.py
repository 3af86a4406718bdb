"""Tables and JSON of catalog machines: a list, and one machine with the source of every figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.hardware import FORMATS, Hardware, Source, devices_label
from planner.hardware.prices.cost import price_age_note
from planner.hardware.prices.offers import Offer, find_replacement
from planner.report.page import Table, columns_of, row_of
from planner.units import GBIT_BYTES_PER_S, format_bandwidth, money, number_sources, rate, usd

GIB = 2.0**30
STATES = {"rentable": "sold", "retired": "retired", "example": "example cluster", "own": "own"}
LINKS = {"nvswitch": "NVSwitch", "nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "host": "host memory"}


def hardware_row(hardware: Hardware) -> dict[str, Any]:
    """Plain values of one machine, in the units of hardware files."""
    flops = hardware.device.flops
    computed = {
        "device_tflops": lambda machine: {
            name: round(flops[name] / 1e12, 9) for name in machine.device.formats
        },
        "offered_as": lambda machine: machine.offered_as or machine.name,
        "state": lambda machine: STATES[machine.standing],
    }
    return row_of(hardware, columns_of("machine", computed))


def hardware_table(machines: Sequence[Hardware]) -> Table:
    """Table of machines, one per row."""
    sold = all(hardware.standing == "rentable" for hardware in machines)
    notes = [
        "devices: 8x means 8 accelerators, 18c one device of 18 CPU cores. GiB: memory per device.",
        "Gbit/s: sustained network bandwidth - burst for minutes + separate RDMA network.",
        "$/h: on demand; ~ is estimated from the cost of owning.",
    ]
    dates = sorted({h.price.as_of for h in machines if h.price.as_of and h.ownership is None})
    if dates:
        notes[-1] += f" Prices as of {dates[0]}" + (f" to {dates[-1]}." if len(dates) > 1 else ".")
    if any(not hardware.still_sold for hardware in machines):
        notes.append("For a retired machine, `planner hardware NAME` names the nearest one still sold.")
    if old := price_age_note(machine.price.as_of for machine in machines if machine.ownership is None):
        notes.append(old)
    rows = [
        hardware_row(hardware)
        | {
            "_devices": short_devices(devices_label(hardware)),
            "_nic": nic_words(hardware),
            "_usd": _on_demand_price(hardware),
        }
        for hardware in machines
    ]
    return Table(rows, columns_of("machines", leave_out=["state"] if sold else ()), notes=notes)


def hardware_page(hardware: Hardware) -> list[Table]:
    """Tables of one machine: each figure with basis, date and source; kernel rates; sources."""
    figures = _machine_figures(hardware)
    numbers = number_sources(source.source if source else None for _, _, source in figures)
    rows = [
        {"figure": name, "value": value, "source": source, "_ref": numbers[source.source if source else None]}
        for name, value, source in figures
    ]
    notes = []
    if hardware.status:
        notes.append(f"{STATES[hardware.standing].capitalize()}: {hardware.status}.")
    if not hardware.still_sold and (nearest := find_replacement(hardware)):
        notes.append(f"Nearest machine still sold: {nearest.hardware.name} ({nearest.reason}).")
    if hardware.device.note:
        notes.append(f"Device: {hardware.device.note}.")
    if hardware.ownership and hardware.ownership.reasoning:
        notes.append(f"Price: {hardware.ownership.reasoning}.")
    if hardware.ownership is None and (old := price_age_note([hardware.price.as_of])):
        notes.append(old)
    title = f"{hardware.name}: {devices_label(hardware)}, {hardware.provider}"
    sources = [f"{number} {source}" for source, number in numbers.items() if number]
    return [
        Table.of(rows, columns_of("machine_figures"), title, notes),
        *([_kernel_table(hardware)] if hardware.kernels else []),
        Table([], title="Sources", notes=sources),
    ]


def hardware_data(hardware: Hardware) -> dict[str, Any]:
    """Plain values of one machine with their sources, other prices and kernel rates, for JSON."""
    nearest = None if hardware.still_sold else find_replacement(hardware)
    return hardware_row(hardware) | {
        "nearest_current": {"name": nearest.hardware.name, "reason": nearest.reason} if nearest else None,
        "sources": dict(hardware.sources) | {"device": _device_source(hardware)},
        "other_prices": hardware.other_prices,
        "fabric_detail": hardware.fabric,
        "network_curves": dict(hardware.network_curves),
        "ownership": hardware.ownership,
        "kernels": hardware.kernels,
    }


def offers_table(offers: Sequence[Offer]) -> Table:
    """Table of rental offers, in the given order."""

    def price_per_device(offer: Offer, usd_per_hour: float | None) -> float | None:
        """Price per device and hour; None if the machine's price is unknown."""
        return None if usd_per_hour is None else round(usd_per_hour / offer.hardware.device_count, 6)

    computed = {
        "_devices": lambda o: short_devices(devices_label(o.hardware)),
        "usd_per_device_hour": lambda o: price_per_device(o, o.price.on_demand_usd_per_hour),
        "spot_usd_per_device_hour": lambda o: price_per_device(o, o.price.spot_usd_per_hour),
        "_nic": lambda o: nic_words(o.hardware),
        "state": lambda o: STATES[o.hardware.standing],
    }
    *columns, state = columns_of("offers", computed)
    sold = all(offer.hardware.standing == "rentable" for offer in offers)
    columns.append(replace(state, hidden=sold))
    notes = [
        "$/GPU-h: on-demand and spot price per device. $/h: the whole machine.",
        "Gbit/s: network of the machine + separate RDMA network. Region `any`: one price everywhere.",
    ]
    old = price_age_note(offer.price.as_of for offer in offers if offer.hardware.ownership is None)
    return Table.of(offers, columns, notes=[*notes, *filter(None, [old])])


Figure = tuple[str, str, Source | None]  # name, value, where it comes from


def _machine_figures(hardware: Hardware) -> list[Figure]:
    """Name, value and source of each figure of a machine, including those that are not known."""
    device, price, sources = hardware.device, hardware.price, hardware.sources
    speed = f", {rate(device.memory_bytes_per_s / 1e9)} GB/s" if device.memory_bytes_per_s else ""
    host = [hardware.cpu or None, f"{hardware.vcpus} vCPUs" if hardware.vcpus else None]
    host.append(_format_gib(hardware.memory_bytes) if hardware.memory_bytes else None)
    holder = sources.get("machine") if device.kind == "cpu" else _device_source(hardware)
    rows: list[Figure] = [
        ("device", f"{devices_label(hardware)}: {_peak_words(device.flops)}", _device_source(hardware))
    ]
    if device.matmul_flops:
        measured = Source("measured", device.matmul_source, device.as_of)
        rows.append(("large matmul", _peak_words(device.matmul_flops), measured))
    rows += [
        ("device memory", f"{_format_gib(device.memory_bytes)}{speed}", holder),
        ("machine", ", ".join(filter(None, host)) or "not published", sources.get("machine")),
        *_fabric_figures(hardware),
        *_network_figures(hardware),
    ]
    if hardware.flow_bytes_per_s:
        flow = format_bandwidth(hardware.flow_bytes_per_s)
        if grouped := hardware.placement_group_flow_bytes_per_s:
            flow += f"; {format_bandwidth(grouped)} in a placement group"
        rows.append(("one connection", flow, sources.get("flow")))
    own = hardware.ownership is not None
    region = "" if own else price.region
    on_demand = Source(price.basis, price.source, price.as_of)
    name = "price" if own else "on demand"
    rows.append((name, _price_in_region(price.on_demand_usd_per_hour, region), on_demand))
    if not own:
        rows.append(("spot", _price_in_region(price.spot_usd_per_hour, region), sources.get("spot")))
    for other in hardware.other_prices:
        words = [_price_in_region(other.on_demand_usd_per_hour, "")] if other.on_demand_usd_per_hour else []
        words += [f"spot {_price_in_region(other.spot_usd_per_hour, '')}"] if other.spot_usd_per_hour else []
        source = Source(other.basis, other.source, other.as_of)
        rows.append((f"in {other.region}", ", ".join(words), source))
    if "status" in sources:
        rows.append(("state", STATES[hardware.standing], sources["status"]))
    return rows


def _network_figures(hardware: Hardware) -> list[Figure]:
    """Network figures of a machine; baseline and burst bandwidth share a row if equal."""
    baseline, burst = hardware.nic_baseline_bytes_per_s, hardware.nic_burst_bytes_per_s
    label = f" ({hardware.nic_label})" if hardware.nic_label else ""
    if baseline is None and burst is None:
        return [("network", f"not published{label}", None)]
    rows = []
    if baseline is not None:
        name = "network" if burst in (None, baseline) else "network, baseline"
        rows.append((name, format_bandwidth(baseline), hardware.sources.get("nic_baseline")))
    if burst is not None and burst != baseline:
        name = "network" if baseline is None else "network, burst"
        rows.append((name, format_bandwidth(burst), hardware.sources.get("nic_burst")))
    if hardware.rdma is not None:
        words = (hardware.rdma_kind or "yes") if hardware.rdma else "none"
        if hardware.rdma_bytes_per_s and hardware.rdma_bytes_per_s != baseline:
            words += f", {format_bandwidth(hardware.rdma_bytes_per_s)}"
        if hardware.nics and hardware.nics > 1:
            words += f", {hardware.nics} NICs"
        rows.append(("RDMA", words, hardware.sources.get("rdma")))
    return rows


def _peak_words(flops: Mapping[str, float]) -> str:
    """Peak rates by number format: `8.1 TFLOP/s fp32, 65 fp16`, or `989 fp16 and bf16` if equal."""
    small = flops.get("fp32", 1e12) < 1e12
    parts: list[tuple[float, list[str]]] = []
    for name in FORMATS:
        if name in flops and parts and parts[-1][0] == flops[name]:
            parts[-1][1].append(name)
        elif name in flops:
            parts.append((flops[name], [name]))
    said: list[str] = []
    for value, names in parts:
        unit = "" if said else "GFLOP/s " if small else "TFLOP/s "
        said.append(f"{value / (1e9 if small else 1e12):.4g} {unit}{' and '.join(names)}")
    return ", ".join(said)


def _fabric_figures(hardware: Hardware) -> list[Figure]:
    """Links between a machine's devices, as a list of one figure; empty with a single device."""
    fabric = hardware.fabric
    if fabric is None:
        return [("fabric", "not published", None)] if hardware.device_count > 1 else []
    words = f"{LINKS[fabric.kind]}, {fabric.bytes_per_s / 1e9:.4g} GB/s per device each way"
    if fabric.topology == "pairs":
        between = fabric.between_bytes_per_s
        words += ", in pairs" + (f" ({between / 1e9:.4g} between them)" if between else "")
    elif fabric.topology == "mesh":
        words += ", a mesh"
    if fabric.machines > 1:
        words += f", over {fabric.machines} machines"
    return [("fabric", words, Source(fabric.basis, fabric.source, fabric.as_of))]


def _kernel_table(hardware: Hardware) -> Table:
    """Table of a machine's kernel rates."""
    kernels = hardware.kernels
    assert kernels is not None
    rows = [
        {"kernel": kind, "rate": f"{rate(speed / 1e9)} " + ("GB/s" if kind == "memory" else "GMAC/s")}
        for kind, speed in kernels.rates.items()
    ]
    rows.append({"kernel": "overhead per op", "rate": f"{kernels.overhead_s * 1e6:.3g} us"})
    error = f", median error {kernels.median_error:.1%}" if kernels.median_error is not None else ""
    note = f"{kernels.basis}: {kernels.source}{error}"
    return Table(rows, columns_of("kernels"), title="Compute model", notes=[note])


def nic_words(hardware: Hardware) -> str | None:
    """NIC bandwidth in Gbit/s: `2.5-10` for baseline and burst, `80 +3200` with RDMA; None if unknown."""
    baseline, burst, rdma = (
        None if bytes_per_s is None else round(bytes_per_s / GBIT_BYTES_PER_S, 9)
        for bytes_per_s in (
            hardware.nic_bytes_per_s("baseline"),
            hardware.nic_bytes_per_s("burst"),
            hardware.rdma_bytes_per_s,
        )
    )
    figures = []
    if baseline is not None and burst is not None:
        figures.append(
            _format_gbit(baseline) if burst <= baseline else f"{_format_gbit(baseline)}-{_format_gbit(burst)}"
        )
    if rdma is not None and rdma != baseline and not (baseline and baseline > rdma):
        figures.append(f"+{_format_gbit(rdma)}")
    return " ".join(figures) or None


def _device_source(hardware: Hardware) -> Source:
    """Source of a device's figures."""
    return Source(hardware.device.basis, hardware.device.source, hardware.device.as_of)


def short_devices(devices: str) -> str:
    """Shortens device names for lists: `8x V100-SXM2-16GB` becomes `8x V100-SXM2`."""
    return re.sub(r"-(\d+GB|1GPU)$|Xeon-(?=[E\d])", "", devices)


def _format_gbit(value: float) -> str:
    """Formats a bandwidth in Gbit/s, without the unit."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _format_gib(value: float) -> str:
    """Formats bytes in GiB."""
    return f"{value / GIB:,.4g} GiB" if value < 1e3 * GIB else f"{value / GIB:,.0f} GiB"


def _on_demand_price(hardware: Hardware) -> str | None:
    """On-demand price per hour as text, `~` for estimates; None if unknown."""
    per_hour = hardware.price.on_demand_usd_per_hour
    if per_hour is None:
        return None
    return ("~" if hardware.price.basis == "estimated" else "") + money(per_hour)


def _price_in_region(value: float | None, region: str) -> str:
    """Hourly price and its region, as text."""
    return "not known" if value is None else f"{usd(value)}/h" + (f" in {region}" if region else "")
