"""Layers over sequences: attention, embeddings, and implementations of the cross-entropy loss.

Losses differ in how many copies of the logits they save, which are the largest tensors of a language
model."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from msgspec import Meta

from planner.model import AttentionShape, Layer
from planner.model.layers.base import (
    ATTENTION,
    ElementCounts,
    InferredLayer,
    Kind,
    LayerShard,
    Matmul,
    MemoryTraffic,
    Name,
    NamedShape,
    OneInput,
    Pass,
    Shape,
    ShapeMisfit,
    Size,
    SizeOrZero,
    Style,
    Weighted,
    Work,
    format_shape,
    position_count,
    read_only_mapping,
    sequence_sizes,
    shard_features,
    shard_tensors,
    weight_elements,
)
from planner.model.layers.products import Linear

CHUNKS = 8  # of positions, as torchtune's and Megatron's chunked losses have them


class Attention(Kind, frozen=True, kw_only=True):
    """Attention over queries, keys and values from three layers, or from one that makes all three."""

    attention: Annotated[list[Name], Meta(min_length=1, max_length=3)]
    heads: Size
    kv_heads: Size | None = None  # as many
    head_size: Size | None = None  # the queries' features over the heads
    value_size: Size | None = None  # of the values of a head, if not that of its queries
    causal: bool = False
    window: Size | None = None
    flash: bool = True
    dropout: bool = False
    buckets: SizeOrZero = 0  # of a learned bias by distance, for each head
    sinks: bool = False  # a learned score of each head for attending to nothing

    lists_inputs = True
    smallest = read_only_mapping(attention=["any"], heads=1)
    tensor_names = read_only_mapping(attention=(Name, "{layer}/distances"), sinks=(Name, "{layer}/sinks"))
    kernel_kind = ATTENTION
    kernels = (1, 2)
    needs_input = True
    needs_output = True
    recompute_policy = "save"
    accepts_shard = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, heads and multiply-adds; raises `ShapeMisfit` unless heads fit the inputs."""
        heads, kv_heads = self.heads, self.kv_heads or self.heads
        length, width = sequence_sizes(shapes[0])
        keys = length
        if heads % kv_heads:
            raise ShapeMisfit(f"heads = {heads} must be a multiple of kv_heads = {kv_heads}")
        parts = heads + 2 * kv_heads if len(shapes) == 1 else heads
        size = self.head_size or width // parts
        values = self.value_size or size
        if len(shapes) == 2:
            raise ShapeMisfit("it reads queries, keys and values: three layers, or one that gives all three")
        if width != parts * size:
            raise ShapeMisfit(f"{parts} heads of {size} features are not the {width} that it reads")
        if len(shapes) == 3:
            keys = sequence_sizes(shapes[1])[0]
            for shape, features in zip(shapes[1:], (size, values), strict=True):
                if shape != (keys, kv_heads * features):
                    wanted = format_shape((keys, kv_heads * features))
                    raise ShapeMisfit(f"keys and values are {format_shape(shape)}, not {wanted}")
        detail = AttentionShape(
            heads, kv_heads, size, keys, self.causal, self.window, self.flash, self.dropout, self.value_size
        )
        seen = min(keys, self.window or keys)
        tensors: list[NamedShape] = []
        if self.buckets:
            tensors.append((style.names.attention, (self.buckets, heads)))
        if self.sinks:
            tensors.append((style.names.sinks, (heads,)))
        macs = length * seen * heads * (size + values)
        return InferredLayer((length, heads * values), tuple(tensors), macs, detail=detail)

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and traffic of attention, as one FlashAttention kernel or several kernels."""
        part = _attention_shape(layer)
        return _flash_work(layer, part) if _is_flash(part, flash) else _unfused_work(layer, part)

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Log-sum-exp of each row with flash attention, else the probabilities."""
        part = _attention_shape(layer)
        if _is_flash(part, flash):
            return ElementCounts(wide=part.heads * position_count(layer))
        scores = part.heads * position_count(layer) * part.keys
        return ElementCounts(
            elements=scores * (2 if part.dropout else 1), masks=scores if part.dropout else 0
        )

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Shards the heads over the ranks, if its inputs are sharded."""
        if not input_sharded:
            return LayerShard(layer)
        part = _attention_shape(layer)
        heads = replace(part, heads=part.heads // degree, kv_heads=max(part.kv_heads // degree, 1))
        return LayerShard(replace(shard_features(layer, degree), detail=heads), output_sharded=True)


def _attention_shape(layer: Layer) -> AttentionShape:
    """Heads, sizes and mask of an attention layer."""
    assert isinstance(layer.detail, AttentionShape)
    return layer.detail


def _is_flash(attention: AttentionShape, flash: bool | None) -> bool:
    """Whether attention runs as one FlashAttention kernel; `flash` overrides the layer's setting."""
    return attention.flash if flash is None else flash


