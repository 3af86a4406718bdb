"""Search defaults: number formats, batches, micro-batches and machine counts to try.

A device takes the model's default batch, or two or four times that; less if that does not fit in memory or
needs recompute. A step takes no more samples than usual recipes train with: 8,192 images (Goyal et al. 2017,
Accurate, Large Minibatch SGD, arXiv:1706.02677) or 2^24 tokens (BERT with 32,768 sequences of 512: You et al.
2019, arXiv:1904.00962; Llama 3 ends at 16M tokens: arXiv:2407.21783). A batch is doubled if that gains 2%.

Parameter servers and CPUs keep the default batch, which staleness limits. Models of 8 billion parameters and
more keep their micro-batch, and the recommended machines accumulate two or four by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf, isqrt, log2

from planner.device.activations import Recompute, framework_recompute_modes
from planner.device.memory import Shares, footprint
from planner.device.precision import BF16, FP16, FP32, PRECISIONS, Precision
from planner.hardware import Device, Hardware
from planner.model import Model
from planner.parallel.data import EXCHANGES, Exchange, RequestedSettings, Site, Tier
from planner.parallel.mesh import Mesh, meshes, strategy_axis
from planner.parallel.plan import Plan
from planner.search.machines import owned_machine_count
from planner.search.request import MAX_WORKERS, Request

DEFAULT_PER_REPLICA = (1, 2, 4)  # above 1 on CPU machines only
MICRO_BATCHES = 6  # powers of two, from 1 on
MAX_LARGE_WORKERS = 1024  # of a large model, where money or machines limit them
MATRIX_UNITS = 4.0  # times the fp32 peak, which devices without them do not reach in fp16
EVERY_COUNT_TO = 64  # worker nodes above this are tried in steps of an eighth


def precisions(request: Request, model: Model, worker: Hardware) -> tuple[Precision, ...]:
    """Number formats to try: the requested ones that the device supports, else its default one."""
    has = worker.device.flops
    if request.profile is not None:
        known = request.profile.recorded
        return (PRECISIONS.get(known.facts.precision, FP32) if known else FP32,)
    if request.formats is not None:
        return tuple(PRECISIONS[name] for name in request.formats if PRECISIONS[name].compute in has)
    return (usual_precision(worker.device),)


def usual_precision(device: Device) -> Precision:
    """Default number format: mixed bf16, mixed fp16 with matrix units (V100, T4), or fp32."""
    peaks = device.flops
    if device.kind == "gpu" and "bf16" in peaks:
        return BF16
    has_matrix_units = peaks.get("fp16", 0.0) >= MATRIX_UNITS * peaks.get("fp32", inf)
    return FP16 if has_matrix_units else FP32


def batches(request: Request, model: Model, worker: Hardware) -> Iterable[int]:
    """Batches per device to try: as requested or recorded, else the default; for `auto`, powers of two."""
    if request.profile is not None and request.batches in (None, "auto"):
        return (request.profile.batch,)
    if request.batches is None:
        return (model.default_batch,)
    if request.batches != "auto":
        return request.batches
    if model.sequence_length is not None:
        return [2**k for k in range(MICRO_BATCHES + 1)]
    largest = largest_single_device_batch(model, worker)
    return [2**k for k in range(3, 11) if 2**k <= largest]


def largest_single_device_batch(model: Model, worker: Hardware) -> int:
    """Largest batch that fits on one device without optimizer state."""
    return footprint(model, usual_precision(worker.device)).largest_batch(
        worker.device, Shares(optimizer=0.0)
    )


def micro_batches(request: Request, model: Model, worker: Hardware) -> Iterable[int]:
    """Micro-batches to try; with a global batch, its divisors near powers of two."""
    if request.batches is None and request.global_batch is None and request.profile is None:
        return usual_batches(request, model, worker)
    if request.global_batch is None or request.batches is not None or request.profile is not None:
        return batches(request, model, worker)
    powers = MICRO_BATCHES
    if model.sequence_length is None:
        largest = usual_batches(replace(request, global_batch=None), model, worker)[-1]
        powers = max(largest, 1).bit_length()
    return dividing_batches(request.global_batch, [2**k for k in range(powers)])


def dividing_batches(samples: int, limits: Iterable[int]) -> list[int]:
    """Largest divisors of a sample count up to each limit, ascending."""
    divisors = [each for k in range(1, isqrt(samples) + 1) if samples % k == 0 for each in (k, samples // k)]
    return sorted({max(each for each in divisors if each <= limit) for limit in limits if limit >= 1})


def worker_counts(request: Request, worker: Hardware, model: Model) -> list[int]:
    """Numbers of workers to try: the requested ones, else those that fill machines. Requested numbers that
    fill no machine are dropped if others do."""
    devices = worker.device_count
    if request.workers is not None:
        asked = set(request.workers)
        if request.fills_machines:
            asked = {-(-count // devices) * devices for count in asked}
        full = {count for count in asked if count % devices == 0} or asked
        return sorted(full if can_span_machines(request, worker) else {n for n in full if n <= devices})
    return [nodes * devices for nodes in _node_counts(request, worker, model)]


def _node_counts(request: Request, worker: Hardware, model: Model) -> list[int]:
    """Numbers of machines to try: every count up to 64 and fewer above."""
    counts, count = [], 1
    most = _max_nodes(request, worker, model)
    while count <= most:
        counts.append(count)
        count += 1 if count < EVERY_COUNT_TO else count // 8
    if model.parameters >= LARGE_PARAMETERS:  # which global batches can be divided among
        counts += [2**k for k in range(most.bit_length()) if 2**k <= most]
    return sorted(set(counts))


def can_span_machines(request: Request, worker: Hardware) -> bool:
    """Whether the bandwidth between machines is known, so that several can be used."""
    return request.market.nic_bytes_per_s(worker) is not None


def is_on_one_machine(model: Model, worker: Hardware) -> bool:
    """Whether a fine-tuning job on rented machines is limited to one machine by default."""
    from planner.model.methods import METHODS

    fine_tunes = model.training is not None and METHODS[model.training.method].fine_tunes
    return fine_tunes and worker.standing != "own"


def _max_nodes(request: Request, worker: Hardware, model: Model) -> int:
    """Maximum number of machines to try, by budget, ownership and limits."""
    limited = request.budget_usd_per_hour is not None or request.machines is not None
    large = limited and model.parameters >= LARGE_PARAMETERS
    most = max(1, (MAX_LARGE_WORKERS if large else MAX_WORKERS) // worker.device_count)
    price = request.market.usd_per_hour(worker)
    if request.budget_usd_per_hour is not None and price:
        # one more than the budget buys, so that the nearest plan above it is known
        most = min(most, int(request.budget_usd_per_hour / price) + 1)
    if request.machines is not None:
        most = min(most, request.machines)
    elif is_on_one_machine(model, worker):
        most = 1
    if (owned := owned_machine_count(request, worker)) is not None:
        most = min(most, owned)
    return most if can_span_machines(request, worker) else min(most, 1)


def recompute_options(request: Request, model: Model) -> tuple[Recompute, ...]:
    """Recompute modes to try, from none to full. Image models try smaller batches instead, unless modes are
    named."""
    recomputes = model.sequence_length or (model.blocks and not is_batch_open(request, model))
    return request.recompute or (framework_recompute_modes(request.framework) if recomputes else ("none",))


def with_workers(plan: Plan, workers: int, global_batch: int | None) -> Plan | None:
    """Plan with this number of workers at the same global batch; None if it does not divide."""
    more = replace(plan, workers=workers)
    if global_batch is None:
        return more
    at_once = plan.batch * max(more.replicas, 1)
    return None if global_batch % at_once else replace(more, accumulate=global_batch // at_once)


def with_micro_batches(plan: Plan, count: int) -> Plan | None:
    """Plan with its batch split into `count` micro-batches; None if it does not divide."""
    if plan.batch % count:
        return None
    return replace(plan, batch=plan.batch // count, accumulate=plan.accumulate * count)


DOUBLINGS = 2
DOUBLING = 0.02  # what it must bring
MOST_SAMPLES = 8192
MOST_TOKENS = 2**24
LARGE_PARAMETERS = 8_000_000_000  # of a model that is also tried in parts


def is_batch_open(request: Request, model: Model) -> bool:
    """Whether the search may choose the batch per device."""
    named = (request.batches, request.global_batch, request.profile)
    return all(entry is None for entry in named) and model.trained_parameters < LARGE_PARAMETERS


def usual_batches(request: Request, model: Model, worker: Hardware) -> tuple[int, ...]:
    """The model's default batch; on GPUs also twice and four times that if the search may choose."""
    many = DOUBLINGS if is_batch_open(request, model) and worker.device.kind == "gpu" else 0
    return tuple(model.default_batch * 2**k for k in range(many + 1))


