"""QLoRA (Dettmers et al. 2023): LoRA with base weights in four bits, dequantized for every product.

Dequantizing takes the same time in every pass, whatever the batch, and so weighs most on small micro-batches.
"""

from __future__ import annotations

from typing import ClassVar

from planner.model.methods.lora import Lora


class QLora(Lora):
    """QLoRA: LoRA with quantized base weights."""

    name = "qlora"
    bases: ClassVar[tuple[str, ...]] = ("nf4", "int4", "int8")
