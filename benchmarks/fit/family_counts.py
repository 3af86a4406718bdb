"""Parameters of Hugging Face networks as their libraries count them, on the meta device.

    python benchmarks/fit/family_counts.py           # counts those of tests/data/models/families.json again
    python benchmarks/fit/family_counts.py --check   # compares all tensors with the families

Each case of the file has the class that makes the network, its config.json, and its parameters. Needs torch
and transformers (diffusers for SD3 and FLUX) and no weights: a network on the meta device has shapes only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "tests/data/models/families.json"


def tensors_of(case: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters of a case, as its library makes them."""
    import torch

    library = importlib.import_module(case.get("library", "transformers"))
    kind = getattr(library, case["class"])
    settings = {
        key: value for key, value in case["config"].items() if key not in ("model_type", "_class_name")
    }
    with torch.device("meta"):
        module = kind(kind.config_class(**settings)) if hasattr(kind, "config_class") else kind(**settings)
    return {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    cases, wrong = json.loads(FILE.read_text()), 0
    for name, case in cases.items():
        try:
            tensors = tensors_of(case)
        except ImportError as error:
            print(f"{name}: skipped ({error})", file=sys.stderr)
            continue
        if check:
            wrong += not _agrees(name, case, tensors)
        else:
            case["parameters"] = sum(_product(shape) for shape in tensors.values())
    if not check:
        lines = (f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 1 if wrong else 0


def _agrees(name: str, case: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> bool:
    from planner.model.importers import import_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(case["config"]))
        ours = {tensor.name: tensor.shape for tensor in import_file(path).model.tensors}
    differing = sorted(key for key in ours.keys() | tensors.keys() if ours.get(key) != tensors.get(key))
    print(f"{name}: {len(ours):,} tensors, {'equal' if not differing else 'differing: ' + differing[0]}")
    return not differing


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


if __name__ == "__main__":
    sys.exit(main())
