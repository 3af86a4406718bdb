"""What a model file may hold, as types: msgspec checks them and names the key that is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct

from planner.model.layers import FILE_KINDS
from planner.model.layers.base import After, Join, Name, Size

Count = Annotated[int, Meta(ge=1, le=10_000)]
Start = Annotated[int, Meta(ge=0, le=10_000)]
Large = Annotated[int, Meta(ge=1, le=10**18)]
Item = dict[str, Any]  # one entry of a list of layers: a layer, a block's use or branches


class Branches(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lists of layers that all read the same layer, then are joined; an empty list passes it on as it is."""

    branches: Annotated[list[list[Item]], Meta(min_length=1)]
    join: Join
    name: Name | None = None
    repeat: Count = 1  # of the whole list of branches
    unit: Name | None = None
    then: list[After] = []


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


# Names of layers without one of their own; `{n}` counts layers of that kind from 0.
Names: Any = defstruct(
    "Names",
    [(kind, Name, f"{kind}{{n}}") for kind in FILE_KINDS],
    frozen=True,
    forbid_unknown_fields=True,
)
# Names of parameter tensors: `{layer}` is the layer (for what follows by `then`, the layer it follows), `{n}`
# counts the kind from 0, `{e}` the experts. Batch norm has one tensor of channels for each name. Of a mixture
# of experts: the router, then up (gate and up where it is gated) and down of an expert.
Tensors: Any = defstruct(
    "Tensors",
    [(key, *kept) for kind in FILE_KINDS.values() for key, kept in kind.tensor_names.items()],
    frozen=True,
    forbid_unknown_fields=True,
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
