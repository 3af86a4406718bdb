"""What `transformers` and torch say of networks, on the meta device: tensors, parameters and FLOPs.

    python benchmarks/fit/model_references.py              # prints tests/data/models/transformers.csv
    python benchmarks/fit/model_references.py --check      # compares every tensor with the catalog's files
    python benchmarks/fit/model_references.py --flops      # prints tests/data/models/flops.csv
    python benchmarks/fit/model_references.py --families   # counts families.json there again

FLOPs are those of `torch.utils.flop_counter`, of one sample, with attention written out (`eager`), so that
its products are counted as what they are; ResNet-50 is the one of `torchvision_like.py`. Each case of the
families has the class that makes the network, its config.json and its parameters. Needs torch and
transformers (diffusers for SD3 and FLUX) and no weights: a network on the meta device has shapes only.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

FAMILIES = Path(__file__).resolve().parents[2] / "tests/data/models/families.json"
SHORTENED = {  # networks whose FLOPs are counted, with fewer blocks where they are alike
    "gpt2": {},
    "bert-base": {},
    "llama3-8b": {"num_hidden_layers": 2},
    "mpt-125m": {},
    "t5-base": {},
}


def _gpt2(width: int, depth: int, heads: int, positions: int = 1024) -> tuple[str, dict[str, Any]]:
    return "GPT2LMHeadModel", {
        "n_embd": width,
        "n_layer": depth,
        "n_head": heads,
        "n_positions": positions,
        "vocab_size": 50257,
    }


def _bert(width: int, depth: int, heads: int) -> tuple[str, dict[str, Any]]:
    return "BertForPreTraining", {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


def _llama(  # noqa: PLR0917
    width: int,
    inner: int,
    depth: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    name: str = "Llama",
    **more: Any,
) -> tuple[str, dict[str, Any]]:
    return f"{name}ForCausalLM", {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        **more,
    }


def _mpt(width: int, depth: int, heads: int, vocabulary: int) -> tuple[str, dict[str, Any]]:
    return "MptForCausalLM", {
        "d_model": width,
        "n_layers": depth,
        "n_heads": heads,
        "vocab_size": vocabulary,
        "max_seq_len": 2048,
    }


REFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "gpt3-175b": _gpt2(12288, 96, 96, 2048),
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 24, 16),
    "t5-base": (
        "T5ForConditionalGeneration",
        {"d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12, "vocab_size": 32128},
    ),
    "llama2-7b": _llama(4096, 11008, 32, 32, 32, 32000),
    "llama2-13b": _llama(5120, 13824, 40, 40, 40, 32000),
    "llama2-70b": _llama(8192, 28672, 80, 64, 8, 32000),
    "llama3-8b": _llama(4096, 14336, 32, 32, 8, 128256),
    "llama3-70b": _llama(8192, 28672, 80, 64, 8, 128256),
    "llama3-405b": _llama(16384, 53248, 126, 128, 8, 128256),
    "mistral-7b": _llama(4096, 14336, 32, 32, 8, 32000, "Mistral", sliding_window=4096),
    "mixtral-8x7b": _llama(
        4096, 14336, 32, 32, 8, 32000, "Mixtral", num_local_experts=8, num_experts_per_tok=2
    ),
    "mpt-125m": _mpt(768, 12, 12, 50368),
    "mpt-1b": _mpt(2048, 24, 16, 50368),
    "mpt-7b": _mpt(4096, 32, 32, 50432),
    "mpt-30b": _mpt(7168, 48, 64, 50432),
}


def build(name: str, **changes: Any) -> Any:
    """The network of a name in `transformers`, on the meta device, with some settings changed."""
    import torch
    import transformers

    class_name, settings = REFERENCES[name]
    kind = getattr(transformers, class_name)
    with torch.device("meta"):
        return kind(kind.config_class(**{**settings, **changes}))


def tensors_of(module: Any) -> dict[str, tuple[int, ...]]:
    """The parameters of a module by name; a tied one once."""
    return {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}


def digest(tensors: dict[str, tuple[int, ...]]) -> str:
    """A short name for a set of tensors: the same for the same names and shapes, in whatever order."""
    lines = sorted(f"{name} {'x'.join(map(str, shape))}" for name, shape in tensors.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def flops_of(name: str) -> tuple[int, int]:
    """FLOPs forward and backward of one sample of a network of `transformers` or `torchvision_like`."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        module, run = _built(name)
        module.train()
        with FlopCounterMode(display=False) as forward:
            loss = run()
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def _built(name: str) -> tuple[Any, Any]:
    import torch
    import transformers

    from planner.model.catalog import load_model

    if name == "resnet50-v1.5":
        from torchvision_like import resnet50

        module = resnet50()
        return module, lambda: module(torch.zeros(1, 3, 224, 224)).sum()
    if name == "vit-b16":
        kind = transformers.ViTForImageClassification
        module = kind(transformers.ViTConfig(num_labels=1000, attn_implementation="eager"))
        image = torch.zeros(1, 3, 224, 224)
        return module, lambda: torch.sum(module(image).logits)
    class_name, settings = REFERENCES[name]
    kind = getattr(transformers, class_name)
    config = kind.config_class(**{**settings, **SHORTENED[name]}, attn_implementation="eager")
    module = kind(config)
    length = load_model(name).sequence_length
    ids = torch.zeros(1, length, dtype=torch.long)
    given = {"input_ids": ids, "labels": ids}
    if name == "bert-base":
        given["next_sentence_label"] = torch.zeros(1, dtype=torch.long)
    if name == "t5-base":
        config.decoder_start_token_id = 0
        given["labels"] = torch.zeros(1, 114, dtype=torch.long)
    return module, lambda: module(**given).loss