def _flash_work(layer: Layer, attention: AttentionShape) -> Work:
    """FLOPs and traffic of FlashAttention, whose backward pass recomputes scores."""
    queries, read, out = layer.output_shape[0], layer.input_elements, layer.output_elements
    pairs = score_pair_count(attention, queries) * attention.heads
    nominal = 2.0 * layer.macs
    scores = Matmul(
        queries, pairs / (queries * attention.heads), attention.head_size, attention.heads, "times"
    )
    values = Matmul(queries, attention.value_features, scores.columns, attention.heads, "times")
    # Gradients of scores and of values are one product each; those of queries and of keys are as large as
    # the scores, which are recomputed.
    products = (scores, scores, scores, values, values)
    flops, back = scores.flops + values.flops, sum(product.flops for product in products)
    return Work(
        Pass(flops, nominal, read, out, 0, 1, (scores, values)),
        Pass(back, nominal * back / flops, read + 2 * out, read, 0, 2, products),
    )


def _unfused_work(layer: Layer, attention: AttentionShape) -> Work:
    """FLOPs and traffic of attention as separate kernels, which write scores to memory."""
    queries, read, out = layer.output_shape[0], layer.input_elements, layer.output_elements
    square = queries * attention.keys * attention.heads
    flops = 2.0 * layer.macs
    scores = Matmul(queries, attention.keys, attention.head_size, attention.heads, "times")
    values = Matmul(queries, attention.value_features, attention.keys, attention.heads, "times")
    dropped = 1 if attention.dropout else 0
    once, twice = (2 + dropped) * square, (5 + 2 * dropped) * square
    products = (scores, scores, values, values)
    return Work(
        Pass(flops, flops, read + once, out + once, 0, 3 + dropped, (scores, values)),
        Pass(2 * flops, 2 * flops, read + 2 * out + twice, read + once, 0, 5 + dropped, products),
    )


class Embedding(Weighted, frozen=True, kw_only=True):
    """A learned vector per token."""

    embedding: Size  # rows of the table: the vocabulary
    features: Size
    tied: Name | None = None

    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(2, 1)
    needs_input = True
    reads_indices = True
    autocast_wide_output = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape and table (new or tied); raises `ShapeMisfit` unless the input is a text."""
        if len(shapes[0]) != 1:
            raise ShapeMisfit(f"it reads a text, (sequence,), but its input is {format_shape(shapes[0])}")
        shape, table = (*shapes[0], self.features), (self.embedding, self.features)
        if self.tied:
            return InferredLayer(shape, tied=table)
        return InferredLayer(shape, ((self.weights_name(style), table),))

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and traffic of the lookup, and of the gradient of the whole table."""
        return replace(super().work(layer), weight_gradient=Pass(weight_elements=weight_elements(layer)))

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Vocabulary-parallel shard: each rank looks up the tokens of its rows."""
        return LayerShard(replace(layer, tensors=shard_tensors(layer.tensors, degree)), partial_sum=True)


class Positions(Weighted, frozen=True, kw_only=True):
    """A learned vector per position, added to the input."""

    positions: Size  # rows of the table: the longest sequence
    batched: bool = False  # the tensor has a first axis of one

    forward = MemoryTraffic(2, 1)
    backward = MemoryTraffic(1, 0)
    autocast_wide_output = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape and the table; raises `ShapeMisfit` if the sequence is longer than it."""
        length, features = sequence_sizes(shapes[0])
        if length > self.positions:
            raise ShapeMisfit(
                f"a sequence of {length:,} is longer than its {self.positions:,} positions;"
                " take a shorter one"
            )
        shape = (1, self.positions, features) if self.batched else (self.positions, features)
        return InferredLayer(shapes[0], ((self.weights_name(style), shape),))


