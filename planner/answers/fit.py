"""What it takes to fit: training methods by GPUs, on one device each, and what the job costs there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from planner.answers.questions import parse_request
from planner.device.memory import usable_bytes
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.model.methods import METHODS, USUAL_DATASET_TOKENS, USUAL_EPOCHS
from planner.parallel.data import Exchange
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.single import Alone
from planner.parallel.plan import Plan, Site
from planner.search.cases import Cases
from planner.search.feasibility import largest_batch, peak_memory
from planner.search.request import Request, model_of
from planner.search.sizes import plan_of, recompute_options, usual_precision
from planner.search.space import site_of
from planner.search.training import USUAL_LENGTH

# Rows of the table: a label and flags. The last one is tried where no other fits.
WAYS: dict[str, dict[str, str]] = {
    "full, AdamW": {"optimizer": "adamw"},
    "full, 8-bit AdamW": {"optimizer": "adamw-8bit"},
    "LoRA, bf16 base": {"train": "lora", "optimizer": "adamw"},
    "QLoRA, nf4 base": {"train": "qlora", "optimizer": "adamw"},
}
REMEDY = {"QLoRA, offload (slow)": {"train": "qlora", "optimizer": "adamw", "offload": "parameters"}}
GPU_COUNTS = (2, 4, 8)  # of one machine, tried where one GPU is too small


@dataclass(frozen=True, slots=True)
class FitRow:
    """One training method on one GPU, with the cheapest machine that has it.

    `gpus` is the fewest that hold the model with FSDP; None: more than eight.
    """

    gpu: str
    method: str
    fits: bool
    gpus: int | None
    peak_bytes: float
    usable_bytes: float
    precision: str
    recompute: str
    machine: str
    devices: int
    usd_per_hour: float | None
    price_as_of: str | None
    tokens_per_s: float | None  # None where it does not fit
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None
    job_s: float | None
    job_usd: float | None

    @property
    def is_remedy(self) -> bool:
        """Whether the method is one that is shown only if no usual method fits."""
        return self.method in REMEDY


@dataclass(frozen=True, slots=True)
class Fit:
    """Answer to `fit`: rows by GPU and method, and the job that they are priced for."""

    model: str
    parameters: int
    sequence_length: int
    mean_length: int | None
    batch: int
    dataset_tokens: float
    epochs: float
    rows: tuple[FitRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        return asdict(self)


def fit_for(
    model: str,
    gpus: str,
    *,
    batch: int = 1,
    seq_length: int | None = None,
    mean_length: int | None = None,
    rank: int | None = None,
    targets: str | None = None,
    dataset_tokens: float | None = None,
    epochs: float | None = None,
) -> Fit:
    """Finds which training methods fit on which GPUs, and prices the job there."""
    network = load_model(model)
    if network.sequence_length is None:
        raise BadInput(f"{network.name} reads no tokens; planner fit compares methods of language models")
    length = seq_length or min(network.sequence_length, USUAL_LENGTH)
    tokens = dataset_tokens or USUAL_DATASET_TOKENS
    passes = epochs or USUAL_EPOCHS
    names = list(dict.fromkeys(part.strip() for part in gpus.split(",") if part.strip()))
    if not names:
        raise BadInput("--gpu is empty; name devices, as RTX-4090,L4,A100")
    settings: dict[str, Any] = {"batch": str(batch), "seq_length": length, "mean_length": mean_length}
    adapters = {"rank": rank, "targets": targets}
    rows: list[FitRow] = []
    for gpu in names:
        for label, flags in (WAYS | REMEDY).items():
            if label in REMEDY and any(row.fits for row in rows[-len(WAYS) :]):
                continue
            takes = METHODS[flags.get("train", "full")].takes
            given = settings | {name: value for name, value in adapters.items() if name in takes} | flags
            request = parse_request(model, gpu=gpu, workers="1", **given)
            rows.append(_fit_row(request, label, passes * tokens))
    return Fit(network.name, network.parameters, length, mean_length, batch, tokens, passes, tuple(rows))


def _fit_row(request: Request, label: str, tokens: float) -> FitRow:
    """Row of one method on one GPU: memory, speed and price of the job."""
    model = model_of(request)
    cases = Cases(request, model)
    machine, plan, fits, peak_bytes = _single_device_fit(cases)
    price, usd = request.market.price(machine), request.market.usd_per_hour(machine)
    rate = low = high = job_s = None
    if fits:
        rate = _tokens_per_s(cases, plan, model)
        error = cases.error(plan)
        low, high = (rate, rate) if error is None else error.range_around(rate)
        job_s = tokens / rate
    return FitRow(
        machine.device.name,
        label,
        fits,
        1 if fits else _fewest_gpus(cases, machine),
        peak_bytes,
        usable_bytes(machine.device),
        plan.precision.name,
        plan.recompute,
        machine.name,
        machine.device_count,
        usd,
        price.as_of if price else None,
        rate,
        low,
        high,
        job_s,
        None if job_s is None or usd is None else job_s / 3600 * usd,
    )


def machines_with_gpu(request: Request) -> list[Hardware]:
    """Machines with the requested GPU, sorted by price per hour."""
    market, unpriced = request.market, float("inf")
    machines = market.select_machines(request.hardware_words)
    return sorted(machines, key=lambda kind: (market.usd_per_hour(kind) or unpriced, kind.name))


def _single_device_fit(cases: Cases) -> tuple[Hardware, Plan, bool, float]:
    """The machine and plan for one device: (cheapest machine, plan, whether it fits, peak bytes).

    The plan has the least recompute; if none fits, it is the one that needs the least memory. Offload takes
    the cheapest machine with enough host memory.
    """
    request, model = cases.request, cases.model
    machines = machines_with_gpu(request)
    tried = []
    for machine in machines if request.extra.get("offload") else machines[:1]:
        site = site_of(request, machine, 1)
        for plan in _try_plans(cases, site):
            peak_bytes = peak_memory(plan, model, site).required_bytes
            if largest_batch(plan, model, site) >= plan.batch:
                return machine, plan, True, peak_bytes
            tried.append((peak_bytes, plan))
    peak_bytes, plan = min(tried, key=lambda pair: pair[0])
    return machines[0], plan, False, peak_bytes


def _try_plans(cases: Cases, site: Site) -> Iterator[Plan]:
    """Yields the plan once for each recompute mode, from least to most recompute."""
    request, precision = cases.request, usual_precision(site.hardware.device)
    assert isinstance(request.batches, tuple)
    exchange: Exchange = Alone() if site.workers == 1 else Sharded()
    for mode in recompute_options(request, cases.model):
        yield plan_of(
            cases.model, request.batches[0], site, exchange, request, precision=precision, recompute=mode
        )


def _fewest_gpus(cases: Cases, machine: Hardware) -> int | None:
    """Fewest GPUs of one machine (2, 4 or 8) that hold the model with FSDP; None if 8 do not."""
    for count in GPU_COUNTS:
        site = Site(machine, count, cases.market)
        if any(largest_batch(plan, cases.model, site) >= plan.batch for plan in _try_plans(cases, site)):
            return count
    return None


def _tokens_per_s(cases: Cases, plan: Plan, model: Model) -> float:
    """Tokens per second of one device that runs its ops one after another."""
    computation = cases.computation(plan)
    step_s = float(computation.durations_s.sum(axis=1).mean()) + computation.optimizer_s
    return computation.batch * (model.sample_tokens or 1) / step_s
