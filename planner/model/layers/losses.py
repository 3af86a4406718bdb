"""The cross-entropy loss, by implementation: what each keeps of the logits, the largest tensors of a language
model."""

from __future__ import annotations

from planner.model import Layer
from planner.model.layers.base import Inferred, OneInput, Passes, Shape, Style, positions_of
from planner.model.layers.workload import Kept


class CrossEntropy(OneInput, frozen=True, kw_only=True):
    """The loss of each position over the vocabulary."""

    cross_entropy: bool

    forward = Passes(4, 2)
    backward = Passes(2, 2)
    kernels = (3, 2)
    accepts_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred((1,))

    @classmethod
    def pass_elements(cls, layer: Layer) -> int:
        return layer.input_elements

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        """Logarithms of the probabilities, in single precision; the logits themselves are freed."""
        return Kept(wide=layer.input_elements)

    @classmethod
    def working(cls, layer: Layer, read: int) -> Kept:
        """Gradients of the logarithms and of the logits, both in single precision."""
        return Kept(wide=2 * read)


class HeldCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """The same where the training loop keeps a reference to the logits until the step ends."""

    needs_input = True


class InPlaceCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """Probabilities in single precision, which its gradient overwrites, as Megatron computes it."""

    @classmethod
    def working(cls, layer: Layer, read: int) -> Kept:
        return Kept(elements=read)


class FusedCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """One kernel whose gradient overwrites the logits (flash-attn's)."""

    needs_input = True

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        return Kept(wide=positions_of(layer))

    @classmethod
    def working(cls, layer: Layer, read: int) -> Kept:
        return Kept()
