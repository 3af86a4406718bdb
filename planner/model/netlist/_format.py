"""What a model file may hold, as types: msgspec checks them and names the key that is wrong."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from planner.model.netlist._keys import (
    ALSO_KEYS,
    LAYERS,
    READ_BY_NAME,
    Branches,
    Count,
    Item,
    Large,
    Name,
    Size,
    Start,
)

__all__ = [
    "ALSO_KEYS",
    "LAYERS",
    "READ_BY_NAME",
    "BlockForm",
    "BlockUse",
    "Branches",
    "File",
    "Item",
    "Names",
    "Tensors",
]


class BlockForm(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Layers that are written once: `"$depth"` stands for the parameter `depth` of a use."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    parameters: list[Name] = []


class BlockUse(Struct, frozen=True, kw_only=True):
    """The use of a block; its other keys are the block's parameters. `{i}` in the name counts the repetitions
    from `first`."""

    block: Name
    name: Name | None = None
    repeat: Count = 1
    first: Start = 1


class Names(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names of layers without one of their own; `{n}` counts layers of that kind from 0."""

    conv: Name = "conv{n}"
    depthwise: Name = "depthwise{n}"
    fc: Name = "fc{n}"
    max_pool: Name = "max_pool{n}"
    avg_pool: Name = "avg_pool{n}"
    global_pool: Name = "global_pool{n}"
    batch_norm: Name = "batch_norm{n}"
    bias: Name = "bias{n}"
    relu: Name = "relu{n}"
    lrn: Name = "lrn{n}"
    dropout: Name = "dropout{n}"
    softmax: Name = "softmax{n}"
    flatten: Name = "flatten{n}"
    concat: Name = "concat{n}"
    add: Name = "add{n}"
    multiply: Name = "multiply{n}"
    linear: Name = "linear{n}"
    patches: Name = "patches{n}"
    embedding: Name = "embedding{n}"
    positions: Name = "positions{n}"
    class_token: Name = "class_token{n}"
    layer_norm: Name = "layer_norm{n}"
    rms_norm: Name = "rms_norm{n}"
    scale: Name = "scale{n}"
    attention: Name = "attention{n}"
    moe: Name = "moe{n}"
    take: Name = "take{n}"
    rotary: Name = "rotary{n}"
    gelu: Name = "gelu{n}"
    silu: Name = "silu{n}"
    sigmoid: Name = "sigmoid{n}"
    tanh: Name = "tanh{n}"
    cross_entropy: Name = "cross_entropy{n}"
    view: Name = "view{n}"
    product: Name = "product{n}"
    other: Name = "other{n}"


class Tensors(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names of parameter tensors: `{layer}` is the layer (for what follows by `then`, the layer it follows),
    `{n}` counts the kind from 0, `{e}` the experts. Batch norm has one tensor of channels for each name. Of a
    mixture of experts: the router, then up (gate and up where it is gated) and down of an expert."""

    conv: Name = "{layer}/weights"
    depthwise: Name = "{layer}/weights"
    fc: Name = "{layer}/weights"
    linear: Name = "{layer}/weights"
    patches: Name = "{layer}/weights"
    embedding: Name = "{layer}/weights"
    positions: Name = "{layer}/weights"
    class_token: Name = "{layer}/weights"
    scale: Name = "{layer}/weights"
    attention: Name = "{layer}/distances"
    bias: Name = "{layer}/biases"
    batch_norm: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)] = (
        "{layer}/gamma",
        "{layer}/beta",
    )
    layer_norm: tuple[Name, Name] = ("{layer}/gamma", "{layer}/beta")
    rms_norm: Name = "{layer}/gamma"
    router: Name = "{layer}/router"
    experts: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=3)] = (
        "{layer}/expert{e}/gate",
        "{layer}/expert{e}/up",
        "{layer}/expert{e}/down",
    )
    shared: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=3)] = (
        "{layer}/shared/gate",
        "{layer}/shared/up",
        "{layer}/shared/down",
    )


class File(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model file."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    input: Annotated[list[Size], Meta(min_length=1, max_length=3)] | None = None  # or a sequence
    sequence_length: Size | None = None  # of tokens, where a sample is text
    target_length: Size | None = None  # of the second text of a sample, the layer `targets`
    base: Name | None = None
    scope: str = ""
    separator: Literal["/", "."] = "/"  # between the name of a block's use and a name inside it
    layout: Literal["tensorflow", "torch"] = "tensorflow"  # of weights: outputs last or first
    description: str = ""
    source: str = ""
    default_batch: Count = 32
    default_precision: Literal["fp32", "tf32", "fp16", "bf16"] = "fp32"
    samples_per_epoch: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    tokens_per_epoch: Large | None = None
    defaults: dict[str, Item] = {}
    names: Names = Names()
    tensors: Tensors = Tensors()
    blocks: dict[str, BlockForm] = {}
