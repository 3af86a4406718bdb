"""Training methods as transforms of the model: full training here, lora, qlora and head in a file each.

    trained_by(load_model("llama3-8b"), training_of("qlora", rank=16))

A method marks frozen tensors (`Tensor.frozen_bits`) and adds the layers of adapters. Compute, memory and
communication follow from these marks; no code outside asks which method was applied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, ClassVar

from planner.errors import BadInput, unknown_name
from planner.memoize import memoize
from planner.model import Layer, MethodSettings, Model, Tensor
from planner.model.layers import replace_loss

USUAL_DATASET_TOKENS = 10_000_000  # of a fine-tuning job without --dataset-tokens
USUAL_EPOCHS = 3
USUAL_RANK = 16
HIGHEST_RANK = 65_536  # above every dimension of a network
TARGETS = ("all-linear", "attention")  # of adapters


@dataclass(frozen=True, slots=True)
class BaseFormat:
    """A number format of frozen weights.

    `bits` per element include the scales of its blocks; dequantizing an element takes as long as
    `dequantize_bytes` of memory traffic.
    """

    name: str
    bits: float
    dequantize_bytes: float = 0.0


class Method(ABC):
    """A training method: its class lives in the module of its name."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()  # of rank, targets, base, dropout
    bases: ClassVar[tuple[str, ...]] = ()  # widths of frozen weights, the default first
    fine_tunes: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def apply(cls, model: Model, training: MethodSettings, base: BaseFormat | None) -> Model:
        """Returns the network with frozen tensors marked and adapters added."""


def freeze_layer(layer: Layer, bits: Callable[[Layer, Tensor], float | None]) -> Layer:
    """Returns the layer with frozen tensors; `bits` gives the bits per element of each, None to train it."""
    return replace(
        layer,
        tensors=tuple(replace(tensor, frozen_bits=bits(layer, tensor)) for tensor in layer.tensors),
        tied=tuple(replace(tensor, frozen_bits=bits(layer, tensor)) for tensor in layer.tied),
    )


def unquantized_bits(model: Model) -> float:
    """Bits per element of unquantized frozen weights: 16 in networks over sequences, else 32."""
    return 32.0 if model.sequence_length is None else 16.0


class Full(Method):
    """Train every parameter."""

    name = "full"
    fine_tunes = False

    @classmethod
    def apply(cls, model: Model, training: MethodSettings, base: BaseFormat | None) -> Model:
        """Returns the network unchanged."""
        return model


class _Methods(Mapping[str, type[Method]]):
    """Training methods by name; all but full training are imported on lookup."""

    def __getitem__(self, name: str) -> type[Method]:
        if name == Full.name:
            return Full
        if name not in tuple(self):
            raise KeyError(name)
        members = vars(import_module(f"{__name__}.{name}")).values()
        return next(kind for kind in members if isinstance(kind, type) and vars(kind).get("name") == name)

    def __iter__(self) -> Iterator[str]:
        order = ("full", "lora", "qlora", "head")  # in messages; others follow
        files = {entry.name for entry in iter_modules(__path__)}
        return iter([*order, *sorted(files - set(order))])

    def __len__(self) -> int:
        return len(list(iter(self)))


METHODS = _Methods()
# Time to dequantize comes from measured runs (docs/fine-tuning.md). int8: LLM.int8(), with scales of rows;
# nf4: bitsandbytes with double quantization; int4: GPTQ in groups of 128.
BASES = {
    base.name: base
    for base in (
        BaseFormat("bf16", 16),
        BaseFormat("int8", 8.1, dequantize_bytes=16.0),
        BaseFormat("nf4", 4.127, dequantize_bytes=11.0),
        BaseFormat("int4", 4.25, dequantize_bytes=16.5),
    )
}


def method_settings(
    method: str | None = None,
    *,
    rank: int | None = None,
    targets: str | None = None,
    base: str | None = None,
    dropout: float | None = None,
    optimizer: str | None = None,
    **memory: Any,
) -> MethodSettings:
    """Settings of a training method, defaults filled in; raises BadInput for one the method does not have."""
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
    for option, value in (("rank", rank), ("targets", targets), ("base", base), ("dropout", dropout)):
        if value is not None and option not in kind.takes:
            raise BadInput(f"--{option} {value} is no setting of --train {name}; take --train lora or qlora")
    if rank is not None and not 1 <= rank <= HIGHEST_RANK:
        raise BadInput(f"--rank is {str(rank)[:20]}; it must be 1 to {HIGHEST_RANK:,}")
    if dropout is not None and not 0 <= dropout < 1:
        raise BadInput(f"--dropout is {dropout:g}; it is a share of 0 to below 1, as 0.05")
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
        dropout or None,
        optimizer,
        float(USUAL_EPOCHS) if kind.fine_tunes else None,
        0.0 if chosen is None else chosen.dequantize_bytes,
        **memory,
    )


@memoize
def apply_training(model: Model, training: MethodSettings, dataset_tokens: float | None = None) -> Model:
    """Returns the model with frozen tensors, adapters and dataset size of a training method.

    Full training leaves the layers unchanged.
    """
    if training == MethodSettings():
        return model if dataset_tokens is None else _set_dataset(model, dataset_tokens)
    method = METHODS[training.method]
    changed = method.apply(model, training, BASES[training.base] if training.base else None)
    if not changed.trained_tensors:
        raise BadInput(f"--train {training.method}: {model.name} has no layer that it could train")
    if training.cross_entropy is not None:
        changed = replace_loss(changed, training.cross_entropy)
    name = f"{model.name}-{training.label}" if training.label else model.name
    changed = replace(changed, name=name, remake=None, training=training)
    if method.fine_tunes and model.sequence_length is not None:
        return _set_dataset(changed, dataset_tokens or USUAL_DATASET_TOKENS)
    return changed if dataset_tokens is None else _set_dataset(changed, dataset_tokens)


def _set_dataset(model: Model, tokens: float) -> Model:
    """Returns the model with an epoch of this many tokens; raises BadInput for image models."""
    if model.sequence_length is None:
        raise BadInput(
            f"--dataset-tokens: {model.name} reads no sequence of tokens; give --samples or --epochs"
        )
    return replace(
        model,
        tokens_per_epoch=round(tokens),
        samples_per_epoch=max(round(tokens / (model.sample_tokens or 1)), 1),
    )
