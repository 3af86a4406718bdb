"""Precision and optimizers: the numbers that training keeps for each parameter.

A format is what a kernel computes in; the bytes say what each kind of number takes where it is kept or sent.
Mixed precision as frameworks do it computes in sixteen bits and keeps a master copy in thirty-two.

Optimizers: the state that each keeps for a parameter, and what its update moves and computes. One row each.
The master copy is not part of a row: the number format says whether there is one. ZeRO and FSDP shard all of
an optimizer's state alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import unknown_name
from planner.hardware import Format

if TYPE_CHECKING:
    from planner.model import Tensor


@dataclass(frozen=True, slots=True)
class Precision:
    """Number formats of training: bytes per element of each copy of parameters and gradients.
    `parameter_bytes` are those of the copy that forward and backward read, `gradient_bytes` those of
    gradients that are sent in the format of that copy (FSDP, ZeRO), `master_bytes` those of the copy that the
    optimizer keeps besides (0: it updates the first)."""

    name: str
    compute: Format
    parameter_bytes: int
    gradient_bytes: int
    activation_bytes: int
    master_bytes: int = 0

    @property
    def ddp_gradient_bytes(self) -> int:
        """Bytes per gradient element all-reduced by DDP and Megatron: the width of the updated parameters.
        Under torch.autocast parameters, `.grad` and DDP's buckets are fp32; Megatron sums in fp32 main
        gradients."""
        return self.master_bytes or self.gradient_bytes

    def __hash__(self) -> int:
        """Hash of the name alone; precisions are parts of many cache keys."""
        return hash(self.name)


FP32 = Precision("fp32", "fp32", parameter_bytes=4, gradient_bytes=4, activation_bytes=4)
TF32 = Precision("tf32", "tf32", parameter_bytes=4, gradient_bytes=4, activation_bytes=4)
FP16 = Precision("fp16", "fp16", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)
BF16 = Precision("bf16", "bf16", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)
# The matrix products of transformer layers in eight bits; everything kept and sent stays as in bf16.
FP8 = Precision("fp8", "fp8", parameter_bytes=2, gradient_bytes=2, activation_bytes=2, master_bytes=4)

PRECISIONS = {precision.name: precision for precision in (FP32, TF32, FP16, BF16, FP8)}


def find_precision(name: str) -> Precision:
    """Precision of this name; raises BadInput with the known names if there is none."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    return PRECISIONS[name]


NEWTON_SCHULZ_STEPS = 5  # of Muon (Jordan 2024)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Optimizer by its cost per parameter: bytes of state, and bytes of traffic per update. `state_bytes` per
    parameter; `update_bytes` are read and written per parameter in an update in single precision: weight,
    gradient and state. `matrix_state_bytes`: of matrices inside the model's blocks, where it treats them
    otherwise. `orthogonalizes`: it multiplies these with themselves."""

    name: str
    state_bytes: float
    update_bytes: float
    matrix_state_bytes: float | None = None
    orthogonalizes: bool = False


OPTIMIZERS = {
    row.name: row
    for row in (
        Optimizer("sgd", 0, 12),
        Optimizer("momentum", 4, 20),
        Optimizer("adam", 8, 28),
        Optimizer("adamw", 8, 28),
        # two states of 8 bits, with a scale in fp32 for each block of 256 (bitsandbytes)
        Optimizer("adamw-8bit", 2 + 2 * 4 / 256, 16.1),
        # a row and a column of second moments for a matrix, no first moment; squares are read once more
        Optimizer("adafactor", 0.002, 20),
        Optimizer("lion", 4, 20),
        # momentum alone for matrices inside blocks, AdamW for the rest
        Optimizer("muon", 8, 20, matrix_state_bytes=4, orthogonalizes=True),
    )
}


def find_optimizer(name: str) -> Optimizer:
    """Optimizer of this name; raises BadInput with the known names if there is none."""
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS, hint="one of " + ", ".join(OPTIMIZERS))
    return OPTIMIZERS[name]


def optimizer_state_bytes(optimizer: Optimizer, hidden: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    """Bytes of optimizer state for tensors inside the model's blocks (`hidden`) and all others."""
    total = sum(optimizer.state_bytes * tensor.trained_elements for tensor in others)
    for tensor in hidden:
        each = optimizer.matrix_state_bytes if len(tensor.shape) > 1 else None
        total += (optimizer.state_bytes if each is None else each) * tensor.trained_elements
    return float(total)


def orthogonalization_flops(optimizer: Optimizer, hidden: Iterable[Tensor]) -> float:
    """FLOPs of orthogonalization per update (Muon), 0 for other optimizers. Each matrix X (m x n, m <= n)
    takes Newton-Schulz steps A = X X', B = b A + c A A, X <- a X + B X of 4 m m n + 2 m m m FLOPs."""
    if not optimizer.orthogonalizes:
        return 0.0
    flops = 0.0
    for tensor in hidden:
        if len(tensor.shape) > 1 and tensor.trained_elements:
            m = min(tensor.shape[-1], tensor.trained_elements // tensor.shape[-1])
            n = tensor.trained_elements // m
            flops += NEWTON_SCHULZ_STEPS * (4.0 * m * m * n + 2.0 * m**3)
    return flops
