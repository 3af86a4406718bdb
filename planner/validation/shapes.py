"""Transformers by their dimensions: networks that were published as hidden size, layers and heads only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from planner.files.folders import shipped_folder
from planner.files.tomlfile import TomlSource, read
from planner.model import Model
from planner.model.netlist import build_model

Family = Literal["gpt", "llama", "mpt"]
BASES: dict[Family, str] = {"gpt": "gpt2", "llama": "llama2-7b", "mpt": "mpt-125m"}


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A decoder as people write it down. `flash`: attention never writes its scores to memory. `tied`: the
    last product reads the table of embeddings (None: as the family's own models do)."""

    family: Family
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    kv_heads: int | None = None
    inner: int | None = None
    flash: bool = True
    tied: bool | None = None


@lru_cache(maxsize=512)
def transformer(of: Dimensions, tokens: int, name: str = "") -> Model:
    """The model of these dimensions, for samples of so many tokens."""
    base = read(shipped_folder("models") / f"{BASES[of.family]}.toml")
    values: dict[str, Any] = dict(base.data)
    inner = of.inner or 4 * of.hidden
    first, block, *rest = (dict(layer) for layer in values["layers"] if "positions" not in layer)
    first |= {"embedding": of.vocabulary, "features": of.hidden}
    block |= {"repeat": of.layers, "heads": of.heads, "width": of.hidden, "inner": inner}
    if of.family == "llama":
        keys = (of.kv_heads or of.heads) * of.hidden // of.heads
        block |= {"kv_heads": of.kv_heads or of.heads, "queries": of.hidden, "keys": keys}
    else:
        block |= {"qkv": 3 * of.hidden}
    for layer in rest:
        if "linear" in layer:
            layer["linear"] = of.vocabulary
            if of.tied:
                layer["tied"] = first["name"]
    values["layers"] = [first, block, *rest]
    values["sequence_length"] = tokens
    attention = dict(values.get("defaults", {}).get("attention", {}))
    values["defaults"] = {**values.get("defaults", {}), "attention": {**attention, "flash": of.flash}}
    values.pop("base", None)
    path = Path(f"{name or of.family}.toml")
    return build_model(TomlSource(path, base.text, values), values)
