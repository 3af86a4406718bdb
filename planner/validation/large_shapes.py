"""Shapes that predictions of large models must have, whatever their error: what published runs agree on.

- ZeRO-3 on 384 V100 in machines of 16, a model of 138 billion parameters, 2,048 tokens a device: 20, 32, 36
  and 48 Tflop/s a device at 100, 200, 400 and 800 Gbit/s a machine (DeepSpeed, ZeRO++, 2023): an eighth of
  the network leaves less than half.
- With a small micro-batch a device gets less done the more devices there are, with a large one it does not.
- Shards inside machines beat shards over a thousand ranks, where a machine can hold them; most so where
  shards are whole tensors that their owners send (ZeRO-1 of InternEvo).

All but the last are closed forms of the exchanges that plans are bounded by, a few milliseconds each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.device.precision import BF16, FP16, Precision
from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.parallel.data import Job, Site
from planner.parallel.data.fsdp import Sharded
from planner.parallel.replica import replica_computation
from planner.validation.large_machines import machine
from planner.validation.large_runs import LargeRun, read_runs
from planner.validation.shapes import Dimensions, transformer
from planner.validation.training import training_rows

NETWORKS_GBIT = (100, 200, 400, 800)
PUBLISHED_TFLOPS = (20, 32, 36, 48)  # at those networks
DEVICES = (8, 64, 256, 1024)
OWNER_DEVICES, OWNER_PASSES = (16, 128, 1024), 4


def per_device(
    model: Model,
    hardware: Hardware,
    devices: int,
    batch: int,
    exchange: Sharded,
    *,
    precision: Precision = BF16,
) -> float:
    """Samples a second of one device, at most, with activations computed again."""
    site = Site(hardware, devices)
    once = replica_computation(model, batch, site, precision, recompute="full")
    (rate,) = Sharded.bounds([Job(exchange, once, site)])
    return float(rate) / devices


def networks(gbit_per_s: Sequence[float] = NETWORKS_GBIT) -> dict[float, float]:
    """Samples a second of one of 384 V100 with ZeRO-3, by the network of a machine of 16."""
    model = transformer(Dimensions("gpt", 12288, 76, 96, 51200), 2048, "gpt-138b")
    found = {}
    for gbit in gbit_per_s:
        hardware = machine("V100-SXM2-32GB", 16, gbit / 8 * 1e9)
        assert hardware is not None
        found[gbit] = per_device(model, hardware, 384, 1, Sharded(), precision=FP16)
    return found


def micro_batches(batches: Sequence[int] = (1, 16)) -> dict[int, list[float]]:
    """Samples a second of one A100 with FSDP, by micro-batch and for each number of devices."""
    model, hardware = load_model("llama2-7b").with_sequence_length(2048), load_hardware("p4d.24xlarge")
    return {
        batch: [per_device(model, hardware, devices, batch, Sharded()) for devices in DEVICES]
        for batch in batches
    }


def inside_machines(batch: int = 1, devices: int = 1024) -> tuple[float, float]:
    """Samples a second of one of so many A100, with shards over all of them and inside machines."""
    model, hardware = load_model("llama2-7b").with_sequence_length(2048), load_hardware("p4d.24xlarge")
    over_all = Sharded()
    inside = replace(over_all, within="machine")
    return (
        per_device(model, hardware, devices, batch, over_all),
        per_device(model, hardware, devices, batch, inside),
    )


def owner_pairs() -> dict[int, tuple[LargeRun, LargeRun]]:
    """Published runs that differ in whether owners of tensors are among all ranks or inside machines, by
    their devices."""
    runs, _ = read_runs(row for row in training_rows() if "InternEvo" in row["framework"])
    alike: dict[tuple[int, int], dict[bool, LargeRun]] = {}
    for run in runs:
        if run.tensor == 1 and run.recompute == "none" and run.accumulate == OWNER_PASSES:
            alike.setdefault((run.devices, run.micro_batch), {})[run.within_machine] = run
    return {
        devices: (both[False], both[True])
        for (devices, _), both in sorted(alike.items())
        if len(both) == 2 and devices in OWNER_DEVICES
    }


def lines() -> list[str]:
    """The shapes in words, for a benchmark."""
    by_network = networks()
    widest = by_network[NETWORKS_GBIT[-1]]
    shares = ", ".join(
        f"{gbit:g} Gbit/s {rate / widest:.0%} (published {published / PUBLISHED_TFLOPS[-1]:.0%})"
        for (gbit, rate), published in zip(by_network.items(), PUBLISHED_TFLOPS, strict=True)
    )
    by_batch = micro_batches()
    kept = ", ".join(f"micro-batch {batch} {rates[-1] / rates[0]:.0%}" for batch, rates in by_batch.items())
    over_all, inside = inside_machines()
    return [
        f"ZeRO-3 of a 138B on 384 V100, of what 800 Gbit/s a machine give: {shares}",
        f"FSDP of a 7B on A100, a device of {DEVICES[-1]:,} does of what one of {DEVICES[0]} does: {kept}",
        f"shards inside machines against over {DEVICES[-1]:,} ranks: {inside / over_all:.2f} times as fast",
    ]