def smaller_batches(request: Request, model: Model) -> tuple[int, ...]:
    """Powers of two below the default batch, descending, for devices that cannot hold the default."""
    below = range(int(log2(model.default_batch)), -1, -1) if is_batch_open(request, model) else ()
    return tuple(2**k for k in below if 2**k < model.default_batch)


def max_step_samples(model: Model) -> int:
    """Maximum samples per optimizer step of published training recipes."""
    return MOST_SAMPLES if model.sequence_length is None else max(MOST_TOKENS // model.sequence_length, 1)


def is_over_max_step(request: Request, model: Model, batch: int, replicas: int) -> bool:
    """Whether a step has more samples than published training recipes use."""
    in_all = batch * (request.accumulate or 1) * replicas
    return is_batch_open(request, model) and replicas > 1 and in_all > max_step_samples(model)


def may_accumulate(request: Request, model: Model) -> bool:
    """Whether a batch may be split into micro-batches to avoid recompute."""
    free = request.recompute is None or "none" in request.recompute
    return free and request.accumulate is None and is_batch_open(request, model)


def may_accumulate_more(request: Request, model: Model) -> bool:
    """Whether the search may choose the micro-batches per step of a large model."""
    named = (request.batches, request.global_batch, request.accumulate, request.profile)
    return model.trained_parameters >= LARGE_PARAMETERS and all(entry is None for entry in named)


def batch_discount(batch: int, model: Model) -> float:
    """Ranking factor of a batch above the model's default: 2% lower per doubling."""
    return float((1 - DOUBLING) ** max(log2(batch / model.default_batch), 0.0))


def meshes_on(
    request: Request, worker: Hardware, model: Model, strategies: Iterable[str] = EXCHANGES
) -> list[Mesh]:
    """Meshes to try: as requested, else unsharded replicas, plus sharded ones for large models."""
    contends = any(EXCHANGES.entry(kind).tier is Tier.CONTENDER for kind in strategies)
    large = model.parameters >= LARGE_PARAMETERS
    asked, named = request.axis_settings, request.is_mesh_named
    free = worker.device_count > 1 and request.workers_per_replica is None and large
    machine = Site(worker, worker.device_count, request.market)
    sharded = [] if not (named or free) else meshes(model, machine, asked, free=free)
    if named:
        return sharded
    return list(dict.fromkeys([*_strategy_meshes(request, worker, model, large or not contends), *sharded]))


def _strategy_meshes(request: Request, worker: Hardware, model: Model, whole: bool) -> list[Mesh]:
    """Meshes without sharding; with parameter servers also those whose replicas span several CPU workers."""
    degrees = request.workers_per_replica or ((1,) if whole else DEFAULT_PER_REPLICA)
    if request.profile is not None or worker.device.kind != "cpu" or max(degrees) == 1:
        return [Mesh() for degree in degrees if degree == 1]
    axis, asked = strategy_axis("workers_per_replica"), RequestedSettings({"workers_per_replica": degrees})
    machine = Site(worker, worker.device_count, request.market)
    return [Mesh((each,)) for each in axis.candidates(asked, machine, model)]


def named_mesh(request: Request, worker: Hardware, model: Model) -> Mesh:
    """Mesh that the request sets; unsharded by default."""
    if request.is_mesh_named:
        return meshes_on(request, worker, model)[0]
    return (
        Mesh.of(workers_per_replica=request.workers_per_replica[0]) if request.workers_per_replica else Mesh()
    )


def can_share_global_batch(request: Request, batch: int, site: Site) -> bool:
    """Whether the replicas of a site can share the global batch at this micro-batch."""
    return request.global_batch is None or request.global_batch % (batch * max(site.replicas, 1)) == 0


def plan_of(
    model: Model,
    batch: int,
    site: Site,
    exchange: Exchange,
    request: Request,
    *,
    precision: Precision = FP32,
    recompute: Recompute = "none",
) -> Plan:
    """Builds the plan for a site; it accumulates micro-batches up to the request's global batch."""
    accumulate = request.accumulate or 1
    if request.global_batch is not None:
        accumulate = max(request.global_batch // (batch * max(site.replicas, 1)), 1)
    return Plan(
        model=model.name,
        batch=batch,
        machine=site.hardware.name,
        workers=site.workers,
        exchange=exchange,
        precision=precision,
        mesh=site.mesh,
        workers_per_machine=site.devices,
        accumulate=accumulate,
        recompute=recompute,
    )


def allowed_strategies(request: Request) -> tuple[str, ...]:
    """Names of the strategies that the request allows."""
    if request.exchanges is not None:
        return tuple(kind for kind, _ in request.exchanges)
    meant = [
        kind
        for kind in EXCHANGES
        if any(getattr(request, name) is not None for name in EXCHANGES.entry(kind).fields)
    ]
    return tuple(meant or EXCHANGES)


def strategy_settings(request: Request, kind: str, *, single: bool = False) -> RequestedSettings:
    """Requested settings of a strategy; `single` marks a question about one plan."""
    named = {name: getattr(request, name) for name in EXCHANGES.entry(kind).fields}
    settings = {name: value for name, value in named.items() if value is not None}
    return RequestedSettings(settings, dict(request.exchanges or ()).get(kind, {}), single, request.brief)
