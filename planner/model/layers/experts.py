"""Mixtures of experts: a router and the feed-forward networks among which it distributes positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from planner.model import Experts, Layer
from planner.model.layers.base import (
    EXPERTS,
    ElementCounts,
    InferredLayer,
    LayerShard,
    Matmul,
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
    position_count,
    read_only_mapping,
    sequence_sizes,
    shard_tensors,
)
from planner.model.layers.products import product_work

_EXPERT = Annotated[tuple[Name, ...], Meta(min_length=2, max_length=3)]


class Moe(OneInput, frozen=True, kw_only=True):
    """A mixture of experts: a router, and feed-forward networks that each process some positions."""

    moe: Size  # experts
    top_k: Size
    features: Size  # inside an expert
    gated: bool = True
    shared_features: SizeOrZero = 0  # of the shared experts together
    bias: bool = False  # of the experts
    router_bias: bool = False
    transposed: bool = False  # weights of experts are (experts, inputs, outputs) whatever the layout
    stacked: bool = False  # weights of all experts one below the other, (experts x features, width)

    smallest = read_only_mapping(moe=1, top_k=1, features=1)
    tensor_names = read_only_mapping(
        router=(Name, "{layer}/router"),
        experts=(_EXPERT, ("{layer}/expert{e}/gate", "{layer}/expert{e}/up", "{layer}/expert{e}/down")),
        shared=(_EXPERT, ("{layer}/shared/gate", "{layer}/shared/up", "{layer}/shared/down")),
    )
    kernel_kind = EXPERTS
    kernels = (12, 20)
    needs_input = True

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns the input's shape, tensors of router and experts, and multiply-adds of active experts."""
        length, width = sequence_sizes(shapes[0])
        if self.top_k > self.moe:
            raise ShapeMisfit(f"top_k = {self.top_k} is more than its {self.moe} experts")
        router = style.names.router
        tensors: list[NamedShape] = [(router, style.weight_shape(width, self.moe))]
        if self.router_bias:
            tensors.append((f"{router.removesuffix('weight')}bias", (self.moe,)))
        laid_out = replace(style, torch=style.torch and not self.transposed)
        for name, shape in self._expert_tensors(style.names.experts, width, self.features, laid_out):
            if "{e}" in name:
                tensors += [(name.replace("{e}", str(expert)), shape) for expert in range(self.moe)]
            elif self.stacked:
                tensors.append((name, (self.moe * self.features, width)))
            else:
                tensors.append((name, (self.moe, *shape)))
            if self.bias:
                tensors.append((f"{name}_bias", (self.moe, shape[1 if self.transposed else 0])))
        if self.shared_features:
            tensors += self._expert_tensors(style.names.shared, width, self.shared_features, style)
        ways = 3 if self.gated else 2
        inner = self.top_k * self.features + self.shared_features
        detail = Experts(self.moe, self.top_k, self.features, self.shared_features, self.gated)
        return InferredLayer(
            shapes[0], tuple(tensors), length * width * (self.moe + ways * inner), detail=detail
        )

    def _expert_tensors(
        self, names: tuple[str, ...], width: int, inner: int, style: Style
    ) -> list[NamedShape]:
        """Names and shapes of an expert's weights: gate and up (separate or fused), and down."""
        up, down = style.weight_shape(width, inner), style.weight_shape(inner, width)
        if not self.gated:
            return [(names[-2], up), (names[-1], down)]
        if len(names) == 2:
            return [(names[0], style.weight_shape(width, 2 * inner)), (names[1], down)]
        return [(names[0], up), (names[1], up), (names[2], down)]

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and traffic of router, sorting, two or three products per expert, and weighted sum."""
        part = _expert_shape(layer)
        positions, width = position_count(layer), layer.output_shape[-1]
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
        for_weights, for_inputs = zip(*(product.backward_products() for product in products), strict=True)
        forward = Pass(flops, flops, read, written, weights, cls.kernels[0], tuple(products))
        return Work(
            forward,
            replace(forward, kernels=cls.kernels[1], matmuls=for_inputs),
            replace(forward, kernels=0, matmuls=for_weights),
        )

    @classmethod
    def saved_activations(cls, layer: Layer, *, flash: bool | None = None) -> ElementCounts:
        """Elements saved: router scores, inputs and outputs of experts, and inner features."""
        part = _expert_shape(layer)
        positions, width = position_count(layer), layer.output_shape[-1]
        inner = part.top_k * part.inner + part.shared_inner
        sent = part.top_k * 2 * width  # inputs of the experts, and outputs before they are weighted
        activated = inner * (3 if part.gated else 2)
        return ElementCounts(elements=positions * (sent + activated), wide=positions * part.experts)

    @classmethod
    def shard(
        cls, layer: Layer, degree: int, *, input_sharded: bool, output_may_shard: bool, sequence: bool
    ) -> LayerShard:
        """Shards the inner features of every expert."""
        inner = replace(_expert_shape(layer), inner=_expert_shape(layer).inner // degree)
        tensors = shard_tensors(layer.tensors, degree)
        share = replace(layer, detail=inner, tensors=tensors, macs=layer.macs // degree)
        return LayerShard(share, partial_sum=True)


class GroupedLinear(Weighted, frozen=True, kw_only=True):
    """One grouped product of experts: each row times its expert's weights. Written by importers."""

    grouped_linear: Size  # output features
    experts: Size
    transposed: bool = False  # weights are (experts, inputs, outputs) whatever the layout

    kernel_kind = EXPERTS
    needs_input = True
    input_for_weights = True
    kernels = (1, 2)

    def infer_shape(self, shapes: list[Shape], style: Style) -> InferredLayer:
        """Returns output shape, weights of all experts, and multiply-adds of one expert per row."""
        rows, inputs = sequence_sizes(shapes[0])
        style = replace(style, torch=style.torch and not self.transposed)
        size = (self.experts, *style.weight_shape(inputs, self.grouped_linear))
        tensors = ((self.weights_name(style), size),)
        detail = Experts(self.experts, 1, self.grouped_linear, gated=False)
        macs = rows * inputs * self.grouped_linear
        return InferredLayer((rows, self.grouped_linear), tensors, macs, detail=detail)

    @classmethod
    def work(cls, layer: Layer, *, trained: bool = True, flash: bool | None = None) -> Work:
        """FLOPs and traffic of one product per expert."""
        rows, columns = layer.output_shape
        experts = _expert_shape(layer).experts
        return product_work(Matmul(rows / experts, columns, layer.macs / (rows * columns), experts), layer)


def _expert_shape(layer: Layer) -> Experts:
    """Number and sizes of the experts in a mixture-of-experts layer."""
    assert isinstance(layer.detail, Experts)
    return layer.detail
