"""What it takes to fit: training methods by GPUs, on one device each, and what the job costs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.answers.scenario import parse_request
from planner.device.memory import usable_bytes
from planner.errors import BadInput
from planner.hardware import Hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.model.methods import METHODS, USUAL_DATASET_TOKENS, USUAL_EPOCHS
from planner.parallel.data.single import Alone
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.feasibility import peak_memory
from planner.search.request import Request, model_of
from planner.search.sizes import plan_of, recompute_options, usual_precision
from planner.search.space import site_of
from planner.search.training import USUAL_LENGTH

# Rows of the table: a label, flags, and the recompute modes to try (None: the least that fits).
WAYS: dict[str, tuple[Mapping[str, str], tuple[str, ...] | None]] = {
    "full, AdamW": ({"optimizer": "adamw"}, None),
    "full, 8-bit AdamW, recompute": ({"optimizer": "adamw-8bit"}, ("full",)),
    "LoRA, bf16 base": ({"train": "lora", "optimizer": "adamw"}, None),
    "QLoRA, nf4 base": ({"train": "qlora", "optimizer": "adamw"}, None),
}


@dataclass(frozen=True, slots=True)
class FitRow:
    """One method on one GPU. `machine` is the cheapest offer with the GPU, of whose `devices` one is used;
    without one there is no cost."""

    gpu: str
    method: str
    fits: bool
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


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer: rows by GPU, then method, and the job that they are priced for."""

    model: str
    parameters: int
    sequence_length: int
    mean_length: int | None
    batch: int
    dataset_tokens: float
    epochs: float
    rows: tuple[FitRow, ...]

    def as_dict(self) -> dict[str, Any]:
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
    """Which training methods fit on which GPUs."""
    network = load_model(model)
    if network.sequence_length is None:
        raise BadInput(f"{network.name} reads no tokens; planner fit compares methods of language models")
    length = seq_length or min(network.sequence_length, USUAL_LENGTH)
    tokens = dataset_tokens or USUAL_DATASET_TOKENS
    passes = epochs or USUAL_EPOCHS
    names = list(dict.fromkeys(part.strip() for part in gpus.split(",") if part.strip()))
    if not names:
        raise BadInput("--gpu is empty; name devices, as RTX-4090,L4,A100")
    rows = []
    for gpu in names:
        for label, (flags, modes) in WAYS.items():
            takes = METHODS[flags.get("train", "full")].takes
            adapters = {"rank": rank, "targets": targets}
            given: Any = {name: value for name, value in adapters.items() if name in takes} | dict(flags)
            given["mean_length"] = mean_length
            request = parse_request(model, gpu=gpu, batch=str(batch), seq_length=length, workers="1", **given)
            rows.append(_row(request, gpu, label, modes, passes * tokens))
    return Fit(network.name, network.parameters, length, mean_length, batch, tokens, passes, tuple(rows))


def _row(request: Request, gpu: str, label: str, modes: tuple[str, ...] | None, tokens: float) -> FitRow:
    model = model_of(request)
    machine = cheapest_offer(request)
    cases = Cases(request, model)
    plan, fits, peak_bytes = _leanest(cases, machine, modes)
    price, usd = request.market.price(machine), request.market.usd_per_hour(machine)
    rate = low = high = job_s = None
    if fits:
        rate = _tokens_per_s(cases, plan, model)
        error = cases.error(plan)
        low, high = (rate, rate) if error is None else error.range_of(rate)
        job_s = tokens / rate
    return FitRow(
        machine.device.name,
        label,
        fits,
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


def cheapest_offer(request: Request) -> Hardware:
    """The machine with the request's GPU that costs least per hour."""
    machines = request.market.matching(request.hardware_words)
    market, unpriced = request.market, float("inf")
    return min(machines, key=lambda kind: (market.usd_per_hour(kind) or unpriced, kind.name))


def _leanest(cases: Cases, machine: Hardware, modes: tuple[str, ...] | None) -> tuple[Plan, bool, float]:
    """The plan with the least recompute that fits, else the one that needs least memory; and its peak."""
    request, model = cases.request, cases.model
    site = site_of(request, machine, 0 if machine.device_count > 1 else 1)
    assert isinstance(request.batches, tuple)
    tried = []
    for mode in recompute_options(request, model):
        if modes is not None and mode not in modes:
            continue
        plan = plan_of(
            model,
            request.batches[0],
            site,
            Alone(),
            request,
            precision=usual_precision(machine.device),
            recompute=mode,
        )
        peak_bytes = peak_memory(plan, model, site).required_bytes
        if peak_bytes <= usable_bytes(machine.device):
            return plan, True, peak_bytes
        tried.append((peak_bytes, plan))
    peak_bytes, plan = min(tried, key=lambda pair: pair[0])
    return plan, False, peak_bytes


def _tokens_per_s(cases: Cases, plan: Plan, model: Model) -> float:
    """On one device, a step lasts as long as its ops one after the other."""
    computation = cases.computation(plan)
    step_s = float(computation.durations_s.sum(axis=1).mean()) + computation.optimizer_s
    return computation.batch * (model.sample_tokens or 1) / step_s
