"""Peak memory of published runs beside what `planner.device.memory` says."""

from __future__ import annotations

from planner.device.memory import USABLE, PeakMemory, Shares, footprint
from planner.errors import BadInput
from planner.memoize import memoize
from planner.model import Model
from planner.validation.row import figures
from planner.validation.run import Layout, Run

GIB = 2**30
# Megatron-DeepSpeed and nanotron sum gradients of bf16 up in single precision, beside those of a micro-batch.
SUMMED_IN_SINGLE = 6


def obstacle(run: Run) -> str:
    """Why the memory of a run cannot be judged, "" where it can."""
    if run.memory_gib is None:
        return "no memory is stated"
    known = figures("reading")
    if reason := known["doubtful_memory"].get(run.id):
        return str(reason)
    for part, reason in known["doubtful_memory_series"].items():
        if part in run.series:
            return str(reason)
    if run.doubtful and run.arch == "llm" and "not tuned" not in run.doubtful:
        return run.doubtful
    if run.model is None or run.layout is None or run.batch is None or run.precision is None:
        return next(iter(run.unknown), "its settings are not stated")
    unmodelled = [reason for reason in run.unknown if "not modelled" in reason]
    return unmodelled[0] if unmodelled else ""


@memoize
def peak_gib(run: Run) -> float | str:
    """The peak of the fullest device, or why the package refuses to say."""
    if reason := obstacle(run):
        return reason
    try:
        return peak_memory(run).total_bytes / GIB
    except BadInput:
        return "its heads, as far as they are known, cannot be dealt out"


def fits(run: Run, predicted_gib: float) -> bool | None:
    """Whether the prediction fits on the run's device, which it did; None where its memory is not stated."""
    return None if run.device_gib is None else predicted_gib <= run.device_gib * USABLE["gpu"]


def peak_memory(run: Run) -> PeakMemory:
    """Peak memory of a run's fullest device, by kind."""
    assert run.model is not None
    assert run.batch is not None
    assert run.precision is not None
    assert run.layout is not None
    if run.arch == "llm":
        return _peak_of_shards(run, run.model, run.layout)
    optimizer = "adam" if run.software.optimizer == "adam" else "momentum"
    autocast = True  # of PyTorch: Lightning's bf16-mixed, torch.amp
    memory = footprint(run.model, run.precision, optimizer=optimizer, autocast=autocast)
    return memory.peak(run.batch, Shares(communicators=int(run.devices > 1)))


def _peak_of_shards(run: Run, model: Model, layout: Layout) -> PeakMemory:
    """The first stage has most micro-batches in flight, the last the logits."""
    assert run.batch is not None
    assert run.precision is not None
    mesh = layout.mesh
    shard = mesh.shard(model).model
    spread = 1 / layout.replicas if layout.stage else 1.0
    found = []
    for stage, share in enumerate(mesh.memory_shares(model, run.accumulate)):
        shares = Shares(
            parameters=spread if layout.stage == 3 else 1.0,
            gradients=spread if layout.stage >= 2 else 1.0,
            optimizer=spread,
            in_flight=share.in_flight,
            communicators=(layout.replicas > 1) + mesh.groups,
            model_parallel=mesh.is_sharded,
        )
        last = stage * (mesh.stages - 1)
        memory = footprint(
            shard,
            run.precision,
            optimizer="adam",
            recompute=run.recompute,
            gradient_bytes=SUMMED_IN_SINGLE if run.precision.name == "bf16" else None,
            only=None if share.layers is None else _stage(shard, last, mesh.stages),
        )
        found.append(memory.peak(run.batch, shares))
    return max(found, key=lambda one: one.total_bytes)


def _stage(model: Model, stage: int, stages: int) -> frozenset[str]:
    """The layers of a stage where blocks are divided evenly, with what stands before and behind them."""
    names = [block.name for block in model.blocks]
    first, last = (len(names) * index // stages for index in (stage, stage + 1))
    mine = set(names[first:last])
    seen: set[str] = set()
    out = set()
    for layer in model.layers:
        seen |= {layer.block} if layer.block else set()
        before, behind = not seen, len(seen) == len(names)
        if layer.block in mine or (
            layer.block is None and ((stage == 0 and before) or (stage == stages - 1 and behind))
        ):
            out.add(layer.name)
    return frozenset(out)


def group_of(run: Run) -> str:
    """What a run is called in tables."""
    network = "GPT 176B to 205B" if run.source == "bigscience-a100" else run.network
    precision = "" if run.precision is None else run.precision.name
    sharding = "" if run.layout is None else (f"ZeRO-{run.layout.stage}" if run.layout.stage else "")
    return " ".join(filter(None, (run.source, network, precision, sharding)))
