"""FLOPs of forward and backward as `torch.utils.flop_counter` counts them, beside the catalogue's.

    python benchmarks/fit/model_flops.py          # prints tests/data/models/flops.csv

Networks are on the meta device, one sample, attention written out (`eager`), so that its products are counted
as what they are. Needs torch and transformers. ResNet-50 is the one of `torchvision_like.py`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from model_references import REFERENCES

CASES = {
    "gpt2": {},
    "bert-base": {},
    "llama3-8b": {"num_hidden_layers": 2},
    "mpt-125m": {},
    "t5-base": {},
}


def count(name: str) -> tuple[int, int]:
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
    config = kind.config_class(**{**settings, **CASES[name]}, attn_implementation="eager")
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


def main() -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(["model", "blocks", "forward_flops", "backward_flops"])
    for name in [*CASES, "vit-b16", "resnet50-v1.5"]:
        try:
            forward, backward = count(name)
        except Exception as error:  # a version of the library that cannot run on the meta device
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        blocks = next((v for v in CASES.get(name, {}).values()), "")
        writer.writerow([name, blocks, forward, backward])
    return 0


if __name__ == "__main__":
    sys.exit(main())
