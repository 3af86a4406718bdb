"""Layers over sequences: attention, mixtures of experts, tables of tokens and positions, the loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from planner.model import AttentionShape, Experts, Layer
from planner.model.layers.base import (
    Inferred,
    Kind,
    LayerShard,
    Name,
    NamedShape,
    OneInput,
    Passes,
    Shape,
    ShapeMisfit,
    Size,
    SizeOrZero,
    Style,
    keys,
    narrowed,
    positions_of,
    sequence_of,
    tensor_shards,
    weight_elements,
    written,
)
from planner.model.layers.workload import ATTENTION, MATMUL, Kept, Matmul, Pass, Workload, score_pairs

_WEIGHTS = (Name, "{layer}/weights")
_EXPERT = Annotated[tuple[Name, ...], Meta(min_length=2, max_length=3)]


class Attention(Kind, frozen=True, kw_only=True):
    """Reads queries, keys and values: three layers, or one that gives all three side by side."""

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
    smallest = keys(attention=["any"], heads=1)
    tensor_names = keys(attention=(Name, "{layer}/distances"), sinks=(Name, "{layer}/sinks"))
    kernel_kind = ATTENTION
    kernels = (1, 2)
    needs_input = True
    needs_output = True
    recompute_policy = "save"
    accepts_shard = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        heads, kv_heads = self.heads, self.kv_heads or self.heads
        length, width = sequence_of(shapes[0])
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
            keys = sequence_of(shapes[1])[0]
            for shape, features in zip(shapes[1:], (size, values), strict=True):
                if shape != (keys, kv_heads * features):
                    wanted = written((keys, kv_heads * features))
                    raise ShapeMisfit(f"keys and values are {written(shape)}, not {wanted}")
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
        return Inferred((length, heads * values), tuple(tensors), macs, detail=detail)

    @classmethod
    def workload(cls, layer: Layer, *, reads_data: bool = False, flash: bool | None = None) -> Workload:
        part = _heads(layer)
        return _fused(layer, part) if _is_flash(part, flash) else _unfused(layer, part)

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        """The softmax's logarithm of each row from flash attention; else the probabilities."""
        part = _heads(layer)
        if _is_flash(part, flash):
            return Kept(wide=part.heads * positions_of(layer))
        scores = part.heads * positions_of(layer) * part.keys
        return Kept(elements=scores * (2 if part.dropout else 1), masks=scores if part.dropout else 0)

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        if not input_sharded:
            return LayerShard(layer)
        part = _heads(layer)
        heads = replace(part, heads=part.heads // degree, kv_heads=max(part.kv_heads // degree, 1))
        return LayerShard(replace(narrowed(layer, degree), detail=heads), output_sharded=True)


def _heads(layer: Layer) -> AttentionShape:
    assert isinstance(layer.detail, AttentionShape)
    return layer.detail


def _is_flash(part: AttentionShape, flash: bool | None) -> bool:
    return part.flash if flash is None else flash


def _fused(layer: Layer, part: AttentionShape) -> Workload:
    """Attention in one kernel (FlashAttention): backward recomputes the scores, so that it has five products
    to two."""
    queries, read, out = layer.output_shape[0], layer.input_elements, layer.output_elements
    pairs = score_pairs(part, queries) * part.heads
    nominal = 2.0 * layer.macs
    scores = Matmul(queries, pairs / (queries * part.heads), part.head_size, part.heads, "times")
    values = Matmul(queries, part.value_features, scores.columns, part.heads, "times")
    # Gradients of scores and of values are one product each; those of queries and of keys are as large as
    # the scores, which are recomputed.
    products = (scores, scores, scores, values, values)
    flops, back = scores.flops + values.flops, sum(product.flops for product in products)
    return Workload(
        Attention.kernel_kind,
        Pass(flops, nominal, read, out, 0, 1, (scores, values)),
        Pass(back, nominal * back / flops, read + 2 * out, read, 0, 2, products),
    )


def _unfused(layer: Layer, part: AttentionShape) -> Workload:
    """Attention whose scores are written to memory: products, softmax with its mask, dropout, each a
    kernel."""
    queries, read, out = layer.output_shape[0], layer.input_elements, layer.output_elements
    square = queries * part.keys * part.heads
    flops = 2.0 * layer.macs
    scores = Matmul(queries, part.keys, part.head_size, part.heads, "times")
    values = Matmul(queries, part.value_features, part.keys, part.heads, "times")
    dropped = 1 if part.dropout else 0
    once, twice = (2 + dropped) * square, (5 + 2 * dropped) * square
    return Workload(
        Attention.kernel_kind,
        Pass(flops, flops, read + once, out + once, 0, 3 + dropped, (scores, values)),
        Pass(
            2 * flops,
            2 * flops,
            read + 2 * out + twice,
            read + once,
            0,
            5 + dropped,
            (scores, scores, values, values),
        ),
    )


class Moe(OneInput, frozen=True, kw_only=True):
    """A mixture of experts: a router and feed-forward networks, of which each position uses some."""

    moe: Size  # experts
    top_k: Size
    features: Size  # inside an expert
    gated: bool = True
    shared_features: SizeOrZero = 0  # of all experts that everything goes through
    bias: bool = False  # of the experts
    router_bias: bool = False
    transposed: bool = False  # weights of experts are (experts, inputs, outputs) whatever the layout
    stacked: bool = False  # weights of all experts one below the other, (experts x features, width)

    smallest = keys(moe=1, top_k=1, features=1)
    tensor_names = keys(
        router=(Name, "{layer}/router"),
        experts=(_EXPERT, ("{layer}/expert{e}/gate", "{layer}/expert{e}/up", "{layer}/expert{e}/down")),
        shared=(_EXPERT, ("{layer}/shared/gate", "{layer}/shared/up", "{layer}/shared/down")),
    )
    kernel_kind = MATMUL
    kernels = (12, 20)
    needs_input = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        length, width = sequence_of(shapes[0])
        if self.top_k > self.moe:
            raise ShapeMisfit(f"top_k = {self.top_k} is more than its {self.moe} experts")
        router = style.names.router
        tensors: list[NamedShape] = [(router, style.weights(width, self.moe))]
        if self.router_bias:
            tensors.append((f"{router.removesuffix('weight')}bias", (self.moe,)))
        laid_out = replace(style, torch=style.torch and not self.transposed)
        for name, shape in self._feed_forward(style.names.experts, width, self.features, laid_out):
            if "{e}" in name:
                tensors += [(name.replace("{e}", str(expert)), shape) for expert in range(self.moe)]
            elif self.stacked:
                tensors.append((name, (self.moe * self.features, width)))
            else:
                tensors.append((name, (self.moe, *shape)))
            if self.bias:
                tensors.append((f"{name}_bias", (self.moe, shape[1 if self.transposed else 0])))
        if self.shared_features:
            tensors += self._feed_forward(style.names.shared, width, self.shared_features, style)
        ways = 3 if self.gated else 2
        inner = self.top_k * self.features + self.shared_features
        detail = Experts(self.moe, self.top_k, self.features, self.shared_features, self.gated)
        return Inferred(shapes[0], tuple(tensors), length * width * (self.moe + ways * inner), detail=detail)

    def _feed_forward(self, names: tuple[str, ...], width: int, inner: int, style: Style) -> list[NamedShape]:
        """Weights of one expert: gate and up (apart, or as one), and down; without a gate, up and down."""
        up, down = style.weights(width, inner), style.weights(inner, width)
        if not self.gated:
            return [(names[-2], up), (names[-1], down)]
        if len(names) == 2:
            return [(names[0], style.weights(width, 2 * inner)), (names[1], down)]
        return [(names[0], up), (names[1], up), (names[2], down)]

    @classmethod
    def workload(cls, layer: Layer, *, reads_data: bool = False, flash: bool | None = None) -> Workload:
        """A router, positions sorted by expert, two or three products for each expert, the weighted sum."""
        part = _experts(layer)
        positions, width = positions_of(layer), layer.output_shape[-1]
        sent = positions * part.top_k
        share = sent / part.experts  # positions of one expert, if they are sent evenly
        ways = 2 if part.gated else 1
        products = [
            Matmul(positions, part.experts, width),
            Matmul(share, part.inner * ways, width, part.experts),
            Matmul(share, width, part.inner, part.experts),
        ]
        if part.shared_inner:
            products += [
                Matmul(positions, part.shared_inner * ways, width),
                Matmul(positions, width, part.shared_inner),
            ]
        inner = sent * part.inner + positions * part.shared_inner
        # sorted in, read by the products, activated, written out, weighted and summed
        read = positions * width + 3 * sent * width + inner * (ways + 1) + positions * part.experts * 2
        written = 2 * sent * width + inner * (ways + 1) + positions * (width + part.experts * 2)
        weights = sum(tensor.elements for tensor in layer.tensors)
        flops = sum(product.flops for product in products)
        backward = tuple(gradient for product in products for gradient in product.gradients())
        return Workload(
            cls.kernel_kind,
            Pass(flops, flops, read, written, weights, cls.kernels[0], tuple(products)),
            Pass(2 * flops, 2 * flops, 2 * read, 2 * written, 2 * weights, cls.kernels[1], backward),
        )

    @classmethod
    def frozen(cls, layer: Layer, training: Workload) -> Workload:
        """Half of the backward products remain: those of gradients of activations."""
        back, ahead = training.backward, training.forward
        return replace(
            training,
            backward=replace(
                back,
                flops=back.flops / 2,
                nominal_flops=back.nominal_flops / 2,
                read_elements=ahead.read_elements,
                written_elements=ahead.written_elements,
                weight_elements=ahead.weight_elements,
                matmuls=back.matmuls[1::2],
            ),
        )

    @classmethod
    def saved(cls, layer: Layer, *, flash: bool | None = None) -> Kept:
        part = _experts(layer)
        positions, width = positions_of(layer), layer.output_shape[-1]
        inner = part.top_k * part.inner + part.shared_inner
        sent = part.top_k * 2 * width  # inputs of the experts, and outputs before they are weighted
        activated = inner * (3 if part.gated else 2)
        return Kept(elements=positions * (sent + activated), wide=positions * part.experts)

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        inner = replace(_experts(layer), inner=_experts(layer).inner // degree)
        tensors = tensor_shards(layer.tensors, degree)
        share = replace(layer, detail=inner, tensors=tensors, macs=layer.macs // degree)
        return LayerShard(share, partial_sum=True)


def _experts(layer: Layer) -> Experts:
    assert isinstance(layer.detail, Experts)
    return layer.detail


class Embedding(OneInput, frozen=True, kw_only=True):
    """A vector for each token of a text."""

    embedding: Size  # rows of the table: the vocabulary
    features: Size
    tied: Name | None = None
    weights: Name | None = None

    tensor_names = keys(embedding=_WEIGHTS)
    forward = Passes(1, 1)
    backward = Passes(2, 1)
    needs_input = True
    reads_indices = True
    autocast_wide_output = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        if len(shapes[0]) != 1:
            raise ShapeMisfit(f"it reads a text, (sequence,), but its input is {written(shapes[0])}")
        shape, table = (*shapes[0], self.features), (self.embedding, self.features)
        if self.tied:
            return Inferred(shape, tied=table)
        return Inferred(shape, ((self.weights or style.names.embedding, table),))

    @classmethod
    def gradient_table(cls, layer: Layer) -> int:
        return weight_elements(layer)

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Vocabulary-parallel: each rank looks up the tokens of its rows."""
        return LayerShard(replace(layer, tensors=tensor_shards(layer.tensors, degree)), partial_sum=True)


class Positions(OneInput, frozen=True, kw_only=True):
    """A learned vector for each position, added to what is read."""

    positions: Size  # rows of the table: the longest sequence
    batched: bool = False  # the tensor has a first axis of one
    weights: Name | None = None

    tensor_names = keys(positions=_WEIGHTS)
    forward = Passes(2, 1)
    backward = Passes(1, 0)
    autocast_wide_output = True

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        length, features = sequence_of(shapes[0])
        if length > self.positions:
            raise ShapeMisfit(
                f"a sequence of {length:,} is longer than its {self.positions:,} positions;"
                " take a shorter one"
            )
        shape = (1, self.positions, features) if self.batched else (self.positions, features)
        return Inferred(shapes[0], ((self.weights or style.names.positions, shape),))


class ClassToken(OneInput, frozen=True, kw_only=True):
    """A learned vector before the first position; `alone`: instead of them."""

    class_token: bool
    flat: bool = False  # the tensor has one axis, not three
    alone: bool = False
    weights: Name | None = None

    tensor_names = keys(class_token=_WEIGHTS)
    forward = Passes(1, 1)
    backward = Passes(1, 1)

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        length, features = sequence_of(shapes[0])
        tensors = ((self.weights or style.names.class_token, (features,) if self.flat else (1, 1, features)),)
        return Inferred((1 if self.alone else length + 1, features), tensors)


class Take(OneInput, frozen=True, kw_only=True):
    """The first position of a sequence."""

    take: Literal[1]

    def infer(self, shapes: list[Shape], style: Style) -> Inferred:
        return Inferred(sequence_of(shapes[0])[1:])


class Rotary(OneInput, frozen=True, kw_only=True):
    """Rotary position embeddings of queries or keys."""

    rotary: bool

    forward = Passes(1, 1)
    backward = Passes(1, 1)
    in_place = True
    passes_shard = True
