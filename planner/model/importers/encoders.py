"""Networks that read: BERT, ViT, and T5, which does both, as the values of a model file."""

from __future__ import annotations

from collections.abc import Callable

from planner.model.importers.config import Config, Item, Network, layer, linear, loss, repeated
from planner.model.layers.elementwise import Add, LayerNorm, Multiply, RmsNorm, Softmax, Tanh
from planner.model.layers.losses import CrossEntropy
from planner.model.layers.products import Patches
from planner.model.layers.sequences import Attention, ClassToken, Embedding, Positions, Take

T5_TARGETS = 114  # of 512 tokens with 15% of them masked in spans of 3


def bert(config: Config) -> Network:
    width, dropout = config.number("hidden_size"), config.share("hidden_dropout_prob")
    inner, activation = config.number("intermediate_size"), config.activation("hidden_act")
    reads = [f"attention.self.{part}" for part in ("query", "key", "value")]
    block = [
        *(linear(width, name, "input") for name in reads),
        layer(Attention, reads, heads=config.heads(width),
              dropout=config.share("attention_probs_dropout_prob") or None, name="attention.self"),
        linear(width, "attention.output.dense", dropout=dropout),
        layer(Add, ["input", "attention.output.dense"], name="attended"),
        layer(LayerNorm, True, name="attention.output.LayerNorm"),
        linear(inner, "intermediate.dense", then=[activation]),
        linear(width, "output.dense", dropout=dropout),
        layer(Add, ["attention.output.LayerNorm", "output.dense"], name="out"),
        layer(LayerNorm, True, name="output.LayerNorm"),
    ]  # fmt: skip
    scope, vocabulary = "bert.embeddings", config.number("vocab_size")
    types, depth = config.number("type_vocab_size", default=2), config.count("num_hidden_layers")
    layers = [
        layer(Embedding, vocabulary, features=width, name=f"{scope}.word_embeddings"),
        layer(Positions, config.number("max_position_embeddings"), name=f"{scope}.position_embeddings"),
        layer(Embedding, types, features=width, from_="input", name=f"{scope}.token_type_embeddings"),
        layer(Add, [f"{scope}.position_embeddings", f"{scope}.token_type_embeddings"], name=f"{scope}.sum"),
        layer(LayerNorm, True, name=f"{scope}.LayerNorm", then=["dropout"] if dropout else None),
        repeated("bert.encoder.layer", depth),
    ]
    named = config.values.get("architectures")
    head = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else "BertForMaskedLM"
    if head == "BertForPreTraining":
        layers += [
            layer(Take, 1, name="bert.pooler"),
            linear(width, "bert.pooler.dense"),
            layer(Tanh, True, name="bert.pooler.activation"),
            linear(2, "cls.seq_relationship"),
            layer(CrossEntropy, True, name="loss_of_order"),
        ]
    elif head != "BertForMaskedLM":
        config.notes.append(f"the head of {head[:60]!r} is not known; that of BertForMaskedLM is taken")
    last, transform = f"bert.encoder.layer.{depth - 1}", "cls.predictions.transform"
    decoder = linear(vocabulary, "cls.predictions.decoder", tied=f"{scope}.word_embeddings")
    layers += [
        linear(width, f"{transform}.dense", last, then=[activation]),
        layer(LayerNorm, True, name=f"{transform}.LayerNorm"),
        {**decoder, "biases": "cls.predictions.bias"},
        loss(),
    ]
    return Network(layers, {"layer": block})


