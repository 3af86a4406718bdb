"""Networks that others wrote down: a Hugging Face `config.json`, a PyTorch module, an ONNX file.

Each importer gives the values of a model file, as `planner.model.netlist` reads them, and says what it
did not know. One file an importer; torch and onnx are imported by theirs alone. `writing` puts the values
down as TOML.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.files.tomlfile import TomlSource
from planner.model import Model
from planner.model.netlist import build_model

__all__ = ["Imported", "built", "import_file"]


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A network that was read: what a model file would say, the model, and sentences for the user."""

    values: dict[str, Any]
    model: Model
    notes: tuple[str, ...] = ()


def import_file(
    path: Path, *, tokens: int | None = None, shapes: dict[str, int] | None = None
) -> ImportedModel:
    """The network in a file or folder of Hugging Face, or in an ONNX file. `tokens`: of one sample of text,
    if not what the file says; `shapes`: sizes for the axes that an ONNX file leaves open."""
    if path.suffix == ".onnx":
        from planner.model.importers.onnx_file import import_onnx

        return import_onnx(path, shapes or {})
    from planner.model.importers.hugging_face import import_config

    return import_config(path, tokens)


def built(path: Path, values: dict[str, Any], name: str, notes: list[str]) -> ImportedModel:
    """The model of imported values; what is wrong with them is said of the file that they came from."""
    return ImportedModel(values, build_model(TomlSource(path, "", values), values, name), tuple(notes))
