"""Builds the networks of published runs: catalog models by any of their names, transformers from their
dimensions, and models in `data/networks/`."""

from __future__ import annotations

import gzip
import math
import re
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import as_file
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from planner.errors import BadInput
from planner.files.regular_file import shipped_folder
from planner.files.tomlfile import TomlSource, read_toml
from planner.hardware import Device
from planner.memoize import memoize
from planner.model import AttentionShape, Layer, Model, Tensor
from planner.model.catalog import catalog_name, load_model, model_paths, normalize_network_name
from planner.model.layers.base import kind_name
from planner.model.layers.elementwise import BatchNorm
from planner.model.layers.products import Linear
from planner.model.layers.sequences import Attention, Embedding, Positions
from planner.model.methods import USUAL_RANK, apply_training, freeze_layer, method_settings
from planner.model.netlist import build_model, read_model
from planner.validation.row import DATA, load_figures, parse_count, reading_of
from planner.validation.run import Row, has_flash_attention

Family = Literal["gpt", "llama", "mpt"]
BASES: dict[Family, str] = {"gpt": "gpt2", "llama": "llama2-7b", "mpt": "mpt-125m"}
FLAGS = re.compile(r"hidden (?P<hidden>\d+) layers (?P<layers>\d*)(?: heads (?P<heads>\d*))?")
VOCABULARY = re.compile(r"vocab (?P<size>\d+)(?P<thousands>k?)")
LENGTH = re.compile(r"(\d{1,8})(?: enc/.*)?$", re.ASCII)  # "512", "512 enc/~114 dec"
RANK = re.compile(r"LoRA r(\d{1,4})$")
WHOLE_HEAD = ("milabench", "HuggingFace")  # code that applies BERT's vocabulary head to all positions
FROZEN_BITS = 32.0  # of a weight that is not trained
LAUNCH_SHARE = 0.1  # of a kernel that cuDNN launches for one time step, beside one that a framework launches
LONGEST = 10**7  # tokens of a sequence


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Dimensions of a transformer decoder. `flash`: attention keeps its scores on chip. `tied`: whether the
    output layer shares the embedding (None: as usual in its family)."""

    family: Family
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    kv_heads: int | None = None
    inner: int | None = None
    flash: bool = True
    tied: bool | None = None


@memoize
def build_transformer(shape: Dimensions, tokens: int, name: str = "") -> Model:
    """Builds a transformer decoder of this shape, for samples of `tokens` tokens."""
    base = read_toml(shipped_folder("models") / f"{BASES[shape.family]}.toml")
    values: dict[str, Any] = dict(base.data)
    inner = shape.inner or 4 * shape.hidden
    first, block, *rest = (dict(layer) for layer in values["layers"] if kind_name(Positions) not in layer)
    first |= {kind_name(Embedding): shape.vocabulary, "features": shape.hidden}
    block |= {
        "repeat": shape.layers,
        "heads": shape.heads,
        "width": shape.hidden,
        "inner": inner,
    }
    if shape.family == "llama":
        keys = (shape.kv_heads or shape.heads) * shape.hidden // shape.heads
        block |= {
            "kv_heads": shape.kv_heads or shape.heads,
            "queries": shape.hidden,
            "keys": keys,
        }
    else:
        block |= {"qkv": 3 * shape.hidden}
    for layer in rest:
        if kind_name(Linear) in layer:
            layer[kind_name(Linear)] = shape.vocabulary
            if shape.tied:
                layer["tied"] = first["name"]
    values["layers"] = [first, block, *rest]
    values["sequence_length"] = tokens
    kind = kind_name(Attention)
    attention = dict(values.get("defaults", {}).get(kind, {}))
    values["defaults"] = {**values.get("defaults", {}), kind: {**attention, "flash": shape.flash}}
    values.pop("base", None)
    path = Path(f"{name or shape.family}.toml")
    return build_model(TomlSource(path, base.text, values), values)


@memoize
def find_network(name: str) -> Model | None:
    """Looks up a network in the catalog or `data/networks/` by any of its names; None if unknown."""
    known = catalog_name(name)
    if known in model_paths():
        return load_model(known)
    with as_file(DATA / "networks") as folder:
        paths = {path.name.partition(".toml")[0]: path for path in folder.glob("*.toml*")}
        return _follow_recipe(_read_network(known, paths[known])) if known in paths else None


def _follow_recipe(model: Model) -> Model:
    """Network as its recipe runs it: frozen layers, and recurrent layers whose steps are one library call."""
    recurrent = tuple(load_figures("networks")["recurrent"].get(model.name, ()))
    layers = tuple(
        replace(layer, launch_share=LAUNCH_SHARE, host_share=LAUNCH_SHARE)
        if layer.name.startswith(recurrent)
        else layer
        for layer in model.layers
    )
    return _freeze_layers(replace(model, layers=layers) if recurrent else model)


def _freeze_layers(model: Model) -> Model:
    """Freezes the layers that the published recipe of this network does not train."""
    recipe = load_figures("networks")["frozen"].get(model.name)
    if recipe is None:
        return model

    def frozen_bits(layer: Layer, tensor: Tensor) -> float | None:
        """Bits per element of a frozen tensor; None for a trained one."""
        norm = layer.kind == kind_name(BatchNorm) and recipe["batch_norms"]
        return FROZEN_BITS if norm or layer.name.startswith(tuple(recipe["layers"])) else None

    return replace(model, layers=tuple(freeze_layer(layer, frozen_bits) for layer in model.layers))


def _read_network(name: str, path: Path) -> Model:
    """Reads a network of `data/networks/`, from a model file or a configuration."""
    if path.suffix == ".gz":
        text = gzip.decompress(path.read_bytes()).decode()
        values = tomllib.loads(text)
        return build_model(TomlSource(path, text, values), values, name)

    if "config" in read_toml(path).data:
        return load_model(str(path))

    def find_base(name: str) -> Path | None:
        """Path of the model file that a network extends; None if there is none."""
        beside = path.with_name(f"{name}.toml")
        return beside if beside.is_file() else model_paths().get(name)

    return read_model(path, find_base)


def network_of(row: Row, inferred: list[str]) -> Model | str:
    """Network that a row trains, with adapters if it uses them, or the reason why it is unknown."""
    model = _base_network(row, inferred)
    if isinstance(model, str) or row["arch"] != "llm-lora":
        return model
    rank = RANK.search(row["model"])
    if rank is None:
        inferred.append(f"rank {USUAL_RANK}")
    return apply_training(model, method_settings("lora", rank=int(rank[1]) if rank else USUAL_RANK))


def _base_network(row: Row, inferred: list[str]) -> Model | str:
    """Network of a row at its sequence length, before adapters, or the reason why it is unknown."""
    dimensions = _transformer_dimensions(row, inferred)
    if dimensions is not None:
        if not row["seq_or_image"].isdecimal():
            return "no sequence length is stated"
        try:
            return build_transformer(dimensions, min(int(row["seq_or_image"]), LONGEST), row["model"])
        except BadInput as error:
            return f"its dimensions give no network: {error}"
    variants = (row["source_id"], row.get("task", "").partition(" ")[0])
    names = (*(f"{row['model']}, {variant}" for variant in variants), row["model"])
    name = next((name for name in names if find_network(name) is not None), None)
    if name is None:
        return "the network is not in the catalog"
    model = find_network(name)
    assert model is not None
    if model.sequence_length is None:
        return model
    length = _sequence_length(row, inferred)
    if length is None:
        return "no sequence length is stated"
    headless = model.name.startswith("bert") and not row["framework"].startswith(WHOLE_HEAD)
    return _network_at_length(name, length, headless, has_flash_attention(row))


def _sequence_length(row: Row, inferred: list[str]) -> int | None:
    """Tokens per sequence, as a number in the row or looked up from its words; None if not stated."""
    text = row["seq_or_image"]
    if stated := reading_of(row, "stated_lengths", text):
        return int(stated)
    if known := load_figures("reading")["lengths"].get(text):
        if isinstance(known, dict):
            batch = (
                parse_count(row["micro_batch"]) or 1
            )  # padded to its longest: Blom's quantile of the maximum
            largest = NormalDist().inv_cdf((batch - 0.375) / (batch + 0.25))
            known = round(known["median"] * math.exp(known["sigma"] * largest))
        inferred.append(f"{known} tokens per sequence")
        return int(known)
    digits = LENGTH.match(text)
    length = int(digits[1]) if digits else 0
    return length if 0 < length <= LONGEST else None


@memoize  # hundreds of rows ran tens of networks
def _network_at_length(name: str, tokens: int, headless: bool, flash: bool) -> Model:
    """Network with `tokens` tokens per sequence; cached. `headless`: without BERT's vocabulary head, which
    fine-tuning lacks; NVIDIA's and DeepSpeed's pre-training applies it to masked positions alone (15%, one
    percent of the arithmetic)."""
    model = find_network(name)
    assert model is not None
    layers = model.with_sequence_length(tokens).layers
    if headless:
        layers = tuple(
            layer for layer in layers if not layer.name.startswith("cls.predictions") and layer.name != "loss"
        )
    layers = tuple(
        replace(layer, detail=replace(layer.detail, flash=flash and layer.detail.flash))
        if isinstance(layer.detail, AttentionShape)
        else layer
        for layer in layers
    )
    return replace(model.with_sequence_length(tokens), layers=layers)


def _transformer_dimensions(row: Row, inferred: list[str]) -> Dimensions | None:
    """Dimensions of a row's decoder, from its flags or by the network's name; None if unknown."""
    if row["arch"] != "llm":
        return None
    flash = has_flash_attention(row)
    if stated := FLAGS.search(row["flags"]):
        hidden, size = int(stated["hidden"]), VOCABULARY.search(row["flags"])
        vocabulary = int(size["size"]) * (1000 if size["thousands"] else 1) if size else 51200
        vocabulary = -(-vocabulary // 128) * 128
        layers = int(stated["layers"] or 0)
        if not layers and row["params_total"]:  # a layer has twelve times the square of its width
            layers = round((float(row["params_total"]) - vocabulary * hidden) / (12 * hidden**2))
            inferred.append(f"{layers} layers")
        heads = int(stated["heads"] or 0) or min(
            (n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(hidden / n - 128)
        )
        return Dimensions("gpt", hidden, layers, heads, vocabulary, flash=flash) if layers > 0 else None
    value = _dimensions_by_name().get(normalize_network_name(row["model"]))
    return None if value is None else Dimensions(**value, flash=flash)


@memoize
def _dimensions_by_name() -> dict[str, dict[str, Any]]:
    """Dimensions of networks, by normalized name; cached."""
    return {normalize_network_name(name): of for name, of in load_figures("networks")["models"].items()}


@memoize
def find_published_device(name: str) -> Device | None:
    """GPU with this name from the catalog, else from published runs' devices; None if unknown."""
    entry = _catalog_devices().get(name) or load_figures("reading")["other_devices"].get(name)
    if entry is None or "tflops" not in entry:
        return None
    return Device(
        name,
        "gpu",
        {format: value * 1e12 for format, value in entry["tflops"].items()},
        memory_bytes=float(entry.get("memory_bytes", entry.get("memory_gib", 0) * 2**30)),
        memory_bytes_per_s=entry["memory_gbyte_per_s"] * 1e9,
        memory_kind=entry.get("memory_kind"),
        matmul_flops={format: value * 1e12 for format, value in entry.get("matmul_tflops", {}).items()},
        matmul_source=entry.get("matmul_source", ""),
        year=entry.get("year"),
        vendor=entry.get("vendor", ""),
    )


@memoize
def _catalog_devices() -> dict[str, Any]:
    """Entries of the device catalog, by name; cached."""
    devices: dict[str, Any] = read_toml(shipped_folder("hardware") / "devices.toml").data["devices"]
    return devices