class ClassToken(Weighted, frozen=True, kw_only=True):
    """A learned vector before the first position; `alone`: instead of all positions."""

    class_token: bool
    flat: bool = False  # the tensor has one axis, not three
    alone: bool = False

    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(1, 1)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the sequence with one more position (`alone`: one position) and the token's tensor."""
        length, features = sequence_sizes(shapes[0])
        tensors = ((self.weights_name(style), (features,) if self.flat else (1, 1, features)),)
        return InferredLayer((1 if self.alone else length + 1, features), tensors)


class Rotary(OneInput, frozen=True, kw_only=True):
    """Rotary position embeddings of queries or keys."""

    rotary: bool

    forward = MemoryTraffic(1, 1)
    backward = MemoryTraffic(1, 1)
    in_place = True
    passes_shard = True


class CrossEntropy(OneInput, frozen=True, kw_only=True):
    """Cross-entropy of each position over the vocabulary."""

    cross_entropy: bool

    # In single precision: log-probabilities, for which the logits are freed; gradients of both
    saved_per_logit: ClassVar[ElementCounts] = ElementCounts(wide=1)
    gradients_per_logit: ClassVar[ElementCounts] = ElementCounts(wide=2)
    forward = MemoryTraffic(4, 2)
    backward = MemoryTraffic(2, 2)
    kernels = (3, 2)
    accepts_shard = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the shape of a single value."""
        return InferredLayer((1,))

    @classmethod
    def pass_elements(cls, layer: Layer) -> int:
        """Number of logits."""
        return layer.input_elements

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Elements saved besides the logits."""
        return cls.saved_per_logit * layer.input_elements

    @classmethod
    def live_gradients(cls, layer: Layer, read_elements: int) -> ElementCounts:
        """Elements of the logits' gradient."""
        return cls.gradients_per_logit * read_elements


class HeldCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """Cross-entropy in a training loop that holds the logits until the step ends."""

    needs_input = True


class InPlaceCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """Cross-entropy whose gradient overwrites single-precision probabilities, as in Megatron."""

    gradients_per_logit = ElementCounts(elements=1)


class ChunkedCrossEntropy(CrossEntropy, frozen=True, kw_only=True):
    """Cross-entropy fused with the last linear layer, a chunk of positions at a time (Liger)."""

    saved_per_logit = ElementCounts()
    gradients_per_logit = ElementCounts()


class FusedCrossEntropy(ChunkedCrossEntropy, frozen=True, kw_only=True):
    """Cross-entropy in one kernel, whose gradient overwrites the logits (flash-attn)."""

    needs_input = True

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """One log-sum-exp per position."""
        return ElementCounts(wide=position_count(layer))


class ChunkedLinear(Linear, frozen=True, kw_only=True):
    """The linear layer before a chunked loss: one chunk of its output exists at a time, with its gradient."""

    @classmethod
    def live_gradients(cls, layer: Layer, read_elements: int) -> ElementCounts:
        """Elements of the input's gradient, and of one chunk of logits with its gradient."""
        return ElementCounts(elements=read_elements, wide=2 * layer.output_elements // CHUNKS)


def score_pair_count(attention: AttentionShape, queries: int) -> float:
    """Number of query-key pairs that one head of flash attention computes, masked ones excluded."""
    keys = min(attention.keys, attention.window or attention.keys)
    if not attention.causal:
        return queries * keys
    return queries * keys - keys * (keys - 1) / 2 if queries >= keys else queries * (keys - queries / 2)