def vit(config: Config) -> Network:
    width = config.number("hidden_size")
    size, patch = config.number("image_size"), config.number("patch_size")
    bias, dropout = config.flag("qkv_bias", True), config.share("hidden_dropout_prob")
    reads = [f"attention.{part}_proj" for part in "qkv"]
    block = [
        layer(LayerNorm, True, name="layernorm_before"),
        *(linear(width, name, "layernorm_before", bias=bias) for name in reads),
        layer(Attention, reads, heads=config.heads(width), name="attention"),
        linear(width, "attention.o_proj", dropout=dropout),
        layer(Add, ["input", "attention.o_proj"], name="attended"),
        layer(LayerNorm, True, name="layernorm_after"),
        linear(config.number("intermediate_size"), "mlp.fc1", then=[config.activation("hidden_act")]),
        linear(width, "mlp.fc2", dropout=dropout),
        layer(Add, ["attended", "mlp.fc2"], name="out"),
    ]
    labels = config.values.get("id2label")
    classes = len(labels) if isinstance(labels, dict) and labels else config.number("num_labels", default=2)
    if patch > size:
        raise config.error(f"patches of {patch} pixels do not fit into images of {size}")
    positions = (size // patch) ** 2 + 1
    layers = [
        layer(Patches, width, size=patch, name="vit.embeddings.patch_embeddings.projection"),
        layer(ClassToken, True, weights="vit.embeddings.cls_token"),
        layer(Positions, positions, batched=True, weights="vit.embeddings.position_embeddings",
              name="vit.embeddings"),
        repeated("vit.layers", config.count("num_hidden_layers")),
        layer(LayerNorm, True, name="vit.layernorm"),
        layer(Take, 1, name="class"),
        linear(classes, "classifier"),
        layer(Softmax, True, name="loss"),
    ]  # fmt: skip
    return Network(layers, {"layer": block}, input=[size, size, config.number("num_channels", default=3)])


def t5(config: Config) -> Network:
    width, heads = config.number("d_model"), config.number("num_heads")
    features = heads * config.number("d_kv")
    dropout = config.share("dropout_rate")
    after = ["dropout"] if dropout else None
    depth = config.count("num_layers")
    decoders = config.number("num_decoder_layers", default=depth, most=2000)
    vocabulary = config.number("vocab_size")
    buckets = config.number("relative_attention_num_buckets", default=32)
    common = {"heads": heads, "flash": False, "dropout": dropout or None}

    def attention(scope: str, source: str, **keys: object) -> list[Item]:
        return [
            layer(RmsNorm, True, name="layer_norm"),
            linear(features, f"{scope}.q", bias=False),
            linear(features, f"{scope}.k", source, bias=False),
            linear(features, f"{scope}.v", source, bias=False),
            layer(Attention, [f"{scope}.{part}" for part in "qkv"], **common, **keys, name=scope),
            linear(width, f"{scope}.o", bias=False, dropout=dropout),
            layer(Add, ["input", f"{scope}.o"], name="out"),
        ]

    own = attention("SelfAttention", "layer_norm", buckets="$buckets", causal="$causal")
    cross = attention("EncDecAttention", "encoder.final_layer_norm")
    blocks: dict[str, list[Item]] = {
        "encoder": [
            {"block": "attention", "name": "layer.0", "buckets": "$buckets", "causal": False},
            {"block": "feed_forward", "name": "layer.1"},
        ],
        "decoder": [
            {"block": "attention", "name": "layer.0", "buckets": "$buckets", "causal": True},
            {"block": "cross", "name": "layer.1"},
            {"block": "feed_forward", "name": "layer.2"},
        ],
        "attention": own,
        "cross": cross,
        "feed_forward": _t5_feed_forward(config, width, dropout),
    }
    embedded = {"features": width, "then": after}
    layers = [layer(Embedding, vocabulary, **embedded, name="shared")]
    for part, count in (("encoder", depth), ("decoder", decoders)):
        if part == "decoder":
            name = "decoder.embed_tokens"
            keys = {"tied": "shared", "from_": "targets", **embedded}
            layers.append(layer(Embedding, vocabulary, **keys, name=name))
        layers.append(repeated(f"{part}.block", 1, part, buckets=buckets))
        if count > 1:
            layers.append({**repeated(f"{part}.block", count - 1, part, buckets=0), "first": 1})
        layers.append(layer(RmsNorm, True, name=f"{part}.final_layer_norm", then=after))
    tied = "shared" if config.flag("tie_word_embeddings", True) else None
    layers += [linear(vocabulary, "lm_head", bias=False, tied=tied), loss()]
    names = {"attention": "{layer}.relative_attention_bias.weight"}
    return Network(layers, blocks, names, target_length=T5_TARGETS)


def _t5_feed_forward(config: Config, width: int, dropout: bool) -> list[Item]:
    inner, word = config.number("d_ff"), config.word("feed_forward_proj", default="relu")
    gated, activation = word.startswith("gated"), word.removeprefix("gated-")
    config.values.setdefault("_activation", activation)
    kind = config.activation("_activation")
    block = [layer(RmsNorm, True, name="layer_norm")]
    if gated:
        block += [
            linear(inner, "DenseReluDense.wi_0", bias=False, then=[kind]),
            linear(inner, "DenseReluDense.wi_1", "layer_norm", bias=False),
            layer(Multiply, ["DenseReluDense.wi_0", "DenseReluDense.wi_1"], name="gated",
                  then=["dropout"] if dropout else None),
        ]  # fmt: skip
    else:
        block.append(linear(inner, "DenseReluDense.wi", bias=False, then=[kind], dropout=dropout))
    return [
        *block,
        linear(width, "DenseReluDense.wo", bias=False, dropout=dropout),
        layer(Add, ["input", "DenseReluDense.wo"], name="out"),
    ]


ENCODERS: dict[str, Callable[[Config], Network]] = {"bert": bert, "t5": t5, "vit": vit}
