"""Large models: trends that predictions must reproduce whatever their error, as claims.

- ZeRO-3 on 384 V100 in machines of 16, a model of 138 billion parameters, 2,048 tokens per device: 20, 32,
  36 and 48 Tflop/s per device at 100, 200, 400 and 800 Gbit/s per machine (DeepSpeed, ZeRO++, 2023): an
  eighth of the bandwidth leaves less than half the rate.
- With a small micro-batch the rate per device falls as devices are added, with a large one it does not.
- Sharding inside machines beats sharding over a thousand ranks, where a machine has enough memory; most so
  where shards are whole tensors that their owners send (ZeRO-1 of InternEvo).
- Where communication matters, predictions have smaller errors than the usual rules of thumb.

The first three use the closed-form throughput bound of the exchange, a few milliseconds each.
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
from planner.validation.networks import Dimensions, build_transformer
from planner.validation.predict import RunStep, build_machine, predict_step
from planner.validation.reader import published_runs
from planner.validation.row import Check, CheckName, Row, Section
from planner.validation.run import Run
from planner.validation.suites import suite_evidence

HOW = "closed form of the exchange that plans are bounded by"
ZERO = "ZeRO++ (DeepSpeed, 2023), read off its figures"
NETWORKS_GBIT = (100, 200, 400, 800)
PUBLISHED_TFLOPS = (20, 32, 36, 48)  # at those networks
DEVICES = (8, 64, 256, 1024)
OWNER_DEVICES, OWNER_PASSES = (16, 128, 1024), 4
SHARE = 0.2  # of what 800 Gbit/s give; the figures are read off a chart
FALLS, STAYS, FASTER = 0.6, 0.9, 1.2
OWNERS = 0.2  # of the published ratio


def bound_per_device(
    model: Model,
    hardware: Hardware,
    devices: int,
    batch: int,
    exchange: Sharded,
    *,
    precision: Precision = BF16,
) -> float:
    """Upper bound on the samples per second of one device, with every layer recomputed."""
    site = Site(hardware, devices)
    once = replica_computation(model, batch, site, precision, recompute="full")
    (rate,) = Sharded.bounds([Job(exchange, once, site)])
    return float(rate) / devices


def network_rates() -> dict[float, float]:
    """Upper bounds on samples per second per V100 with ZeRO-3 on 384 devices, by Gbit/s per machine."""
    model = build_transformer(Dimensions("gpt", 12288, 76, 96, 51200), 2048, "gpt-138b")
    return {
        gbit: bound_per_device(
            model, build_machine("V100-SXM2-32GB", 16, gbit / 8 * 1e9), 384, 1, Sharded(), precision=FP16
        )
        for gbit in NETWORKS_GBIT
    }


def micro_batch_rates(batches: Sequence[int] = (1, 16)) -> dict[int, list[float]]:
    """Upper bounds on samples per second per A100 with FSDP, by micro-batch and count in `DEVICES`."""
    model, hardware = _llama_7b_and_machine()
    return {
        batch: [bound_per_device(model, hardware, devices, batch, Sharded()) for devices in DEVICES]
        for batch in batches
    }


def global_and_local_sharding_rates(batch: int = 1, devices: int = 1024) -> tuple[float, float]:
    """Upper bounds on samples per second per A100: sharded over all devices, and inside each machine."""
    model, hardware = _llama_7b_and_machine()
    over_all = Sharded()
    inside = replace(over_all, within="machine")
    return (
        bound_per_device(model, hardware, devices, batch, over_all),
        bound_per_device(model, hardware, devices, batch, inside),
    )


def _llama_7b_and_machine() -> tuple[Model, Hardware]:
    """Llama 2 7B at 2,048 tokens, and a machine with eight A100."""
    return load_model("llama2-7b").with_sequence_length(2048), load_hardware("p4d.24xlarge")


def whole_tensor_run_pairs() -> dict[int, tuple[Run, Run]]:
    """Pairs of published runs by number of devices: sharded over all ranks, and inside each machine."""
    alike: dict[tuple[int, int | None], dict[bool, Run]] = {}
    for run in published_runs()[0]:
        layout = run.layout
        if layout is None or not layout.whole_tensors or run.unknown:
            continue
        if layout.mesh.inner_mesh.is_whole and run.recompute == "none" and run.accumulate == OWNER_PASSES:
            alike.setdefault((run.devices, run.batch), {})[layout.within_machine] = run
    return {
        devices: (both[False], both[True])
        for (devices, _), both in sorted(alike.items(), key=lambda pair: pair[0][0])
        if len(both) == 2 and devices in OWNER_DEVICES
    }


def _section(check: str, source: str, how: str = HOW) -> Section:
    """Section of a check on large models."""
    return Section(CheckName("large", check), how, source)


def network_rows() -> list[Row]:
    """Rows comparing ZeRO-3's throughput at each network bandwidth, relative to the highest."""
    check, rates = _section("network", ZERO), network_rates()
    *rest, widest = NETWORKS_GBIT
    return [
        check.close(
            str(gbit),
            f"138B on 384 V100, 2,048 tokens a device: {gbit} of {widest} Gbit/s a machine",
            tflops / PUBLISHED_TFLOPS[-1],
            rates[gbit] / rates[widest],
            SHARE,
        )
        for gbit, tflops in zip(rest, PUBLISHED_TFLOPS, strict=False)
    ]


