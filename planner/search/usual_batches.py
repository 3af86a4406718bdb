"""Which batches are tried where a request names none: what people run, not the most that fits.

A device takes the model's own batch, or two or four times it; less where that does not fit in memory, or only
with activations that are recomputed. A step of all devices takes no more than is known to train as well
as a small batch with the usual recipe: 8,192 images (Goyal et al. 2017, Accurate, Large Minibatch SGD,
arXiv:1706.02677), 2^24 tokens (BERT with 32,768 sequences of 512: You et al. 2019, arXiv:1904.00962; Llama 3
ends at 16M tokens: arXiv:2407.21783). Of two batches the larger is taken where every doubling brings a
fiftieth.

Parameter servers and CPUs keep the model's own batch: there it is chosen by what staleness allows, or by
--global-batch. Models of 8 billion parameters and more keep their micro-batch, and the recommended machines
take two or four of them per step by the same rule.
"""

from __future__ import annotations

from math import log2

from planner.hardware import Hardware
from planner.model import Model
from planner.search.request import Request

DOUBLINGS = 2
DOUBLING = 0.02  # what it must bring
MOST_SAMPLES = 8192
MOST_TOKENS = 2**24
LARGE_PARAMETERS = 8_000_000_000  # of a model that is also tried in parts


def open_batch(request: Request, model: Model) -> bool:
    """Whether the batch of a device is ours to choose."""
    named = (request.batches, request.global_batch, request.profile)
    return all(entry is None for entry in named) and model.parameters < LARGE_PARAMETERS


def tried_batches(request: Request, model: Model, worker: Hardware) -> tuple[int, ...]:
    """The model's own batch and larger ones, of a device."""
    many = DOUBLINGS if open_batch(request, model) and worker.device.kind == "gpu" else 0
    return tuple(model.default_batch * 2**k for k in range(many + 1))


def smaller_batches(request: Request, model: Model) -> tuple[int, ...]:
    """What is tried where the model's own is too large to be held whole, the largest first."""
    below = range(int(log2(model.default_batch)), -1, -1) if open_batch(request, model) else ()
    return tuple(2**k for k in below if 2**k < model.default_batch)


def most_of_all(model: Model) -> int:
    """Samples of all devices in a step at most."""
    return MOST_SAMPLES if model.sequence_length is None else max(MOST_TOKENS // model.sequence_length, 1)


def too_many(request: Request, model: Model, batch: int, replicas: int) -> bool:
    """Whether a step of so many replicas takes more samples than anybody would train with unasked."""
    in_all = batch * (request.accumulate or 1) * replicas
    return open_batch(request, model) and replicas > 1 and in_all > most_of_all(model)


def may_accumulate(request: Request, model: Model) -> bool:
    """Whether a batch may be taken in several micro-batches, instead of recompute."""
    free = request.recompute is None or "none" in request.recompute
    return free and request.accumulate is None and open_batch(request, model)


def accumulates_more(request: Request, model: Model) -> bool:
    """Whether the micro-batches per step of a large model are ours to choose."""
    named = (request.batches, request.global_batch, request.accumulate, request.profile)
    return model.parameters >= LARGE_PARAMETERS and all(entry is None for entry in named)


def batch_discount(batch: int, model: Model) -> float:
    """What a batch is worth beside the model's own."""
    return float((1 - DOUBLING) ** max(log2(batch / model.default_batch), 0.0))
