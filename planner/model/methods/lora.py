"""LoRA (Hu et al. 2021): frozen weights W, and trained adapters B A of a low rank beside them.

The output of a target layer, W x, becomes W x + B (A x) with A (rank x inputs) and B (outputs x rank). With
dropout A reads a copy of x, which is saved for each target together with its mask.
Targets are the linear layers of the model's blocks: those around attention, or all of them. Layers
outside of the blocks (embeddings, head) get none.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

from planner.errors import BadInput
from planner.model import Layer, MethodSettings, Model, Tensor
from planner.model.methods import BaseFormat, Method, freeze_layer, unquantized_bits

LINEAR = "linear"  # kind of the layers that get adapters
ATTENTION = "attention"
LAUNCH_SHARE = 0.1  # of adapters' kernels, which are short (docs/fine-tuning.md)


class Lora(Method):
    """LoRA: frozen weights with trained low-rank adapters."""

    name = "lora"
    takes = frozenset({"rank", "targets", "base", "dropout"})
    bases: ClassVar[tuple[str, ...]] = ("bf16", "int8")

    @classmethod
    def apply(cls, model: Model, training: MethodSettings, base: BaseFormat | None) -> Model:
        """Returns the network with frozen weights and adapters at the target layers."""
        assert training.rank
        assert training.targets
        assert base
        targets = target_layers(model, training.targets)
        whole = unquantized_bits(model)

        def tensor_bits(layer: Layer, tensor: Tensor) -> float:
            """Bits per element of a frozen tensor; linear layers of blocks are quantized."""
            # Quantization libraries convert the linear layers of blocks alone.
            quantized = layer.block is not None and layer.macs and len(tensor.shape) > 1
            return min(base.bits, whole) if quantized else whole

        layers: list[Layer] = []
        renamed: dict[str, str] = {}  # from a target to the sum with its adapter
        for layer in model.layers:
            reads = tuple(renamed.get(name, name) for name in layer.inputs)
            frozen = replace(freeze_layer(layer, tensor_bits), inputs=reads)
            layers.append(frozen)
            if layer.name in targets:
                added = _adapter_layers(frozen, training.rank, training.dropout is not None)
                layers += added
                renamed[layer.name] = added[-1].name
        return replace(model, layers=tuple(layers))


def target_layers(model: Model, targets: str) -> frozenset[str]:
    """Names of the layers that get adapters."""
    linear = {layer.name: layer for layer in model.layers if layer.kind == LINEAR and layer.block is not None}
    names = set(linear) if targets == "all-linear" else _linear_layers_at_attention(model, linear)
    if not names:
        raise BadInput(
            f"--targets {targets}: {model.name} has no linear layer "
            f"{'around attention ' if targets == ATTENTION else ''}in its blocks; take --train head or full"
        )
    return frozenset(names)


def _linear_layers_at_attention(model: Model, linear: dict[str, Layer]) -> set[str]:
    """Names of linear layers that feed or read attention, also through layers without weights."""
    layers = {layer.name: layer for layer in model.layers}
    present: set[str] = set()
    behind: set[str] = set()  # layers that read attention
    for layer in model.layers:
        if layer.kind == ATTENTION:
            behind.add(layer.name)
            waiting = list(layer.inputs)
            while waiting:
                source = layers[waiting.pop()]
                if source.name in linear:
                    present.add(source.name)
                elif source.block == layer.block and not source.macs:
                    waiting += source.inputs
        elif not behind.isdisjoint(layer.inputs):
            if layer.name in linear:
                present.add(layer.name)
            elif len(layer.inputs) == 1 and not layer.macs:
                behind.add(layer.name)
    return present


def _adapter_layers(target: Layer, rank: int, has_dropout: bool) -> list[Layer]:
    """Layers of an adapter: optional dropout, A, B, and the sum with the target's output."""
    *outer, outputs = target.output_shape
    positions = target.output_elements // outputs
    inputs = target.input_elements // positions
    make = partial(Layer, block=target.block, scope=target.scope, launch_share=LAUNCH_SHARE)

    def make_linear(matrix: str, layer_inputs: tuple[str, ...], inputs: int, outputs: int) -> Layer:
        """Linear layer of the adapter matrix A or B."""
        weight = Tensor(f"{target.name}.lora_{matrix}.weight", (outputs, inputs))
        return make(
            f"{target.name}/lora_{matrix.lower()}",
            LINEAR,
            layer_inputs,
            (*outer, outputs),
            (weight,),
            macs=positions * weight.elements,
            input_elements=positions * inputs,
        )

    layers, reads, out = [], target.inputs, target.output_shape
    if has_dropout:
        name, read = f"{target.name}/lora_dropout", target.input_elements
        layers.append(make(name, "dropout", reads, (*outer, inputs), input_elements=read))
        reads = (name,)
    down = make_linear("A", reads, inputs, rank)
    up = make_linear("B", (down.name,), rank, outputs)
    both = (target.name, up.name)
    total = make(f"{target.name}/lora_sum", "add", both, out, input_elements=2 * target.output_elements)
    return [*layers, down, up, total]
