"""What a model file may hold, as types: msgspec checks them and names the key that is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Size = Annotated[int, Meta(ge=1, le=10_000_000)]
Window = Annotated[int, Meta(ge=1, le=10_000)]
Pair = Window | Annotated[list[Window], Meta(min_length=2, max_length=2)]
Padding = Literal["same", "valid"] | Annotated[int, Meta(ge=0, le=10_000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
After = Literal["bias", "batch_norm", "relu", "lrn", "dropout"]
Item = dict[str, Any]  # one entry of a list of layers: a layer, a block's use or branches


class Common(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys of every layer: its name, what it reads (the layer before it, if not given), what follows it."""

    name: Name | None = None
    from_: Name | None = field(name="from", default=None)
    then: list[After] = []


class Conv(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    conv: Size  # output channels
    kernel: Pair = 1
    stride: Pair = 1
    padding: Padding = "same"
    groups: Size = 1
    weights: Name | None = None  # name of the tensor, if not the usual


class Depthwise(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    depthwise: Size  # output channels for each input channel
    kernel: Pair = 3
    stride: Pair = 1
    padding: Padding = "same"
    weights: Name | None = None


class Fc(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fc: Size  # output features
    weights: Name | None = None


class MaxPool(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    max_pool: Pair
    stride: Pair | None = None  # the window itself
    padding: Padding = "valid"


class AvgPool(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    avg_pool: Pair
    stride: Pair | None = None
    padding: Padding = "valid"


class GlobalPool(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    global_pool: bool


class BatchNorm(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    batch_norm: bool


class Bias(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    bias: bool


class Relu(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    relu: bool


class Lrn(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    lrn: bool


class Dropout(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    dropout: bool


class Softmax(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    softmax: bool


class Flatten(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    flatten: bool


class Concat(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    concat: Annotated[list[Name], Meta(min_length=2)]
    name: Name | None = None
    then: list[After] = []


class Add(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    add: Annotated[list[Name], Meta(min_length=2)]
    name: Name | None = None
    then: list[After] = []


class Branches(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lists of layers that all read the same layer, then are joined; an empty list passes it on as it is."""

    branches: Annotated[list[list[Item]], Meta(min_length=1)]
    join: Literal["concat", "add"]
    name: Name | None = None
    repeat: Count = 1  # of the whole list of branches
    then: list[After] = []


LAYERS: dict[str, type[Struct]] = {
    "conv": Conv,
    "depthwise": Depthwise,
    "fc": Fc,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "global_pool": GlobalPool,
    "batch_norm": BatchNorm,
    "bias": Bias,
    "relu": Relu,
    "lrn": Lrn,
    "dropout": Dropout,
    "softmax": Softmax,
    "flatten": Flatten,
    "concat": Concat,
    "add": Add,
}


class Block(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Layers that are written once: `"$depth"` stands for the parameter `depth` of a use."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    parameters: list[Name] = []


class Use(Struct, frozen=True, kw_only=True):
    """The use of a block; its other keys are the block's parameters. `{i}` in the name counts the repetitions
    from `first`."""

    block: Name
    name: Name | None = None
    repeat: Count = 1
    first: Count = 1


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


class Tensors(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names of parameter tensors: `{layer}` is the layer (for what follows by `then`, the layer it follows),
    `{n}` counts the kind from 0. Batch norm has one tensor of channels for each name."""

    conv: Name = "{layer}/weights"
    depthwise: Name = "{layer}/weights"
    fc: Name = "{layer}/weights"
    bias: Name = "{layer}/biases"
    batch_norm: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)] = (
        "{layer}/gamma",
        "{layer}/beta",
    )


class File(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model file."""

    layers: Annotated[list[Item], Meta(min_length=1)]
    input: Annotated[list[Size], Meta(min_length=1, max_length=3)]
    base: Name | None = None
    scope: str = ""
    description: str = ""
    source: str = ""
    default_batch: Count = 32
    samples_per_epoch: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    defaults: dict[str, Item] = {}
    names: Names = Names()
    tensors: Tensors = Tensors()
    blocks: dict[str, Block] = {}
