"""What a user asks to import, in the words of the command line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from planner.errors import BadInput
from planner.files.regular_file import expanded
from planner.model.catalog import IMPORTED
from planner.model.importers import ImportedModel, import_file

LARGEST_INPUT = 2**31  # elements
_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Asked:
    """The flags of an import."""

    input: str | None = None
    input_ids: str | None = None
    tokens: int | None = None
    axes: tuple[str, ...] = ()
    hooks: bool = False


def import_asked(source: str, asked: Asked) -> ImportedModel:
    """The network that a user names: a file, a folder, or a function of a module."""
    path = expanded(source)
    if path.is_dir() or source.endswith(IMPORTED):
        if not path.exists():
            raise BadInput(f"there is no {source}")
        for flag, given in (
            ("--input", asked.input),
            ("--input-ids", asked.input_ids),
            ("--hooks", asked.hooks),
        ):
            if given:
                raise BadInput(f"{flag} is for a module of PyTorch; {source} says itself what it reads")
        if asked.axes and path.suffix != ".onnx":
            raise BadInput(f"--axis is for the open axes of an ONNX file, not for {source}")
        if asked.tokens and path.suffix == ".onnx":
            raise BadInput("--seq-length is for a config.json; an ONNX file has --axis NAME=SIZE")
        return import_file(path, tokens=asked.tokens, shapes=_axes(asked.axes))
    if source.endswith(".toml"):
        raise BadInput(f"{source} is a model file already: give it to any command as --model {source}")
    if not _MODULE.fullmatch(source):
        raise BadInput(
            f"{source[:80]}: import a config.json or its folder, a .onnx file, or MODULE:FUNCTION that makes "
            "a PyTorch module"
        )
    if (asked.input is None) == (asked.input_ids is None):
        raise BadInput(
            f"say what {source} reads: --input 32x3x224x224 for images or --input-ids 8x2048 for text"
        )
    if asked.tokens or asked.axes:
        raise BadInput("a module of PyTorch is told its sizes with --input or --input-ids alone")
    from planner.model.importers.torch_module import import_module_function

    shape = _shape(asked.input, "--input") if asked.input else _shape(asked.input_ids or "", "--input-ids")
    return import_module_function(source, shape, ids=asked.input_ids is not None, hooks=asked.hooks)


def _shape(text: str, flag: str) -> tuple[int, ...]:
    """`32x3x224x224` as numbers."""
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


def _axes(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in given:
        name, _, size = text.partition("=")
        if not name or not (size.isascii() and size.isdigit() and 0 < len(size) <= 9 and int(size)):
            raise BadInput(f"--axis {text[:60]}: write the axis and its size, as --axis batch=8")
        found[name] = int(size)
    return found