def print_flops() -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(["model", "blocks", "forward_flops", "backward_flops"])
    for name in [*SHORTENED, "vit-b16", "resnet50-v1.5"]:
        try:
            forward, backward = flops_of(name)
        except Exception as error:  # a version of the library that cannot run on the meta device
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        blocks = next((v for v in SHORTENED.get(name, {}).values()), "")
        writer.writerow([name, blocks, forward, backward])
    return 0


def family_tensors(case: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters of a case, as its library makes them."""
    import torch

    library = importlib.import_module(case.get("library", "transformers"))
    kind = getattr(library, case["class"])
    settings = {
        key: value for key, value in case["config"].items() if key not in ("model_type", "_class_name")
    }
    with torch.device("meta"):
        module = kind(kind.config_class(**settings)) if hasattr(kind, "config_class") else kind(**settings)
    return tensors_of(module)


def count_families(check: bool) -> int:
    """Count the parameters of every case again; with `check` compare all tensors instead."""
    cases, wrong = json.loads(FAMILIES.read_text()), 0
    for name, case in cases.items():
        try:
            tensors = family_tensors(case)
        except ImportError as error:
            print(f"{name}: skipped ({error})", file=sys.stderr)
            continue
        if check:
            wrong += not _agrees(name, case, tensors)
        else:
            case["parameters"] = sum(map(math.prod, tensors.values()))
    if not check:
        lines = (f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
        FAMILIES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the catalog")
    parser.add_argument("--flops", action="store_true", help="count FLOPs instead")
    parser.add_argument("--families", action="store_true", help="count the families' parameters instead")
    arguments = parser.parse_args()
    if arguments.flops:
        return print_flops()
    if arguments.families:
        return count_families(arguments.check)
    writer = csv.writer(sys.stdout)
    wrong = 0
    if not arguments.check:
        writer.writerow(["model", "class", "tensors", "parameters", "digest"])
    for name, (class_name, _) in REFERENCES.items():
        theirs = tensors_of(build(name))
        if arguments.check:
            wrong += _differs(name, theirs)
        else:
            count = sum(math.prod(shape) for shape in theirs.values())
            writer.writerow([name, class_name, len(theirs), count, digest(theirs)])
    return 1 if wrong else 0


def _differs(name: str, theirs: dict[str, tuple[int, ...]]) -> bool:
    from planner.model.catalog import load_model

    ours = {tensor.name: tensor.shape for tensor in load_model(name).tensors}
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            print(f"{name}: {key}: {theirs.get(key)} there, {ours.get(key)} here")
    print(f"{name}: {'as there' if ours == theirs else 'DIFFERS'}, {len(theirs):,} tensors")
    return ours != theirs


if __name__ == "__main__":
    sys.exit(main())
