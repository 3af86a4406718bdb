"""Networks: layers with their tensors and shapes, the catalog's model files, and importers.

Imports only files and errors. `planner.model.netlist` reads model files, `planner.model.importers` reads
Hugging Face configurations, PyTorch modules and ONNX files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from planner.errors import BadInput
from planner.memoize import memoize

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.intp]
else:
    Floats = Ints = Any  # functions import numpy: commands about models start without it

BYTES_PER_ELEMENT = 4  # single precision
LONGEST_SEQUENCE = 10_000_000  # tokens
USUAL_TOKENS = 10**9  # of the default job of a language model


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter tensor.

    `frozen_bits`: bits per element of a frozen tensor, scales of its quantization included; None: it is
    trained, in the precision of the run.
    """

    name: str
    shape: tuple[int, ...]
    frozen_bits: float | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes in single precision."""
        return self.elements * BYTES_PER_ELEMENT

    @property
    def trained_elements(self) -> int:
        """Number of elements that are trained; 0 for a frozen tensor."""
        return self.elements if self.frozen_bits is None else 0

    @property
    def frozen_bytes(self) -> float:
        """Bytes of a frozen tensor; 0 for a trained one."""
        return 0.0 if self.frozen_bits is None else self.elements * self.frozen_bits / 8


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Shape of an attention layer: query heads, key-value heads, their size, and keys per query. `flash`:
    scores are never written to memory. `window`: positions that each position attends to."""

    heads: int
    kv_heads: int
    head_size: int
    keys: int
    causal: bool = False
    window: int | None = None
    flash: bool = True
    dropout: bool = False
    value_size: int | None = None  # features per head of the values; None: as the queries

    @property
    def value_features(self) -> int:
        """Number of value features per attention head."""
        return self.value_size or self.head_size


