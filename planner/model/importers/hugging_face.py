"""A Hugging Face network from its `config.json`, or from the folder or the safetensors index beside it; no
torch.

Where the weights lie in the folder, the names and shapes in their headers are held against what the
configuration gives; an index alone has names. A checkpoint may call a tensor otherwise than the library does:
differences are said, not refused.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from planner.errors import BadInput, unknown_name
from planner.files.regular_file import opened
from planner.model import Model
from planner.model.importers import ImportedModel, built
from planner.model.importers.config import TORCH_NAMES, Config, read_json
from planner.model.importers.decoders import DECODERS
from planner.model.importers.encoders import ENCODERS

FAMILIES = {**DECODERS, **ENCODERS}
LONGEST = 8192  # tokens: configurations say what a network can read, which is more than it is trained on
LARGEST_HEADER_BYTES = 100_000_000
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")


def import_config(path: Path, tokens: int | None = None) -> ImportedModel:
    """The network of a `config.json`, a folder that holds one, or a safetensors file or index beside one."""
    place = _config_path(path)
    values = read_json(place)
    config = Config(place, values)
    family = values.get("model_type")
    if not isinstance(family, str):
        raise config.error(f"the key 'model_type' is missing; known ones: {', '.join(sorted(FAMILIES))}")
    if family not in FAMILIES:
        listed = ", ".join(sorted(FAMILIES))
        known = f"known ones: {listed}; another is read with `planner models import MODULE:FUNCTION`"
        raise unknown_name(f"model_type in {place}", family[:80], FAMILIES, known)
    config.family = family
    network = FAMILIES[family](config)
    file: dict[str, Any] = {"description": f"{family}, from a Hugging Face configuration"}
    file["source"] = str(place)
    file |= {"layout": "torch", "separator": ".", "default_precision": _precision(config), "default_batch": 1}
    if network.input is not None:
        file |= {"input": network.input, "default_batch": 32}
    else:
        longest = config.number(*_LENGTHS, default=512)
        file["sequence_length"] = tokens or min(longest, LONGEST)
        if tokens is None and longest > LONGEST:
            said = f"a sample has {LONGEST:,} tokens of {longest:,} that it can read; --seq-length sets it"
            config.notes.append(said)
        if network.target_length:
            file["target_length"] = max(1, network.target_length * file["sequence_length"] // 512)
    file |= {"layers": network.layers, "tensors": TORCH_NAMES | network.tensors}
    if network.defaults:
        file["defaults"] = network.defaults
    file["blocks"] = {name: _block(items) for name, items in network.blocks.items()}
    imported = built(place, file, _name(config), config.notes)
    notes = (*imported.notes, *_compared(place.parent, imported.model))
    return ImportedModel(imported.values, imported.model, notes)


def _config_path(path: Path) -> Path:
    folder = path if path.is_dir() else path.parent
    if path.is_dir() or path.suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        place = folder / "config.json"
        if not place.is_file():
            raise BadInput(f"{folder}: there is no config.json, which says how its tensors are used")
        return place
    return path


def _block(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A block with its parameters: whatever its layers write with a dollar."""
    by_name: dict[str, None] = {}
    for item in items:
        for value in item.values():
            if isinstance(value, str) and value.startswith("$"):
                by_name[value[1:]] = None
    return {"parameters": list(by_name), "layers": items} if by_name else {"layers": items}


def _name(config: Config) -> str:
    """What the network is called: by the configuration, or by the folder it lies in."""
    said = config.values.get("_name_or_path")
    name = said.rstrip("/").rpartition("/")[2] if isinstance(said, str) else ""
    folder = config.path.resolve().parent.name
    letters = "".join(c for c in name or folder if c.isalnum() or c in "-_.")[:80]
    return letters.strip(".") or config.family


def _precision(config: Config) -> str:
    kept = config.values.get("dtype") or config.values.get("torch_dtype")
    return "fp16" if kept == "float16" else "bf16"


def _compared(folder: Path, model: Model) -> list[str]:
    """What the weights in the folder say about the model's tensors."""
    ours = {tensor.name: tensor.shape for tensor in model.tensors}
    theirs: dict[str, tuple[int, ...] | None] = {}
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict):
            raise BadInput(f"{index}: the key 'weight_map' is missing; is the file whole?")
        theirs.update(dict.fromkeys(names))
    for file in sorted(folder.glob("*.safetensors"))[:1000]:
        theirs.update(read_header(file))
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


def read_header(path: Path) -> dict[str, tuple[int, ...] | None]:
    """The names and shapes of the tensors in a safetensors file; nothing else of it is read."""
    try:
        with opened(path) as file:
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
