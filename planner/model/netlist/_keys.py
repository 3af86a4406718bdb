"""The keys that each kind of layer may have, as types: msgspec checks them and names the key that is
wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Size = Annotated[int, Meta(ge=1, le=10_000_000)]
Window = Annotated[int, Meta(ge=1, le=10_000)]
Pair = Window | Annotated[list[Window], Meta(min_length=2, max_length=2)]
Padding = Literal["same", "valid"] | Annotated[int, Meta(ge=0, le=10_000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Start = Annotated[int, Meta(ge=0, le=10_000)]
Large = Annotated[int, Meta(ge=1, le=10**18)]
After = Literal["bias", "batch_norm", "relu", "gelu", "silu", "sigmoid", "tanh", "lrn", "dropout"]
Item = dict[str, Any]  # one entry of a list of layers: a layer, a block's use or branches


class Common(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys of every layer: its name, what it reads (the layer before it, if not given), what follows it."""

    name: Name | None = None
    from_: Name | None = field(name="from", default=None)
    unit: Name | None = None  # the repeated unit that it is part of, where no block says so
    then: list[After] = []


class Conv(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    conv: Size  # output channels
    kernel: Pair = 1
    stride: Pair = 1
    padding: Padding = "same"
    groups: Size = 1
    bias: bool = False  # added by the same kernel; a bias that is a layer of its own stands in `then`
    weights: Name | None = None  # name of the tensor, if not the usual


class Depthwise(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    depthwise: Size  # output channels for each input channel
    kernel: Pair = 3
    stride: Pair = 1
    padding: Padding = "same"
    bias: bool = False
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
    keep: bool = False  # one pixel is left instead of a vector


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
    unit: Name | None = None
    then: list[After] = []


class Multiply(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    multiply: Annotated[list[Name], Meta(min_length=2)]
    name: Name | None = None
    unit: Name | None = None
    then: list[After] = []


class Linear(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fully connected layer over the last axis: of each position, of each pixel."""

    linear: Size  # output features
    bias: bool = True
    transposed: bool = False  # weights are (inputs, outputs) whatever the layout
    tied: Name | None = None  # the layer whose tensor it reads as its weights
    weights: Name | None = None
    biases: Name | None = None


class Patches(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An image cut into squares, each of which becomes one position of a sequence."""

    patches: Size  # features
    size: Pair
    bias: bool = True
    weights: Name | None = None


class Embedding(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    embedding: Size  # rows of the table: the vocabulary
    features: Size
    tied: Name | None = None
    weights: Name | None = None


class Positions(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A learned vector for each position, added to what is read."""

    positions: Size  # rows of the table: the longest sequence
    batched: bool = False  # the tensor has a first axis of one
    weights: Name | None = None


class ClassToken(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    class_token: bool
    weights: Name | None = None


class LayerNorm(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    layer_norm: bool
    bias: bool = True


class RmsNorm(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rms_norm: bool


class Scale(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A learned factor for each feature."""

    scale: bool
    weights: Name | None = None


class AttentionLayer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Reads queries, keys and values: three layers, or one that gives all three side by side."""

    attention: Annotated[list[Name], Meta(min_length=1, max_length=3)]
    heads: Size
    kv_heads: Size | None = None  # as many
    head_size: Size | None = None  # the queries' features over the heads
    causal: bool = False
    window: Size | None = None
    flash: bool = True
    dropout: bool = False
    buckets: Annotated[int, Meta(ge=0, le=10_000_000)] = 0  # of a learned bias by distance, for each head
    name: Name | None = None
    unit: Name | None = None
    then: list[After] = []


class Moe(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    moe: Size  # experts
    top_k: Size
    features: Size  # inside an expert
    gated: bool = True
    shared_features: Annotated[int, Meta(ge=0, le=10_000_000)] = (
        0  # of all experts that everything goes through
    )


class Take(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    take: Literal[1]  # the first position of a sequence


class Rotary(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rotary: bool


class Gelu(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    gelu: bool


class Silu(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    silu: bool


class Sigmoid(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sigmoid: bool


class Tanh(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tanh: bool


class CrossEntropy(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cross_entropy: bool


class View(Common, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is read, or a part of it, in another shape: nothing is computed. Importers write it."""

    view: Annotated[list[Size], Meta(min_length=1, max_length=6)]


class Product(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Matrix products of two layers' outputs. Importers write it, where attention is not recognised."""

    product: Annotated[list[Name], Meta(min_length=2, max_length=2)]
    shape: Annotated[list[Size], Meta(min_length=1, max_length=6)]
    depth: Size  # that is summed over
    name: Name | None = None
    unit: Name | None = None
    then: list[After] = []


class Other(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operator by its name: it reads layers, writes a shape, and may have tensors. Importers write it."""

    other: Name
    reads: Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
    shape: Annotated[list[Size], Meta(min_length=1, max_length=6)]
    tensors: dict[Name, Annotated[list[Size], Meta(max_length=6)]] = {}
    name: Name | None = None
    unit: Name | None = None
    then: list[After] = []


class Add(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    add: Annotated[list[Name], Meta(min_length=2)]
    name: Name | None = None
    unit: Name | None = None
    then: list[After] = []


class Branches(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lists of layers that all read the same layer, then are joined; an empty list passes it on as it is."""

    branches: Annotated[list[list[Item]], Meta(min_length=1)]
    join: Literal["concat", "add"]
    name: Name | None = None
    repeat: Count = 1  # of the whole list of branches
    unit: Name | None = None
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
    "multiply": Multiply,
    "linear": Linear,
    "patches": Patches,
    "embedding": Embedding,
    "positions": Positions,
    "class_token": ClassToken,
    "layer_norm": LayerNorm,
    "rms_norm": RmsNorm,
    "scale": Scale,
    "attention": AttentionLayer,
    "moe": Moe,
    "take": Take,
    "rotary": Rotary,
    "gelu": Gelu,
    "silu": Silu,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "cross_entropy": CrossEntropy,
    "view": View,
    "product": Product,
    "other": Other,
}
ALSO_KEYS = ("bias", "dropout")  # kinds that are keys of other kinds, too
READ_BY_NAME = {  # kinds that list the layers that they read, and the key
    "concat": "concat",
    "add": "add",
    "multiply": "multiply",
    "attention": "attention",
    "product": "product",
    "other": "reads",
}
