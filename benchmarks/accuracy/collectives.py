"""Collectives by NCCL's constants against measured curves: `python benchmarks/accuracy/collectives.py [--kind
KIND]`.

For every kind of link that has measured curves, the time that is estimated without any curve over the one
that was measured, by size of the message: links inside a machine, and networks between machines. Nothing of
the estimate is fitted to one curve; what libraries reach of a link at large messages is the mean of several
(`planner.parallel.collectives.libraries`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.hardware import Hardware, Market
from planner.hardware.catalog import hardware_names, load_hardware
from planner.parallel.collectives import Curves, Kind
from planner.parallel.collectives.libraries import Nccl, site_peers
from planner.parallel.data import Site, collective

SIZES = tuple(float(1 << power) for power in (16, 20, 22, 24, 26, 28, 30))
OTHERS = (("a10g-tcp", "g5.xlarge", False),)  # measured on a machine whose file names no curve
BURST = {"a10g-tcp"}  # shorter than the machine's network falls back to its baseline


@dataclass(frozen=True, slots=True)
class Compared:
    """One kind of link over so many members: estimated over measured, by size."""

    curve: str
    members: int
    inside: bool
    rdma: bool
    ratios: tuple[float, ...]


def measured_links() -> Iterator[tuple[str, Hardware, bool, bool]]:
    """(curve, a machine that has it, inside, rdma), each curve once."""
    seen = set()
    for name in hardware_names():
        machine = load_hardware(name)
        kept_curves = [(curve, False, way == "rdma") for way, curve in machine.network_curves.items()]
        if machine.fabric is not None and machine.fabric.curve:
            kept_curves.append((machine.fabric.curve, True, True))
        for curve, inside, rdma in kept_curves:
            if (curve, inside) not in seen:
                seen.add((curve, inside))
                yield curve, machine, inside, rdma
    for curve, name, rdma in OTHERS:
        yield curve, load_hardware(name), False, rdma


def without_curves(machine: Hardware) -> Hardware:
    fabric = machine.fabric and replace(machine.fabric, curve=None, allreduce_bytes_per_s=None)
    return replace(machine, network_curves={}, fabric=fabric)


def compared(kind: Kind) -> Iterator[Compared]:
    for curve, machine, inside, rdma in measured_links():
        curves = Curves.load(curve, "ranks" if inside else "machines")
        for members in sorted(curves.by_kind.get(kind, ())):
            if inside and not 1 < members <= machine.device_count:
                continue
            workers = members if inside else members * machine.device_count
            market = Market(network="burst" if curve in BURST else "baseline")
            site = Site(without_curves(machine), workers, market, rdma=rdma)
            if not inside and collective.infeasibility("nccl", site):
                continue  # its network's figure is not published
            ratios = []
            for size in SIZES:
                value = curves.by_kind[kind][members]
                within = value.sizes[0] <= size <= value.sizes[-1]
                estimate = Nccl().seconds(kind, size, site_peers(site, Nccl()))
                ratios.append(estimate / value.seconds(size) if within else float("nan"))
            yield Compared(curve, members, inside, rdma, tuple(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kind", default="all_reduce", choices=("all_reduce", "all_gather", "reduce_scatter")
    )
    asked = parser.parse_args()
    result = list(compared(asked.kind))
    heads = "".join(f"{size / 2**20:>9.4g}" for size in SIZES)
    print(f"estimated / measured time of {asked.kind}, by MiB\n{'link':22}{'members':>8}{heads}")
    for match in result:
        cells = "".join(f"{ratio:9.2f}" for ratio in match.ratios)
        print(f"{match.curve:22}{match.members:8}{cells}")
    parts = {
        "inside a machine": [match for match in result if match.inside],
        "networks with RDMA": [match for match in result if not match.inside and match.rdma],
        "sockets": [match for match in result if not match.inside and not match.rdma],
    }
    for name, part in parts.items():
        if not part:
            continue  # nobody has measured it
        ratios = np.array([entry.ratios for entry in part])
        for words, quantile in (("tenth", 0.1), ("median", 0.5), ("nine in ten", 0.9)):
            cells = "".join(f"{value:9.2f}" for value in np.nanquantile(ratios, quantile, axis=0))
            print(f"{name + ', ' + words:30}{cells}")


if __name__ == "__main__":
    main()