def micro_batch_rows() -> list[Row]:
    """Rows comparing throughput per device on 1,024 devices, relative to 8, by micro-batch."""
    check = _section("micro_batch", "strong and weak scaling of published FSDP runs")
    kept = {batch: rates[-1] / rates[0] for batch, rates in micro_batch_rates().items()}
    (small, falls), (large, stays) = kept.items()
    what = "FSDP of a 7B on A100, micro-batch {}: a device of 1,024 against one of 8"
    return [
        check.stated(
            str(small), what.format(small), "falls", f"{falls:.2f}", falls < FALLS, f"below {FALLS:g}"
        ),
        check.stated(
            str(large), what.format(large), "stays", f"{stays:.2f}", stays > STAYS, f"above {STAYS:g}"
        ),
    ]


def sharding_rows() -> list[Row]:
    """Rows comparing throughput sharded inside machines with that sharded over all ranks."""
    over_all, inside = global_and_local_sharding_rates()
    times, claim = inside / over_all, f"above {FASTER:g} times"
    what = "FSDP of a 7B on 1,024 A100, micro-batch 1: shards inside machines against over all ranks"
    check = _section("within", "HSDP of PyTorch FSDP (Zhao et al. 2023)")
    return [check.stated("1024", what, "faster", f"{times:.2f} times", times > FASTER, claim)]


def whole_tensor_rows() -> list[Row]:
    """Rows comparing step times of ZeRO-1 with whole tensors, sharded over all ranks and inside machines."""
    how, source = "simulation of steps that are all alike", "InternLM/InternEvo doc/en/train_performance.md"
    check, rows = _section("owners", source, how), []
    for devices, (over_all, inside) in whole_tensor_run_pairs().items():
        ours = [step.seconds for run in (over_all, inside) if isinstance(step := predict_step(run), RunStep)]
        assert over_all.step_s is not None
        assert inside.step_s is not None
        what = f"InternLM 7B on {devices:,} A100, owners of tensors among all against inside machines"
        published = over_all.step_s / inside.step_s
        rows.append(check.near(str(devices), what, published, ours[0] / ours[1], OWNERS, unit="times"))
    return rows


def rules_rows() -> list[Row]:
    """Rows comparing our median error with that of each rule of thumb, where communication matters."""
    how = "median errors of published runs, their sources left out of the fit"
    check, rows = _section("rules", "planner/validation/data/training.csv.gz", how), []
    for statement in suite_evidence("sharded").statements:
        assert statement.target is not None
        rule = statement.name.rsplit(" relative to a ", 1)[-1].removesuffix(" estimate").replace("-", "_")
        rows.append(check.at_most(rule, statement.name, 1.0, statement.value, statement.target))
    return rows


CHECKS: dict[str, Check] = {
    "network": network_rows,
    "micro_batch": micro_batch_rows,
    "within": sharding_rows,
    "owners": whole_tensor_rows,
    "rules": rules_rows,
}
