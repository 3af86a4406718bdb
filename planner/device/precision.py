"""Precision: the number formats of a training run, as a value of the plan.

A format is what a kernel computes in; the bytes say what each kind of number takes where it is kept or sent.
Mixed precision as frameworks do it computes in sixteen bits and keeps a master copy in thirty-two.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import unknown_name
from planner.hardware import Format


@dataclass(frozen=True, slots=True)
class Precision:
    """`parameter_bytes` are those of the copy that forward and backward read, `gradient_bytes` those of
    gradients that are sent in the format of that copy (FSDP, ZeRO), `master_bytes` those of the copy that the
    optimizer keeps beside them (0: it updates the first)."""

    name: str
    compute: Format
    parameter_bytes: int
    gradient_bytes: int
    activation_bytes: int
    master_bytes: int = 0

    @property
    def ddp_gradient_bytes(self) -> int:
        """Width of the gradients that DDP and Megatron all-reduce: that of the parameters that the optimizer
        updates. Under torch.autocast, which is how mixed precision is trained since Apex is retired,
        parameters are fp32, and so are `.grad` and DDP's buckets; Megatron sums in fp32 main gradients."""
        return self.master_bytes or self.gradient_bytes

    def __hash__(self) -> int:
        """Precisions are parts of many keys, and hardly two have the same name."""
        return hash(self.name)


FP32 = Precision("fp32", "fp32", parameter_bytes=4, gradient_bytes=4, activation_bytes=4)
TF32 = Precision("tf32", "tf32", parameter_bytes=4, gradient_bytes=4, activation_bytes=4)
FP16 = Precision("fp16", "fp16", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)
BF16 = Precision("bf16", "bf16", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)
# The matrix products of transformer layers in eight bits; everything kept and sent stays as in bf16.
FP8 = Precision("fp8", "fp8", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)

PRECISIONS = {precision.name: precision for precision in (FP32, TF32, FP16, BF16, FP8)}


def precision_named(name: str) -> Precision:
    """The precision of a name, or an error that lists the names."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    return PRECISIONS[name]
