"""Tensors of the catalogue's transformers as `transformers` makes them, on the meta device.

    python benchmarks/fit/model_references.py            # prints tests/data/models/transformers.csv
    python benchmarks/fit/model_references.py --check    # compares every tensor with the catalogue's files

Needs torch and transformers, and no weights: a network on the meta device has shapes only.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from typing import Any


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the catalogue")
    arguments = parser.parse_args()
    writer = csv.writer(sys.stdout)
    wrong = 0
    if not arguments.check:
        writer.writerow(["model", "class", "tensors", "parameters", "digest"])
    for name, (class_name, _) in REFERENCES.items():
        theirs = tensors_of(build(name))
        if arguments.check:
            wrong += _differs(name, theirs)
        else:
            import math

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
