"""Netlists: `models/*.toml` as `Model`s. The format is documented in `docs/models.md`.

`_format.py` and the kinds of `planner.model.layers` say which keys a file may hold, `_expand.py` unrolls
blocks and branches into layers with names and inputs, `_infer.py` gives them shapes, parameter tensors and
multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from planner.files.tomlfile import TomlSource, decode, read
from planner.model import Model
from planner.model.layers.base import Shape
from planner.model.netlist._expand import expand
from planner.model.netlist._format import File
from planner.model.netlist._infer import infer

__all__ = ["build_model", "read_model"]

LONGEST_NAME = 200
INHERITED = (
    "input",
    "sequence_length",
    "target_length",
    "scope",
    "separator",
    "layout",
    "default_batch",
    "default_precision",
    "samples_per_epoch",
    "tokens_per_epoch",
    "defaults",
    "names",
    "tensors",
    "blocks",
)


def read_model(path: Path | str, find: Callable[[str], Path | None] | None = None) -> Model:
    """The model in a file. `find` gives the file of the model that `base` names, if it is not beside it."""
    source = read(path)
    return build_model(source, _with_base(source, find or (lambda name: None)))


def build_model(source: TomlSource, values: dict[str, Any], name: str | None = None) -> Model:
    """The model of the values of a file, `source`, and of its bases; it is called as the file is, unless it
    has another name."""
    return _build(source, decode(source, values, File), name or source.path.stem, None)


def _build(source: TomlSource, file: File, name: str, tokens: int | None) -> Model:
    """The model of a file, for samples of so many tokens if not for those that the file says."""
    texts = _texts(source, file, tokens)
    try:
        placed = expand(source, file)
    except RecursionError:
        raise source.error("blocks are nested too deeply", ["layers"]) from None
    layers = tuple(infer(source, file, placed, texts))
    length = None if file.sequence_length is None else tokens or file.sequence_length
    samples = file.samples_per_epoch
    if samples is None and file.tokens_per_epoch and length:
        samples = -(-file.tokens_per_epoch // length)
    return Model(
        name=name,
        layers=layers,
        default_batch=file.default_batch,
        samples_per_epoch=samples,
        description=file.description,
        source=file.source,
        default_precision=file.default_precision,
        sequence_length=length,
        tokens_per_epoch=file.tokens_per_epoch,
        remake=None if length is None else partial(_build, source, file, name),
    )


def _texts(source: TomlSource, file: File, tokens: int | None) -> dict[str, Shape]:
    """The shapes of what is given from outside: an image, features, a text, a text and its translation. Where
    the text gets longer, so does the translation."""
    if file.input is None and file.sequence_length is None:
        raise source.error("the key 'input' is missing; a network over text has 'sequence_length' instead")
    if file.input is not None:
        if file.sequence_length is not None:
            raise source.error("give 'input' or 'sequence_length', not both", ["sequence_length"])
        if len(file.input) == 2:
            raise source.error("give [height, width, channels] or [features], not two numbers", ["input"])
        return {"input": tuple(file.input)}
    given = file.sequence_length or 1
    texts: dict[str, Shape] = {"input": (tokens or given,)}
    if file.target_length:
        texts["targets"] = (-(-file.target_length * (tokens or given) // given),)
    return texts


def _with_base(source: TomlSource, find: Callable[[str], Path | None]) -> dict[str, Any]:
    """The values of a file, with those it does not give itself taken from its base, and from its base's."""
    values, current, seen = dict(source.data), source, [source.path.stem]
    while isinstance(base := current.data.get("base"), str):
        if base in seen:
            raise source.error(f"bases go round in a circle: {' -> '.join([*seen, base])}", ["base"])
        seen.append(base)
        beside = current.path.parent / f"{base}.toml"
        file = beside if len(base) <= LONGEST_NAME and beside.is_file() else find(base)
        if file is None:
            raise current.error(f"there is no model {base!r} to start from", ["base"])
        current = read(file)
        for key in INHERITED:
            theirs, mine = current.data.get(key), values.get(key)
            if isinstance(theirs, dict) and isinstance(mine, dict):
                values[key] = {**theirs, **mine}
            elif theirs is not None and not (key == "input" and "sequence_length" in source.data):
                values.setdefault(key, theirs)
    return values