@dataclass(frozen=True, slots=True)
class Experts:
    """Shape of a mixture of experts whose router sends each position to `top_k` of `experts` networks.

    Each has `inner` hidden features. Shared experts, which see every position, have `shared_inner` together.
    """

    experts: int
    top_k: int
    inner: int
    shared_inner: int = 0
    gated: bool = True


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; sizes are per sample. `inputs` are names of earlier layers.

    `kind` is one of `planner.model.layers.KINDS`; `output_shape` is (height, width, channels), (sequence,
    features) or (features,). `kernel` and `stride` are (height, width) of convolutions and pooling. `macs`
    are forward multiply-adds; those of attention include masked pairs, as is usual. `tied` tensors are owned
    by an earlier layer. `block` is the layer's repeated unit. `follows` names the layer that it belongs to
    (`conv0/bias` follows `conv0`), `scope` the prefix of all names of its file. `launch_share` and
    `host_share` are factors on the fixed time of its kernels and on the host's time to launch them.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output_shape: tuple[int, ...]
    tensors: tuple[Tensor, ...] = ()
    macs: int = 0
    kernel: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    input_elements: int = 0
    groups: int = 1
    detail: AttentionShape | Experts | None = None
    tied: tuple[Tensor, ...] = ()
    block: str | None = None
    follows: str | None = None
    scope: str | None = None
    launch_share: float = 1.0
    host_share: float = 1.0

    @property
    def output_elements(self) -> int:
        """Number of output elements per sample."""
        return math.prod(self.output_shape)

    @property
    def bytes(self) -> int:
        """Bytes of its parameters in single precision."""
        return sum(tensor.bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Block:
    """A repeated unit of the network, such as a transformer block, in which it is sharded and pipelined."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters of the block's layers."""
        return sum(tensor.elements for layer in self.layers for tensor in layer.tensors)


@dataclass(frozen=True, slots=True)
class MethodSettings:
    """Settings of a training method, named like their flags; None where the method has no such setting.

    `optimizer` None is the usual one of the network; `epochs` are those of a fine-tuning job that nobody
    named. `dequantize_bytes` as in `BaseFormat`. What its memory holds: `offload` are the parts that live in
    host memory (`planner.device.offload`), `cross_entropy` one of `planner.model.layers.LOSSES`,
    `activations` the format of saved ones, `compiled` whether kernels are fused across layers.
    """

    method: str = "full"
    rank: int | None = None
    targets: str | None = None
    base: str | None = None
    dropout: float | None = None
    optimizer: str | None = None
    epochs: float | None = None
    dequantize_bytes: float = 0.0
    offload: tuple[str, ...] = ()
    cross_entropy: str | None = None
    activations: str | None = None
    compiled: bool = False

    @property
    def label(self) -> str:
        """Suffix of model and plan names, such as `qlora-r16-adamw`; empty for full training."""
        rank = None if self.rank is None else f"r{self.rank}"
        method = None if self.method == "full" else self.method
        loss = None if self.cross_entropy is None else f"{self.cross_entropy}-loss"
        saved = None if self.activations is None else f"{self.activations}-activations"
        offload = "-".join(("offload", *self.offload)) if self.offload else None
        dropout = None if self.dropout is None else "dropout"
        parts = (method, rank, self.targets, self.base, dropout, self.optimizer, loss, saved, offload)
        return "-".join(filter(None, parts))


@dataclass(frozen=True)
class Model:
    """A network: its layers in creation order, which is a topological order.

    `sequence_length` is the number of tokens of one sample, None for images; `tokens_per_epoch` the size of
    the training set where it is counted in tokens. `remake` builds the same network for another length.
    `training` says how it is fine-tuned, where a training method changed it (`planner.model.methods`).
    """

    name: str
    layers: tuple[Layer, ...]
    default_batch: int = 32
    samples_per_epoch: int | None = None
    description: str = ""
    source: str = ""
    default_precision: str = "fp32"
    sequence_length: int | None = None
    tokens_per_epoch: int | None = None
    remake: Callable[[int], Model] | None = field(default=None, compare=False, repr=False)
    training: MethodSettings | None = None
    mean_length: int | None = None  # tokens per sample without padding; None: packed

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hash of the compared fields, computed once because models are keys of many caches."""
        return hash((self.name, self.layers, self.default_batch, self.sequence_length))

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All parameter tensors in creation order."""
        return tuple(tensor for layer in self.layers for tensor in layer.tensors)

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, frozen ones included."""
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def trained_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that are not frozen, in creation order."""
        return tuple(tensor for tensor in self.tensors if tensor.frozen_bits is None)

    @cached_property
    def trained_parameters(self) -> int:
        """Number of parameters that are trained."""
        return sum(tensor.elements for tensor in self.trained_tensors)

    @property
    def has_frozen(self) -> bool:
        """Whether some tensors are frozen."""
        return len(self.trained_tensors) < len(self.tensors)

    @cached_property
    def has_experts(self) -> bool:
        """Whether some layers are mixtures of experts."""
        return any(isinstance(layer.detail, Experts) for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes of all parameters in single precision."""
        return self.parameters * BYTES_PER_ELEMENT

    @cached_property
    def macs(self) -> int:
        """Forward multiply-adds per sample."""
        return sum(layer.macs for layer in self.layers)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Repeated units in order, such as transformer blocks, without the layers outside them."""
        members: dict[str, list[Layer]] = {}
        for layer in self.layers:
            if layer.block is not None:
                members.setdefault(layer.block, []).append(layer)
        return tuple(Block(name, tuple(layers)) for name, layers in members.items())

    @property
    def default_job_samples(self) -> float | None:
        """Samples of the default job: its epochs, or one epoch of at most 1e9 tokens; None if unknown."""
        if self.training is not None and self.training.epochs is not None:
            return self.training.epochs * (self.samples_per_epoch or 0)
        if self.sequence_length is None:
            return self.samples_per_epoch
        return min(self.samples_per_epoch or math.inf, USUAL_TOKENS / (self.sample_tokens or 1))

    @property
    def sample_tokens(self) -> int | None:
        """Tokens per sample without padding; None for images."""
        return self.mean_length or self.sequence_length

    def with_sequence_length(self, tokens: int) -> Model:
        """Returns the same network for samples of this many tokens."""
        if tokens == self.sequence_length:
            return self
        if self.sequence_length is None or self.remake is None:
            raise BadInput(f"{self.name} reads no sequence of tokens; leave the sequence length out")
        if not 1 <= tokens <= LONGEST_SEQUENCE:
            raise BadInput(f"a sequence of {tokens:,} tokens; it has 1 to {LONGEST_SEQUENCE:,}")
        return self.remake(tokens)

    def consumers_by_layer(self) -> dict[str, list[str]]:
        """Names of the layers that read each layer's output, by layer name."""
        out: dict[str, list[str]] = {layer.name: [] for layer in self.layers}
        for layer in self.layers:
            for name in layer.inputs:
                out[name].append(layer.name)
        return out

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)


@dataclass(frozen=True, eq=False)
class Chain:
    """A model as a chain of units: the layers before its blocks, each block, and the layers after.

    Units are the grain of pipelines and of sharding. A network without blocks has one unit per layer with
    parameters.

    `unit[l]` is the unit of layer l; units are numbered in order. `repeats[u]`: unit u is a block.
    """

    names: tuple[str, ...]
    unit: Ints
    repeats: npt.NDArray[np.bool_]
    elements: Ints  # trained parameters per unit
    matrices: tuple[tuple[int, ...], ...]  # elements of the matrices of each unit
    frozen_bytes: Floats  # of the frozen parameters of each unit

    @property
    def length(self) -> int:
        """Number of units."""
        return len(self.names)

    def sum_by_unit(self, by_layer: npt.ArrayLike) -> Floats:
        """Sums of a per-layer quantity over the layers of each unit."""
        import numpy as np

        weights = np.asarray(by_layer, np.float64)
        return np.bincount(self.unit, weights=weights, minlength=self.length).astype(np.float64)


@memoize
def group_into_units(model: Model) -> Chain:
    """Groups the layers of a model into units: its blocks, or its layers with parameters."""
    import numpy as np

    keys: Iterable[str | int | None] = [layer.block for layer in model.layers]
    if not any(keys):
        keys = accumulate(len(layer.tensors) > 0 for layer in model.layers)
    layers = iter(model.layers)
    units = [[next(layers) for _ in run] for _, run in groupby(keys)]
    trained = [
        [tensor for layer in unit for tensor in layer.tensors if tensor.frozen_bits is None] for unit in units
    ]
    frozen = [sum(sum(tensor.frozen_bytes for tensor in layer.tensors) for layer in unit) for unit in units]
    return Chain(
        names=tuple(unit[0].block or unit[0].name for unit in units),
        unit=np.repeat(np.arange(len(units)), [len(unit) for unit in units]),
        repeats=np.array([unit[0].block is not None for unit in units]),
        elements=np.array([sum(tensor.elements for tensor in tensors) for tensors in trained]),
        matrices=tuple(
            tuple(tensor.elements for tensor in tensors if len(tensor.shape) > 1) for tensors in trained
        ),
        frozen_bytes=np.array(frozen, np.float64),
    )
