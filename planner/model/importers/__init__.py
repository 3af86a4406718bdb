"""Importers of networks from Hugging Face configurations, PyTorch modules and ONNX files.

Each returns the values of a model file, which `planner.model.netlist` reads and `format_model_file` writes,
and notes on what it did not recognize. Only their own importers load torch and onnx.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import BadInput
from planner.files.regular_file import expand_path
from planner.files.tomlfile import TomlSource, toml_key, toml_value
from planner.model import Model
from planner.model.catalog import IMPORTED
from planner.model.netlist import build_model

# Names of tensors of PyTorch's modules, by kind of layer.
TORCH_NAMES: dict[str, Any] = {
    **dict.fromkeys(
        ("conv", "conv1d", "linear", "grouped_linear", "patches", "embedding", "positions"), "{layer}.weight"
    ),
    "rms_norm": "{layer}.weight",
    "bias": "{layer}.bias",
    "layer_norm": ["{layer}.weight", "{layer}.bias"],
    "sinks": "{layer}.sinks",
}


@contextmanager
def convert_exceptions(message: str, remedy: str = "") -> Iterator[None]:
    """Context manager that converts other exceptions to a one-line BadInput beginning with `message`."""
    try:
        yield
    except (BadInput, MemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise BadInput(f"{message}: {what}{remedy}") from error


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """An imported network: the values of its model file, the model, and notes for the user."""

    values: dict[str, Any]
    model: Model
    notes: tuple[str, ...] = ()


def import_file(
    path: Path, *, tokens: int | None = None, shapes: dict[str, int] | None = None
) -> ImportedModel:
    """Imports a network from a Hugging Face file or folder, or from an ONNX file.

    `tokens` per sample override the file's; `shapes` are sizes for the open axes of an ONNX file.
    """
    if path.suffix == ".onnx":
        from planner.model.importers.onnx_file import import_onnx

        return import_onnx(path, shapes or {})
    from planner.model.importers.hugging_face import import_config

    return import_config(path, tokens)


def build_imported(path: Path, values: dict[str, Any], name: str, notes: list[str]) -> ImportedModel:
    """Builds a model from imported values of a model file; errors name the file that was imported."""
    return ImportedModel(values, build_model(TomlSource(path, "", values), values, name), tuple(notes))


LARGEST_INPUT = 2**31  # elements
_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The flags of `planner models import`."""

    input: str | None = None
    input_ids: str | None = None
    tokens: int | None = None
    axes: tuple[str, ...] = ()
    hooks: bool = False


def import_named(source: str, options: ImportOptions) -> ImportedModel:
    """Imports the network that a user names: a file, a folder, or `module:function`."""
    from planner.model.catalog import find_hub_config, is_hub_name

    path = find_hub_config(source) if is_hub_name(source) else expand_path(source)
    source = str(path) if is_hub_name(source) else source
    if path.is_dir() or source.endswith(IMPORTED):
        if not path.exists():
            raise BadInput(f"there is no {source}")
        for flag, given in (
            ("--input", options.input),
            ("--input-ids", options.input_ids),
            ("--hooks", options.hooks),
        ):
            if given:
                raise BadInput(f"{flag} is for a module of PyTorch; {source} says itself what it reads")
        if options.axes and path.suffix != ".onnx":
            raise BadInput(f"--axis is for the open axes of an ONNX file, not for {source}")
        if options.tokens and path.suffix == ".onnx":
            raise BadInput("--seq-length is for a config.json; an ONNX file has --axis NAME=SIZE")
        return import_file(path, tokens=options.tokens, shapes=_parse_axes(options.axes))
    if source.endswith(".toml"):
        raise BadInput(f"{source} is a model file already: give it to any command as --model {source}")
    if not _MODULE.fullmatch(source):
        raise BadInput(
            f"{source[:80]}: import a config.json or its folder, a .onnx file, or MODULE:FUNCTION that makes "
            "a PyTorch module"
        )
    if (options.input is None) == (options.input_ids is None):
        raise BadInput(
            f"say what {source} reads: --input 32x3x224x224 for images or --input-ids 8x2048 for text"
        )
    if options.tokens or options.axes:
        raise BadInput("a module of PyTorch is told its sizes with --input or --input-ids alone")
    from planner.model.importers.torch_module import import_module_function

    shape = (
        _parse_shape(options.input, "--input")
        if options.input
        else _parse_shape(options.input_ids or "", "--input-ids")
    )
    return import_module_function(source, shape, ids=options.input_ids is not None, hooks=options.hooks)


def _parse_shape(text: str, flag: str) -> tuple[int, ...]:
    """Parses sizes such as `32x3x224x224` and checks their number and product."""
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and 0 < len(part) <= 9 for part in parts):
        raise BadInput(f"{flag} {text[:40]}: sizes with x between them, as 32x3x224x224 or 8x2048")
    shape = tuple(map(int, parts))
    if not 2 <= len(shape) <= 5 or not all(shape) or (flag == "--input-ids" and len(shape) != 2):
        wanted = "2, batch and length" if flag == "--input-ids" else "2 to 5, the batch first"
        raise BadInput(f"{flag} {text[:40]}: {len(shape)} sizes; it has {wanted}, each at least 1")
    if math.prod(shape) > LARGEST_INPUT:
        raise BadInput(f"{flag} {text[:40]}: {math.prod(shape):,} values are more than a device holds")
    return shape


def _parse_axes(texts: tuple[str, ...]) -> dict[str, int]:
    """Parses `NAME=SIZE` texts into sizes of ONNX axes by name."""
    sizes = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not (size.isascii() and size.isdigit() and 0 < len(size) <= 9 and int(size)):
            raise BadInput(f"--axis {text[:60]}: write the axis and its size, as --axis batch=8")
        sizes[name] = int(size)
    return sizes


_FIRST = ("description", "source")


def format_model_file(values: dict[str, Any]) -> str:
    """Formats the values of a model file as TOML text."""
    plain = {k: v for k, v in values.items() if k != "layers" and not isinstance(v, dict)}
    first = {key: plain[key] for key in _FIRST if key in plain}
    lines = [*_key_lines(first | plain), "", *_layer_lines(values["layers"])]
    for name, table in values.items():
        if name == "blocks":
            for block, inside in table.items():
                keys = {k: v for k, v in inside.items() if k != "layers"}
                lines += ["", f"[blocks.{toml_key(block)}]", *_key_lines(keys)]
                lines += _layer_lines(inside["layers"])
        elif isinstance(table, dict):
            lines += ["", f"[{toml_key(name)}]", *_key_lines(table)]
    return "\n".join(lines) + "\n"


def _key_lines(table: dict[str, Any]) -> list[str]:
    """TOML lines of the keys of a table."""
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]


def _layer_lines(items: list[dict[str, Any]]) -> list[str]:
    """TOML lines of a list of layers."""
    return ["layers = [", *(f"  {toml_value(item)}," for item in items), "]"]
