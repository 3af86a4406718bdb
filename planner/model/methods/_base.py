"""The interface of a training method: a transform of the model, which marks what is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from planner.model import Layer, MethodSettings, Model, Tensor

USUAL_DATASET_TOKENS = 10_000_000  # of a fine-tuning job that nobody described
USUAL_EPOCHS = 3


@dataclass(frozen=True, slots=True)
class Base:
    """A width of frozen weights. `bits` per element with the scales of their blocks; dequantizing one element
    takes as long as `dequantize_bytes` of memory traffic."""

    name: str
    bits: float
    dequantize_bytes: float = 0.0


class Method(ABC):
    """One way to train a network. A new one is a file in this package."""

    name: ClassVar[str]
    help: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()  # of rank, targets, base
    bases: ClassVar[tuple[str, ...]] = ()  # that it may have, the usual one first
    fine_tunes: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def apply(cls, model: Model, training: MethodSettings, base: Base | None) -> Model:
        """The network as the method trains it."""


def freeze(layer: Layer, bits: Callable[[Layer, Tensor], float | None]) -> Layer:
    """A layer with the bits of an element of each frozen tensor; None for those that are trained."""
    return replace(
        layer,
        tensors=tuple(replace(tensor, frozen_bits=bits(layer, tensor)) for tensor in layer.tensors),
        tied=tuple(replace(tensor, frozen_bits=bits(layer, tensor)) for tensor in layer.tied),
    )


def unquantized_bits(model: Model) -> float:
    """Bits of frozen weights that are not quantized: 16 for networks over sequences, 32 for the rest."""
    return 32.0 if model.sequence_length is None else 16.0
