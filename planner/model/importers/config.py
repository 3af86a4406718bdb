"""A Hugging Face `config.json` with checked keys, and the pieces of model files that families use."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.regular_file import opened
from planner.model.layers import Kind, kind_name
from planner.model.layers.elementwise import Bias, Gelu, LayerNorm, Relu, RmsNorm, Sigmoid, Silu, Tanh
from planner.model.layers.losses import CrossEntropy
from planner.model.layers.products import Conv, Linear, Patches
from planner.model.layers.sequences import Embedding, Positions

LARGEST_FILE_BYTES = 10_000_000
LARGEST = 10_000_000
MOST_LAYERS = 2_000


class Config:
    """The values of a configuration. Every question gives its keys, the usual one first: families differ."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values
        self.family = ""
        self.notes: list[str] = []

    def error(self, message: str) -> BadInput:
        return BadInput(f"{self.path}: {message}")

    def number(self, *keys: str, default: int | None = None, most: int = LARGEST) -> int:
        """A whole number of at least one."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise self.error(f"{key}: {_shown(value)}; it is a whole number from 1 to {most:,}")
            return value
        if default is None:
            raise self.error(f"the key {keys[0]!r} is missing; a {self.family} network cannot do without it")
        return default

    def count(self, *keys: str) -> int:
        """How many layers."""
        return self.number(*keys, most=MOST_LAYERS)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{key}: {_shown(value)}; it is true or false")
        return value

    def share(self, *keys: str) -> bool:
        """Whether a share, of dropout, is above zero."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
                    raise self.error(f"{key}: {_shown(value)}; it is a number from 0 to 1")
                return value > 0
        return False

    def word(self, *keys: str, default: str = "") -> str:
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if not isinstance(value, str):
                    raise self.error(f"{key}: {_shown(value)}; it is a text")
                return value
        return default

    def activation(self, *keys: str, default: str = kind_name(Gelu)) -> str:
        """The kind of layer of an activation: relu, gelu, silu or tanh."""
        word = self.word(*keys, default=default).lower()
        known = {kind_name(kind): kind_name(kind) for kind in (Silu, Relu, Tanh, Sigmoid)}
        gelu = kind_name(Gelu)
        activation = kind_name(Silu) if word == "swish" else known.get(word) or (gelu if gelu in word else "")
        if not activation:
            self.notes.append(f"the activation {word[:40]!r} is not known and counted as gelu")
        return activation or gelu

    def heads(self, width: int, *keys: str) -> int:
        heads = self.number(*(keys or ("num_attention_heads",)))
        if width % heads and "head_dim" not in self.values:
            raise self.error(f"{width} features cannot be divided among {heads} heads")
        return heads


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in a file."""
    try:
        with opened(path) as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
        if len(data) > LARGEST_FILE_BYTES:
            raise BadInput(f"{path}: larger than 10 MB; a config.json is not")
        values = json.loads(data)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}; is the file whole?") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8 (byte {error.start})") from error
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{path}: not JSON that a configuration has: {error}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path}: a configuration is one JSON object, in braces")
    return values


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


Item = dict[str, Any]

TORCH_NAMES: dict[str, Any] = {
    **{kind_name(kind): "{layer}.weight" for kind in (Conv, Linear, Patches, Embedding, Positions, RmsNorm)},
    kind_name(Bias): "{layer}.bias",
    kind_name(LayerNorm): ["{layer}.weight", "{layer}.bias"],
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


def layer(kind: type[Kind], value: Any, **keys: Any) -> Item:
    """A layer with the keys that are given; `from_` is `from`."""
    return {
        kind_name(kind): value,
        **{key.rstrip("_"): given for key, given in keys.items() if given is not None},
    }


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
        Linear,
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
    return layer(CrossEntropy, True, name="loss")
