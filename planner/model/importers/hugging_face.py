"""Imports Hugging Face networks from their `config.json`, without torch.

Where weights or their index lie in the folder, their names and shapes are compared with the network's.
Checkpoints may name tensors differently than the library does: differences are noted, not refused.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import open_regular_file
from planner.files.tomlfile import LONGEST_OP_NAME, TomlSource, check_names
from planner.model import Model
from planner.model.catalog import hub_name
from planner.model.importers import TORCH_NAMES, ImportedModel, build_imported
from planner.model.importers.families import Description, families_by_type, load_family
from planner.model.netlist import build_model

LONGEST = 8192  # tokens; configurations state the longest context, which is rarely trained on
UNKNOWN_LENGTH = 2048  # of samples, in tokens, where transformers makes the network
LARGEST_FILE_BYTES = 10_000_000
LARGEST_HEADER_BYTES = 20_000_000
TARGETS_PER_TOKEN = 512  # sequence length that `target_length` of a family is for


def import_config(path: Path, tokens: int | None = None) -> ImportedModel:
    """Imports a network from a config.json, its folder, or a safetensors file or index in that folder."""
    place = _config_path(path)
    values = read_json_object(place)
    kind = values.get("model_type")
    if isinstance(kind, str) and kind not in known_types():
        from planner.model.importers.torch_module import import_architecture

        if made := import_architecture(place, values, tokens or UNKNOWN_LENGTH):
            return made
    file, notes = model_file_values(place, values, tokens)
    imported = build_imported(place, file, _network_name(place, values), notes)
    return replace(imported, notes=(*imported.notes, *_compare_weights(place.parent, imported.model)))


def read_config_table(source: TomlSource) -> Model:
    """Reads a model file whose table `config` holds the keys of a config.json."""
    settings = source.data["config"]
    if not isinstance(settings, dict):
        raise source.error("it is a table with the keys of a config.json", ["config"])
    given = {key: value for key, value in source.data.items() if key != "config"}
    tokens = given.get("sequence_length")
    file, _ = model_file_values(source.path, settings, tokens if isinstance(tokens, int) else None)
    return build_model(source, file | given)


def known_types() -> dict[str, str]:
    """Name of the model family for each known `model_type`."""
    return families_by_type(os.environ.get("PLANNER_PATH", ""))


def model_file_values(
    path: Path, values: dict[str, Any], tokens: int | None
) -> tuple[dict[str, Any], list[str]]:
    """Values of a model file for a config.json, and notes for the user."""
    known = known_types()
    kind = values.get("model_type") or values.get("_class_name")
    if not isinstance(kind, str):
        raise BadInput(f"{path}: the key 'model_type' is missing; known ones: {', '.join(known)}")
    if kind not in known:
        hint = f"known ones: {', '.join(known)}; where transformers is installed, it makes others"
        raise unknown_name(f"model_type in {path}", kind[:80], known, hint)
    family = load_family(known[kind])
    network = Description(family, path, values)
    file: dict[str, Any] = {"description": f"{kind}: {family.description}", "source": str(path)}
    stored = values.get("dtype") or values.get("torch_dtype")
    file |= {"layout": "torch", "separator": "."}
    file["default_precision"] = "fp16" if stored == "float16" else "bf16"
    given = network.model_file_values()
    file["default_batch"] = 32 if "input" in given else 1
    if longest := given.pop("sequence_length", None):
        file["sequence_length"] = tokens or min(longest, LONGEST)
        if tokens is None and longest > LONGEST:
            network.notes.append(
                f"a sample has {LONGEST:,} tokens of {longest:,} that it can read; --seq-length sets it"
            )
        if "target_length" in given:
            length = given["target_length"] * file["sequence_length"] // TARGETS_PER_TOKEN
            given["target_length"] = max(1, length)
    return file | given | {"tensors": TORCH_NAMES | given.get("tensors", {})}, network.notes


def read_json_object(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object; raises BadInput otherwise."""
    try:
        with open_regular_file(path) as file:
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


def _config_path(path: Path) -> Path:
    """Path of the config.json for a folder, or for weights beside it."""
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        place = folder / "config.json"
        if not place.is_file():
            raise BadInput(f"{folder}: there is no config.json, which says how its tensors are used")
        return place
    return path


def _network_name(path: Path, values: dict[str, Any]) -> str:
    """Name of the network, from the hub's cache, its configuration or its folder."""
    given = values.get("_name_or_path")
    name = given.rstrip("/").rpartition("/")[2] if isinstance(given, str) else ""
    name = hub_name(path) or name or path.resolve().parent.name
    letters = "".join(c for c in name if c.isalnum() or c in "-_.")[:80]
    return letters.strip(".") or "network"


def _compare_weights(folder: Path, model: Model) -> list[str]:
    """Compares the model's tensors with the weights in the folder; returns notes on differences."""
    ours = {tensor.name: tensor.shape for tensor in model.tensors}
    theirs: dict[str, tuple[int, ...] | None] = {}
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json_object(index).get("weight_map")
        if not isinstance(names, dict):
            raise BadInput(f"{index}: the key 'weight_map' is missing; is the file whole?")
        theirs.update(dict.fromkeys(names))
    for file in sorted(folder.glob("*.safetensors"))[:1000]:
        theirs.update(read_safetensors_header(file))
    check_names(theirs, f"{folder}: tensors of the weights", LONGEST_OP_NAME)
    if not theirs:
        return []
    missing = [name for name in ours if name not in theirs]
    more = [name for name in theirs if name not in ours]
    other = [name for name, shape in theirs.items() if shape and name in ours and ours[name] != shape]
    if not (missing or more or other):
        said = "names and shapes" if all(theirs.values()) else "names"
        return [f"all {len(ours):,} tensors are those of the weights beside it, {said}"]
    differences = [(missing, "here only"), (more, "in the weights only"), (other, "of another shape")]
    parts = [
        f"{len(names)} {what} ({names[0][:60]}{', ...' if names[1:] else ''})"
        for names, what in differences
        if names
    ]
    return [f"tensors differ from the weights beside it: {'; '.join(parts)}"]


def read_safetensors_header(path: Path) -> dict[str, tuple[int, ...] | None]:
    """Reads the names and shapes of the tensors in a safetensors file, without their values."""
    try:
        with open_regular_file(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= LARGEST_HEADER_BYTES:
                raise BadInput(f"{path}: no safetensors file: its header would have {size:,} bytes")
            header = json.loads(file.read(size))
        if not isinstance(header, dict):
            raise ValueError("the header is no object")
        by_name: dict[str, tuple[int, ...] | None] = {}
        for name, entry in header.items():
            if name != "__metadata__":
                shape = tuple(int(n) for n in entry["shape"])
                if any(n < 0 for n in shape) or math.prod(shape) > 2**50:
                    raise ValueError(f"a shape of {shape}"[:80])
                by_name[name] = shape
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path}: no safetensors file, or not whole: {error}") from error
    return by_name
