"""Pieces of model files that importers put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Item = dict[str, Any]

TORCH_NAMES = {
    "conv": "{layer}.weight",
    "linear": "{layer}.weight",
    "patches": "{layer}.weight",
    "embedding": "{layer}.weight",
    "positions": "{layer}.weight",
    "bias": "{layer}.bias",
    "layer_norm": ["{layer}.weight", "{layer}.bias"],
    "rms_norm": "{layer}.weight",
}


@dataclass(frozen=True, slots=True)
class Network:
    """What a family gives: the list of layers, its blocks, and what it names otherwise than PyTorch."""

    layers: list[Item]
    blocks: dict[str, list[Item]]
    tensors: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Item] = field(default_factory=dict)
    input: list[int] | None = None  # an image; text otherwise
    target_length: int | None = None


def layer(kind: str, value: Any, **keys: Any) -> Item:
    """A layer with the keys that are given; `from_` is `from`."""
    return {kind: value, **{key.rstrip("_"): given for key, given in keys.items() if given is not None}}


def linear(
    outputs: int,
    name: str,
    source: str | None = None,
    *,
    bias: bool = True,
    transposed: bool = False,
    tied: str | None = None,
    then: list[str] | None = None,
    dropout: bool = False,
) -> Item:
    after = [*(then or []), *(["dropout"] if dropout else [])]
    return layer(
        "linear",
        outputs,
        bias=None if bias else False,
        transposed=transposed or None,
        tied=tied,
        from_=source,
        name=name,
        then=after or None,
    )


def repeated(name: str, times: int, block: str = "layer", **parameters: Any) -> Item:
    return {"block": block, "name": f"{name}.{{i}}", "first": 0, "repeat": times, **parameters}


def loss() -> Item:
    return layer("cross_entropy", True, name="loss")
