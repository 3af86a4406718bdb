"""Real PyTorch runs, DDP and FSDP over shaped links, against predictions.

From a one-rank profile of each configuration and from raw collectives we predict the step time of every
number of workers that was measured. The path is the program's own: importer, computation, exchange,
simulator. What a user states is taken from config.json: bandwidth, delay, sizes of buckets, accumulation, a
slow worker or link, jitter. Nothing is fitted to the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from planner.device.computation import BACKWARD, FORWARD, Computation, Parameter, Variation
from planner.device.computation.transform import steadied
from planner.device.recorded.importers import import_computation
from planner.hardware import Device, bare_machine
from planner.hardware.market import Market
from planner.parallel.data import Exchange, Site
from planner.parallel.data.ddp import AllReduce
from planner.parallel.data.fsdp import Sharded
from planner.simulator import simulate
from planner.validation.ddp_data import DATA, DdpPoint, RunConfig, configs, points, round_trip_s

# The bucket of the shapers, of which one frame cannot be used: messages up to this size pass a link that was
# idle at once (100 Mbit/s, 262144 bytes on 4 ranks: 12.3 ms a hop of 10.4 and 2.66 less 0.76).
BURST_BYTES = 10_000
ROWS = 400  # draws of a step with jitter
HOST = bare_machine("host", Device("host", "cpu", {"fp32": 1e9}, 1e9, cores=1))


@dataclass(frozen=True, slots=True)
class DdpResult:
    config: RunConfig
    point: DdpPoint
    predicted_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.point.step_s - 1


@cache
def computation_of(config: RunConfig) -> Computation:
    """The computation of a step from the trace of one rank; with jitter, whose draws in three steps say
    little of the mean, as long as the configuration states."""
    if config["mode"] == "fsdp":  # a loop without autograd: its trace has no layers
        return configured(config)
    traced = steadied(import_computation([config.trace], batch=1, model=config["model"]))
    if config["mode"] == "fsdp2":
        return in_units(traced, config)
    sigma = config.get("jitter_sigma", 0.0)
    if not sigma:
        return traced
    stated = config["compute_s"] * config.get("accum", 1) / traced.durations_s.sum()
    mean = replace(traced, durations_s=traced.durations_s * stated)
    return steadied(mean, Variation(sigma, 0.0), steps=ROWS)


def configured(config: RunConfig) -> Computation:
    """Forward and backward pass of the layers that a configuration lists, one after another."""
    layers = config["layers"]
    n = len(layers)
    unit = _units(config)
    parameters = tuple(
        Parameter(tensor["name"], tensor["floats"], (at,), 2 * n - 1 - at, unit[layer["name"]])
        for at, layer in enumerate(layers)
        for tensor in layer["tensors"]
    )
    seconds = [layer["fwd_s"] for layer in layers] + [layer["bwd_s"] for layer in reversed(layers)]
    return Computation(
        model=config["model"],
        batch=1,
        names=tuple(f"{layer['name']}/forward" for layer in layers)
        + tuple(f"{layer['name']}/backward" for layer in reversed(layers)),
        role=np.array([FORWARD] * n + [BACKWARD] * n, np.uint8),
        layer=np.full(2 * n, -1, np.int32),
        layers=(),
        dep_start=np.array([0, *range(2 * n)], np.int32),
        dep_index=np.arange(2 * n - 1, dtype=np.int32),
        durations_s=np.array([seconds]),
        parameters=parameters,
        optimizer_s=0.0,
        blocks=tuple(f"unit{at}" for at in range(len(config["ddp_buckets"]))),
    )


def in_units(computation: Computation, config: RunConfig) -> Computation:
    """The traced computation with the units of the configuration instead of one a layer."""
    unit = _units(config)
    layer = [name.rpartition("_")[0] for name in computation.blocks]
    return replace(
        computation,
        parameters=tuple(replace(one, block=unit.get(layer[one.block], 0)) for one in computation.parameters),
        blocks=tuple(f"unit{at}" for at in range(len(config["ddp_buckets"]))),
    )


def _units(config: RunConfig) -> dict[str, int]:
    return {name: at for at, unit in enumerate(config["ddp_buckets"]) for name in unit["tensors"]}


def exchange_of(config: RunConfig) -> Exchange:
    if config["mode"] != "ddp":
        blocking = config["mode"] == "fsdp2"
        return Sharded(library="gloo", blocking=blocking, least_unit=0, accesses=0.0, jitter=0.0)
    return AllReduce(
        bucket_bytes=config["bucket_cap"],
        first_bucket_bytes=config["bucket_first"],
        rebuilt=not config.get("find_unused", False),
        library="gloo",
        accesses=0.0,  # emulated kernels do not slow down,
        jitter=0.0,  # and vary as the configuration states
    )


def site_of(config: RunConfig, workers: int, data: Path) -> Site:
    slow = {int(rank): factor for rank, factor in config.get("slow_worker", {}).items()}
    narrow = {int(rank): mbit for rank, mbit in config.get("slow_link", {}).items()}
    return Site(
        HOST,
        workers,
        Market(bandwidth_bytes_per_s=config.bytes_per_s),
        speeds=tuple(1 / slow.get(rank, 1.0) for rank in range(workers)),
        nic_shares=tuple(narrow.get(rank, config["mbit"]) / config["mbit"] for rank in range(workers)),
        round_trip_s=round_trip_s(config, workers, data),
        burst_bytes=BURST_BYTES,
    )


def predict(config: RunConfig, workers: int, data: Path) -> float:
    """Seconds a step."""
    case = exchange_of(config).lower(computation_of(config), site_of(config, workers, data))
    found = simulate(case.profile, case.cluster, case.policy, precision=0.005)
    return workers * case.profile.batch / found.samples_per_s


def compare(data: Path = DATA) -> list[DdpResult]:
    known = configs(data)
    return [
        DdpResult(known[point.config], point, predict(known[point.config], point.workers, data))
        for point in points(data)
    ]
