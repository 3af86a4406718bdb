"""Flags of the training method and of the fine-tuning job, and the model as a request trains it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.errors import BadInput
from planner.flags import option_name

if TYPE_CHECKING:
    from planner.model import MethodSettings, Model
    from planner.search.request import Request

USUAL_LENGTH = 2048  # default tokens per sample of a fine-tuning job
LOSS_KINDS, ACTIVATION_FORMATS = ("eager", "fused", "chunked"), ("fp8",)
COMPILED = "pytorch-compiled"  # the framework whose graphs save what fused kernels read
MEMORY = ("offload", "cross_entropy", "activations")


def training_asked(request: Request) -> MethodSettings:
    """Requested training method; raises an error for contradicting settings."""
    from planner.device.precision import find_optimizer
    from planner.model.methods import method_settings

    extra = request.extra
    if (optimizer := extra.get("optimizer")) is not None:
        find_optimizer(optimizer)
    names = ("rank", "targets", "base", "dropout", "optimizer")
    given = {name: extra.get(name) for name in names}
    return method_settings(extra.get("train"), **given, **_requested_memory_settings(request))


def _requested_memory_settings(request: Request) -> dict[str, Any]:
    """Requested settings that change the memory footprint, by name."""
    extra = request.extra
    asked: dict[str, Any] = {}
    if extra.get("offload"):
        from planner.device.offload import offload_parts

        asked["offload"] = offload_parts(extra["offload"])
    for name, known in (("cross_entropy", LOSS_KINDS), ("activations", ACTIVATION_FORMATS)):
        if (value := extra.get(name)) is not None:
            if value not in known:
                raise BadInput(f"{option_name(name)} is {value!r}; it is one of {', '.join(known)}")
            asked[name] = value
    if request.framework == COMPILED:
        asked["compiled"] = True
    return asked


def usual_length(request: Request) -> int | None:
    """Default tokens per sample of a fine-tuning job; None for the model's own length."""
    from planner.model.catalog import load_model

    if request.sequence_length is not None or request.profile is not None or "train" not in request.extra:
        return None
    return fine_tuning_length(load_model(request.model), training_asked(request))


def fine_tuning_length(model: Model, training: MethodSettings) -> int | None:
    """2,048 tokens if a fine-tuning job would use longer samples; None for the model's own length."""
    from planner.model.methods import METHODS

    longer = METHODS[training.method].fine_tunes and (model.sequence_length or 0) > USUAL_LENGTH
    return USUAL_LENGTH if longer else None


def apply_training(model: Model, request: Request) -> Model:
    """Model with the request's sequence length, training method and dataset."""
    if request.sequence_length is not None:
        model = model.with_sequence_length(request.sequence_length)
    names = (
        "train",
        "rank",
        "targets",
        "base",
        "dropout",
        "optimizer",
        "dataset_tokens",
        "mean_length",
        *MEMORY,
    )
    if request.extra.keys().isdisjoint(names) and request.framework != COMPILED:
        return model
    from planner.model.methods import apply_training

    training = training_asked(request)
    if (length := usual_length(request)) is not None:
        model = model.with_sequence_length(length)
    model = with_mean_length(model, request.extra.get("mean_length"))
    return apply_training(model, training, request.extra.get("dataset_tokens"))


def with_mean_length(model: Model, mean_length: int | None) -> Model:
    """Model with examples of this mean length, padded to the sequence length."""
    if mean_length is None:
        return model
    if model.sequence_length is None:
        raise BadInput(f"--mean-length: {model.name} reads no sequence of tokens; leave it out")
    if not 1 <= mean_length <= model.sequence_length:
        most = f"--seq-length ({model.sequence_length:,})"
        raise BadInput(f"--mean-length is {mean_length:,}; examples have 1 to {most} tokens")
    return replace(model, mean_length=mean_length)
