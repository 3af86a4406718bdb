"""Head training (linear probing): the last layer with weights is trained, all layers before it are frozen."""

from __future__ import annotations

from dataclasses import replace

from planner.model import Layer, MethodSettings, Model, Tensor
from planner.model.methods import BaseFormat, Method, freeze_layer, unquantized_bits


class Head(Method):
    """Head training: all layers before the last one with weights are frozen."""

    name = "head"

    @classmethod
    def apply(cls, model: Model, training: MethodSettings, base: BaseFormat | None) -> Model:
        """Returns the network with only the last layer with weights trained."""
        weighted = [layer for layer in model.layers if layer.macs and (layer.tensors or layer.tied)]
        # A bias layer belongs to the last product.
        last = model.layers[model.layers.index(weighted[-1]) :] if weighted else ()
        trained = {tensor.name for layer in last for tensor in (*layer.tensors, *layer.tied)}
        frozen_bits = unquantized_bits(model)

        def tensor_bits(layer: Layer, tensor: Tensor) -> float | None:
            """Bits per element of a frozen tensor; None for a trained one."""
            return None if tensor.name in trained else frozen_bits

        return replace(model, layers=tuple(freeze_layer(layer, tensor_bits) for layer in model.layers))
