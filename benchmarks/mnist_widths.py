"""Do any widths of a network for MNIST give both findings of Yan et al.: <2,9,2> is the best of 20 machines,
and four servers gain less than a tenth over one with 4 replicas of 4 workers?

The paper prints 2.5 million connections in 2 convolutions, 2 linear layers and 10 outputs, and neither widths
nor constants. Networks with 2.42 to 2.58 million are drawn and improved step by step; the nearest are printed
with what they miss. Takes the CPU seconds to spend, C_ncost in microseconds and C_muladd in nanoseconds.

Run: python benchmarks/mnist_widths.py [60] [10] [1.1]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.model.netlist import read_model
from planner.servers.partition.search import PartitionRequest, partition
from planner.servers.partition.study import fixed

CONNECTIONS = (2.42e6, 2.58e6)
WEIGHTS = (30e3, 160e3)  # fewer leave nothing to read, more make servers matter
GAIN = 0.1
# What each place of a network may hold: kernel, padding, maps and pool of both convolutions, two widths.
SHAPE: tuple[tuple[int | str, ...], ...] = (
    (3, 5, 7),
    ("same", "valid"),
    (4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80),
    (0, 2, 3),
    (3, 5, 7),
    ("same", "valid"),
    (3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64),
    (0, 2, 3, 4),
    (50, 84, 100, 120, 200, 300, 400, 500),
    (32, 50, 64, 84, 100),
)
STEPS = {2: (1, 2, 4, 8), 6: (1, 2, 4, 8), 8: (5, 10, 20, 40), 9: (5, 10, 20, 40)}

Network = tuple[int | str, ...]


@dataclass(frozen=True, order=True)
class Miss:
    """By how much the worse of the two findings is missed; negative if both hold."""

    worst: float
    behind: float  # of <2,9,2> to the better of <1,19,1> and <3,6,2>
    gain: float  # of four servers over one
    network: Network = ()


def netlist(network: Network) -> str:
    def conv(kernel: object, padding: object, maps: object, pool: object) -> list[str]:
        layer = f'{{ conv = {maps}, kernel = {kernel}, padding = "{padding}" }}'
        return [layer, f"{{ max_pool = {pool} }}"] if pool else [layer]

    dense = [f'{{ fc = {width}, then = ["bias", "relu"] }}' for width in network[8:]]
    layers = [*conv(*network[:4]), *conv(*network[4:8]), *dense, '{ fc = 10, then = ["bias"] }']
    return (
        f'base = "mnist-adam"\ndescription = "drawn"\nlayers = [{", ".join(layers)}, {{ softmax = true }}]\n'
    )


def read(network: Network, path: Path) -> Model | None:
    """The model, if its sizes fit together and it has the connections and weights asked for."""
    if _too_small(network):
        return None
    path.write_text(netlist(network), encoding="utf-8")
    catalogue = {"mnist-adam": Path(__file__).parents[1] / "models" / "mnist-adam.toml"}
    model = read_model(path, catalogue.get)
    fits = CONNECTIONS[0] <= model.macs <= CONNECTIONS[1] and WEIGHTS[0] <= model.parameters <= WEIGHTS[1]
    return model if fits else None


def _too_small(network: Network) -> bool:
    side = 28
    for kernel, padding, maps, pool in (network[:4], network[4:8]):
        side -= int(kernel) - 1 if padding == "valid" else 0
        side //= int(pool) or 1
        if side < 1 or int(maps) < 1:
            return True
    return any(int(width) < 10 for width in network[8:])


def miss_of(model: Model, hardware: Hardware, network: Network) -> Miss:
    def epoch_s(*shape: int) -> float:
        return float(fixed(model, hardware, *shape).epoch_s)

    behind = epoch_s(2, 9, 2) / min(epoch_s(1, 19, 1), epoch_s(3, 6, 2)) - 1
    gain = epoch_s(4, 4, 1) / epoch_s(4, 4, 4) - 1
    return Miss(max(behind, gain - GAIN), behind, gain, network)


def search(hardware: Hardware, cpu_s: float, path: Path, rng: random.Random) -> tuple[list[Miss], int]:
    """The nearest networks, and how many were looked at."""
    looked = 0

    @cache
    def score(network: Network) -> Miss | None:
        nonlocal looked
        model = read(network, path)
        if model is None:
            return None
        looked += 1
        return miss_of(model, hardware, network)

    def draw() -> Network:
        return tuple(rng.choice(options) for options in SHAPE)

    def changed(network: Network) -> Network:
        new: list[int | str] = list(network)
        for at in rng.sample(sorted(STEPS), rng.choice((1, 2, 3))):
            new[at] = int(new[at]) + rng.choice((-1, 1)) * rng.choice(STEPS[at])
        if rng.random() < 0.15:
            at = rng.choice([i for i in range(len(SHAPE)) if i not in STEPS])
            new[at] = rng.choice(SHAPE[at])
        return tuple(new)

    nearest: list[Miss] = []
    start = time.process_time()
    while (spent := time.process_time() - start) < cpu_s:
        fresh = not nearest or spent < cpu_s / 5 or rng.random() < 0.1
        found = score(draw() if fresh else changed(rng.choice(nearest).network))
        if found is not None and found not in nearest:
            nearest = sorted([*nearest, found])[:12]
    return nearest, looked


def main(cpu_s: float = 60, latency_us: float = 10, muladd_ns: float = 1.1) -> None:
    cluster = load_hardware("private-2xe5-2450-10gbe")
    constants = {"latency_s": latency_us * 1e-6, "muladd_s": muladd_ns * 1e-9}
    hardware = replace(cluster, calibration={**cluster.calibration, **constants})
    large = partition(load_model("imagenet22k-adam"), hardware, PartitionRequest(20, max_workers=4)).plans[0]
    print(
        f"C_ncost {latency_us:g} us, C_muladd {muladd_ns:g} ns: the best for imagenet22k-adam is {large.name}"
    )
    with tempfile.TemporaryDirectory() as folder:
        nearest, looked = search(hardware, cpu_s, Path(folder) / "drawn.toml", random.Random(1))
    print(
        f"{looked} networks, {sum(miss.worst < 0 for miss in nearest)} of the nearest give both; the nearest:"
    )
    for miss in nearest[:5]:
        print(f"  <2,9,2> behind by {miss.behind:+.2%}, four servers gain {miss.gain:.2%}: {miss.network}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
