"""Netlists: `models/*.toml` as `Model`s. The format is documented in `docs/models.md`.

`_format.py` says which keys a file may hold, `_expand.py` unrolls blocks and branches into layers with names
and inputs, `_infer.py` gives them shapes, parameter tensors and multiply-adds. Imports the nouns and
`planner.tomlfile` only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.model import Model
from planner.netlist._expand import expand
from planner.netlist._format import File
from planner.netlist._infer import infer
from planner.tomlfile import Source, decode, read

__all__ = ["read_model"]

LONGEST_NAME = 200
INHERITED = ("input", "scope", "default_batch", "samples_per_epoch", "defaults", "names", "tensors", "blocks")


def read_model(path: Path | str, find: Callable[[str], Path | None] | None = None) -> Model:
    """The model in a file. `find` gives the file of the model that `base` names, if it is not beside it."""
    source = read(path)
    file = decode(source, _with_base(source, find or (lambda name: None)), File)
    if len(file.input) == 2:
        raise source.error("give [height, width, channels] or [features], not two numbers", ["input"])
    try:
        placed = expand(source, file)
    except RecursionError:
        raise source.error("blocks are nested too deeply", ["layers"]) from None
    return Model(
        name=source.path.stem,
        layers=tuple(infer(source, file, placed)),
        default_batch=file.default_batch,
        samples_per_epoch=file.samples_per_epoch,
        description=file.description,
        source=file.source,
    )


def _with_base(source: Source, find: Callable[[str], Path | None]) -> dict[str, Any]:
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
            elif theirs is not None:
                values.setdefault(key, theirs)
    return values
