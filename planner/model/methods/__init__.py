"""Training methods: full, lora, qlora and head, as transforms of the model. Each file here is one.

    trained_by(load_model("llama3-8b"), training_of("qlora", rank=16))

A method marks frozen tensors (`Tensor.frozen_bits`) and adds the layers of adapters. Compute, memory and
communication follow from these marks; nobody asks which method it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.memoize import memoize
from planner.model import MethodSettings, Model
from planner.model.layers import with_loss
from planner.model.methods._base import USUAL_DATASET_TOKENS, USUAL_EPOCHS, Base, Method
from planner.model.methods.lora import TARGETS

__all__ = [
    "BASES",
    "METHODS",
    "TARGETS",
    "USUAL_DATASET_TOKENS",
    "USUAL_EPOCHS",
    "Base",
    "Method",
    "MethodSettings",
    "trained_by",
    "training_of",
]


def methods_in(folders: Iterable[str]) -> dict[str, type[Method]]:
    """By name, the method that each file of the package's folders defines."""
    for module in sorted(entry.name for entry in iter_modules(folders) if not entry.name.startswith("_")):
        import_module(f"{__name__}.{module}")
    waiting, by_name = Method.__subclasses__(), dict[str, type[Method]]()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(f"{__name__}.") and "name" in vars(kind):
            by_name[kind.name] = kind
    order = ("full", "lora", "qlora", "head")  # of messages; others follow
    return {name: by_name[name] for name in sorted(by_name, key=lambda name: (*order, name).index(name))}


METHODS: dict[str, type[Method]] = methods_in(__path__)
USUAL_RANK = 16
# Time to dequantize comes from measured runs (docs/fine-tuning.md). int8: LLM.int8(), with scales of rows;
# nf4: bitsandbytes with double quantization; int4: GPTQ in groups of 128.
BASES = {
    base.name: base
    for base in (
        Base("bf16", 16),
        Base("int8", 8.1, dequantize_bytes=16.0),
        Base("nf4", 4.127, dequantize_bytes=11.0),
        Base("int4", 4.25, dequantize_bytes=16.5),
    )
}


def training_of(
    method: str | None = None,
    *,
    rank: int | None = None,
    targets: str | None = None,
    base: str | None = None,
    optimizer: str | None = None,
    **memory: Any,
) -> MethodSettings:
    """The settings of a method, with its defaults; settings that it does not take are refused. `memory` are
    those of what memory holds."""
    name = method or "full"
    if name not in METHODS:
        raise unknown_name("training method", name, METHODS, hint="one of " + ", ".join(METHODS))
    kind = METHODS[name]
    if base is not None and base not in BASES:
        raise unknown_name("base", base, BASES, hint="one of " + ", ".join(BASES))
    if name == "full" and base not in (None, "bf16"):
        raise BadInput(
            f"--base {base} cannot be trained in full: quantized weights stay frozen; take --train qlora"
        )
    for option, value in (("rank", rank), ("targets", targets), ("base", base)):
        if value is not None and option not in kind.takes:
            raise BadInput(f"--{option} {value} is no setting of --train {name}; take --train lora or qlora")
    if rank is not None and rank < 1:
        raise BadInput(f"--rank is {rank}; it must be at least 1")
    if targets is not None and targets not in TARGETS:
        raise BadInput(f"--targets is {targets!r}; it is one of {', '.join(TARGETS)}")
    if base is not None and base not in kind.bases:
        better = next(other for other, entry in METHODS.items() if base in entry.bases)
        raise BadInput(
            f"--base {base} is no base of --train {name} ({', '.join(kind.bases)}); take --train {better}"
        )
    chosen = BASES[base or kind.bases[0]] if kind.bases else None
    return MethodSettings(
        name,
        (rank or USUAL_RANK) if "rank" in kind.takes else None,
        targets or (TARGETS[0] if "targets" in kind.takes else None),
        None if chosen is None else chosen.name,
        optimizer,
        float(USUAL_EPOCHS) if kind.fine_tunes else None,
        0.0 if chosen is None else chosen.dequantize_bytes,
        **memory,
    )


@memoize
def trained_by(model: Model, training: MethodSettings, dataset_tokens: float | None = None) -> Model:
    """The network as a method trains it, on a dataset of so many tokens; itself where all of it is usual."""
    if training == MethodSettings():
        return model if dataset_tokens is None else _on_dataset(model, dataset_tokens)
    method = METHODS[training.method]
    changed = method.apply(model, training, BASES[training.base] if training.base else None)
    if not changed.trained_tensors:
        raise BadInput(f"--train {training.method}: {model.name} has no layer that it could train")
    if training.cross_entropy is not None:
        changed = with_loss(changed, training.cross_entropy)
    name = f"{model.name}-{training.label}" if training.label else model.name
    changed = replace(changed, name=name, remake=None, training=training)
    if method.fine_tunes and model.sequence_length is not None:
        return _on_dataset(changed, dataset_tokens or USUAL_DATASET_TOKENS)
    return changed if dataset_tokens is None else _on_dataset(changed, dataset_tokens)


def _on_dataset(model: Model, tokens: float) -> Model:
    if model.sequence_length is None:
        raise BadInput(
            f"--dataset-tokens: {model.name} reads no sequence of tokens; give --samples or --epochs"
        )
    return replace(
        model,
        tokens_per_epoch=round(tokens),
        samples_per_epoch=max(round(tokens / (model.sample_tokens or 1)), 1),
    )
