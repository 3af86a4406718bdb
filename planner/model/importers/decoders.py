"""Networks that write: the decoder families of Hugging Face, as the values of a model file.

Each function takes a configuration and gives the layers and blocks of the network, with the names of its
tensors as `transformers` 5 has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.model.importers.config import Config, Item, Network, layer, linear, loss, repeated
from planner.model.layers import FILE_KINDS, kind_name
from planner.model.layers.elementwise import Add, Gelu, LayerNorm, Multiply, RmsNorm, Silu
from planner.model.layers.sequences import Attention, Embedding, Moe, Positions, Rotary


def llama(config: Config) -> Network:
    """Llama, Mistral, Qwen 2, Gemma, and Mixtral with its experts."""
    width = config.number("hidden_size")
    heads = config.heads(width)
    kv_heads = config.number("num_key_value_heads", default=heads)
    size = config.number("head_dim", default=max(1, width // heads))
    bias = config.flag("attention_bias", config.family == "qwen2")
    inner = config.number("intermediate_size")
    block = [
        layer(RmsNorm, True, name="input_layernorm"),
        linear(heads * size, "self_attn.q_proj", bias=bias),
        linear(kv_heads * size, "self_attn.k_proj", "input_layernorm", bias=bias),
        linear(kv_heads * size, "self_attn.v_proj", "input_layernorm", bias=bias),
        *_rotary(),
        _attention(config, "self_attn", heads, kv_heads, size, window=_window(config)),
        linear(width, "self_attn.o_proj", bias=bias and config.family != "qwen2"),
        layer(Add, ["input", "self_attn.o_proj"], name="attended"),
        layer(RmsNorm, True, name="post_attention_layernorm"),
    ]
    tensors: dict[str, Any] = {}
    if config.family == "mixtral":
        experts = config.number("num_local_experts")
        top_k = config.number("num_experts_per_tok", default=2)
        if top_k > experts:
            raise config.error(f"num_experts_per_tok is {top_k}, more than its {experts} experts")
        block.append(layer(Moe, experts, top_k=top_k, features=inner, name="mlp"))
        tensors = {
            "router": "{layer}.gate.weight",
            "experts": ["{layer}.experts.gate_up_proj", "{layer}.experts.down_proj"],
        }
        last = "mlp"
    else:
        mlp_bias = config.flag("mlp_bias", False)
        activation = config.activation("hidden_act", "hidden_activation", default=kind_name(Silu))
        block += [
            linear(inner, "mlp.gate_proj", bias=mlp_bias),
            linear(inner, "mlp.up_proj", "post_attention_layernorm", bias=mlp_bias),
            layer(FILE_KINDS[activation], True,
                  from_="mlp.gate_proj", name="mlp.act_fn"),
            layer(Multiply, ["mlp.act_fn", "mlp.up_proj"], name="mlp.gated"),
            linear(width, "mlp.down_proj", bias=mlp_bias),
        ]  # fmt: skip
        last = "mlp.down_proj"
    block.append(layer(Add, ["attended", last], name="out"))
    layers = [
        _embedding(config, width, "model.embed_tokens"),
        repeated("model.layers", config.count("num_hidden_layers")),
        layer(RmsNorm, True, name="model.norm"),
        *_head(config, "model.embed_tokens", tied=config.family == "gemma"),
    ]
    return Network(layers, {"layer": block}, tensors)


def gpt2(config: Config) -> Network:
    width = config.number("n_embd", "hidden_size")
    heads = config.heads(width, "n_head", "num_attention_heads")
    inner = config.number("n_inner", default=4 * width)
    dropout = config.share("resid_pdrop")
    block = [
        layer(LayerNorm, True, name="ln_1"),
        linear(3 * width, "attn.c_attn", transposed=True),
        _attention(config, "attn", heads, source=["attn.c_attn"], dropout=config.share("attn_pdrop")),
        linear(width, "attn.c_proj", transposed=True, dropout=dropout),
        layer(Add, ["input", "attn.c_proj"], name="attended"),
        layer(LayerNorm, True, name="ln_2"),
        linear(inner, "mlp.c_fc", transposed=True, then=[config.activation("activation_function")]),
        linear(width, "mlp.c_proj", transposed=True, dropout=dropout),
        layer(Add, ["attended", "mlp.c_proj"], name="out"),
    ]
    longest = config.number("n_positions", "max_position_embeddings")
    positions = layer(Positions, longest, name="transformer.wpe")
    if config.share("embd_pdrop"):
        positions["then"] = ["dropout"]
    layers = [
        _embedding(config, width, "transformer.wte"),
        positions,
        repeated("transformer.h", config.count("n_layer", "num_hidden_layers")),
        layer(LayerNorm, True, name="transformer.ln_f"),
        *_head(config, "transformer.wte", tied=True),
    ]
    return Network(layers, {"layer": block})


def opt(config: Config) -> Network:
    width = config.number("hidden_size")
    narrow = config.number("word_embed_proj_dim", default=width)
    bias, before = config.flag("enable_bias", True), config.flag("do_layer_norm_before", True)
    dropout = config.share("dropout")
    norm = layer(LayerNorm, True, name="self_attn_layer_norm")
    last_norm = layer(LayerNorm, True, name="final_layer_norm")
    source = "self_attn_layer_norm" if before else "input"
    attended = "attended" if before else "self_attn_layer_norm"
    block = [
        *([norm] if before else []),
        *(linear(width, f"self_attn.{part}_proj", source, bias=bias) for part in "qkv"),
        _attention(config, "self_attn", config.heads(width), dropout=config.share("attention_dropout")),
        linear(width, "self_attn.out_proj", bias=bias, dropout=dropout),
        layer(Add, ["input", "self_attn.out_proj"], name="attended"),
        *([last_norm] if before else [norm]),
        linear(config.number("ffn_dim"), "fc1", bias=bias, then=[config.activation("activation_function")]),
        linear(width, "fc2", bias=bias, dropout=dropout),
        layer(Add, [attended, "fc2"], name="out"),
        *([] if before else [last_norm]),
    ]
    table = config.number("max_position_embeddings")
    positions = layer(Positions, table + 2, name="model.decoder.embed_positions")  # two are for padding
    closing = before and not config.flag("_remove_final_layer_norm", False)
    layers = [
        _embedding(config, narrow, "model.decoder.embed_tokens"),
        *([linear(width, "model.decoder.project_in", bias=False)] if narrow != width else []),
        positions,
        repeated("model.decoder.layers", config.count("num_hidden_layers")),
        *([layer(LayerNorm, True, name="model.decoder.final_layer_norm")] if closing else []),
        *([linear(narrow, "model.decoder.project_out", bias=False)] if narrow != width else []),
        *_head(config, "model.decoder.embed_tokens", tied=True),
    ]
    return Network(layers, {"layer": block})


def gpt_neox(config: Config) -> Network:
    width = config.number("hidden_size")
    heads = config.heads(width)
    bias, dropout = config.flag("attention_bias", True), config.share("hidden_dropout")
    beside = config.flag("use_parallel_residual", True)
    inner = config.number("intermediate_size")
    block = [
        layer(LayerNorm, True, name="input_layernorm"),
        linear(3 * width, "attention.query_key_value", bias=bias),
        layer(Rotary, True, name="attention.rotary"),
        _attention(config, "attention", heads, source=["attention.rotary"]),
        linear(width, "attention.dense", bias=bias, dropout=dropout),
        layer(Add, ["input", "attention.dense"], name="attended"),
        layer(LayerNorm, True, from_="input" if beside else None, name="post_attention_layernorm"),
        linear(inner, "mlp.dense_h_to_4h", then=[config.activation("hidden_act")]),
        linear(width, "mlp.dense_4h_to_h", dropout=dropout),
        layer(Add, ["attended", "mlp.dense_4h_to_h"], name="out"),
    ]
    layers = [
        _embedding(config, width, "gpt_neox.embed_in"),
        repeated("gpt_neox.layers", config.count("num_hidden_layers")),
        layer(LayerNorm, True, name="gpt_neox.final_layer_norm"),
        *_head(config, "gpt_neox.embed_in", tied=False),
    ]
    return Network(layers, {"layer": block})


def phi(config: Config) -> Network:
    """Attention and the feed-forward network beside each other."""
    width = config.number("hidden_size")
    heads = config.heads(width)
    kv_heads = config.number("num_key_value_heads", default=heads)
    size = max(1, width // heads)
    dropout = config.share("resid_pdrop")
    if config.flag("qk_layernorm", False):
        config.notes.append("norms of queries and keys (qk_layernorm) are left out")
    block = [
        layer(LayerNorm, True, name="input_layernorm"),
        linear(heads * size, "self_attn.q_proj"),
        linear(kv_heads * size, "self_attn.k_proj", "input_layernorm"),
        linear(kv_heads * size, "self_attn.v_proj", "input_layernorm"),
        *_rotary(),
        _attention(config, "self_attn", heads, kv_heads, size),
        linear(width, "self_attn.dense", dropout=dropout),
        linear(config.number("intermediate_size", default=4 * width), "mlp.fc1", "input_layernorm",
               then=[config.activation("hidden_act")]),
        linear(width, "mlp.fc2", dropout=dropout),
        layer(Add, ["self_attn.dense", "mlp.fc2", "input"], name="out"),
    ]  # fmt: skip
    layers = [
        _embedding(config, width, "model.embed_tokens"),
        repeated("model.layers", config.count("num_hidden_layers")),
        layer(LayerNorm, True, name="model.final_layernorm"),
        *_head(config, "model.embed_tokens", tied=False, bias=True),
    ]
    return Network(layers, {"layer": block})


def mpt(config: Config) -> Network:
    width = config.number("d_model", "hidden_size")
    ratio = config.number("expansion_ratio", default=4, most=1000)
    bias = not config.flag("no_bias", True)
    heads = config.heads(width, "n_heads", "num_attention_heads")
    block = [
        layer(LayerNorm, True, name="norm_1"),
        linear(3 * width, "attn.Wqkv", bias=bias),
        _attention(config, "attn", heads, source=["attn.Wqkv"]),
        linear(width, "attn.out_proj", bias=bias),
        layer(Add, ["input", "attn.out_proj"], name="attended"),
        layer(LayerNorm, True, name="norm_2"),
        linear(ratio * width, "ffn.up_proj", bias=bias, then=[kind_name(Gelu)]),
        linear(width, "ffn.down_proj", bias=bias),
        layer(Add, ["attended", "ffn.down_proj"], name="out"),
    ]
    layers = [
        _embedding(config, width, "transformer.wte"),
        repeated("transformer.blocks", config.count("n_layers", "num_hidden_layers")),
        layer(LayerNorm, True, name="transformer.norm_f"),
        *_head(config, "transformer.wte", tied=True),
    ]
    return Network(layers, {"layer": block}, defaults={kind_name(LayerNorm): {"bias": bias}})


def falcon(config: Config) -> Network:
    """Falcon 7B with one norm and one key/value head, 40B with two norms and groups, and those before
    them."""
    width = config.number("hidden_size")
    heads = config.heads(width, "num_attention_heads", "n_head")
    newer = config.flag("new_decoder_architecture", False)
    beside = newer or config.flag("parallel_attn", True)
    bias = config.flag("bias", False)
    norms = config.number("num_ln_in_parallel_attn", default=2 if newer else 1)
    if newer:
        kv_heads = config.number("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if config.flag("multi_query", True) else heads
    size = max(1, width // heads)
    two = newer and norms == 2
    first = "ln_attn" if two else "input_layernorm"
    middle = "ln_mlp" if two else "input_layernorm" if beside else "post_attention_layernorm"
    alibi = config.flag("alibi", False)
    block: list[Item] = [layer(LayerNorm, True, name=first)]
    if two:
        block.append(layer(LayerNorm, True, from_="input", name="ln_mlp"))
    block.append(linear((heads + 2 * kv_heads) * size, "self_attention.query_key_value", first, bias=bias))
    if not alibi:
        block.append(layer(Rotary, True, name="self_attention.rotary"))
    source = "self_attention.query_key_value" if alibi else "self_attention.rotary"
    block += [
        _attention(config, "self_attention", heads, kv_heads, source=[source]),
        linear(width, "self_attention.dense", bias=bias),
    ]
    if not beside:
        block += [
            layer(Add, ["input", "self_attention.dense"], name="attended"),
            layer(LayerNorm, True, name="post_attention_layernorm"),
        ]
    inner = config.number("ffn_hidden_size", default=4 * width)
    joined = ["input", "self_attention.dense"] if beside else ["attended"]
    block += [
        linear(inner, "mlp.dense_h_to_4h", middle, bias=bias, then=[config.activation("activation")]),
        linear(width, "mlp.dense_4h_to_h", bias=bias),
        layer(Add, [*joined, "mlp.dense_4h_to_h"], name="out"),
    ]
    layers = [
        _embedding(config, width, "transformer.word_embeddings"),
        repeated("transformer.h", config.count("num_hidden_layers", "n_layer")),
        layer(LayerNorm, True, name="transformer.ln_f"),
        *_head(config, "transformer.word_embeddings", tied=True),
    ]
    return Network(layers, {"layer": block})


def _embedding(config: Config, width: int, name: str) -> Item:
    return layer(Embedding, config.number("vocab_size"), features=width, name=name)


def _head(config: Config, embedding: str, *, tied: bool, bias: bool = False) -> list[Item]:
    """Logits and loss."""
    shared = embedding if config.flag("tie_word_embeddings", tied) else None
    return [linear(config.number("vocab_size"), "lm_head", bias=bias, tied=shared), loss()]


def _rotary() -> list[Item]:
    return [
        layer(Rotary, True, from_=f"self_attn.{of}_proj", name=f"self_attn.{of}_rotary") for of in ("q", "k")
    ]


def _attention(
    config: Config,
    scope: str,
    heads: int,
    kv_heads: int | None = None,
    size: int | None = None,
    *,
    window: int | None = None,
    source: list[str] | None = None,
    dropout: bool = False,
) -> Item:
    """Causal attention over the layers of a scope."""
    if kv_heads and heads % kv_heads:
        raise config.error(f"{heads} heads are no multiple of {kv_heads} key/value heads")
    turned = config.family in ("llama", "mistral", "mixtral", "qwen2", "gemma", "phi")
    reads = [f"{scope}.q_rotary", f"{scope}.k_rotary"] if turned else [f"{scope}.q_proj", f"{scope}.k_proj"]
    return layer(
        Attention,
        source or [*reads, f"{scope}.v_proj"],
        heads=heads,
        kv_heads=kv_heads if kv_heads != heads else None,
        head_size=size if size and source is None else None,
        causal=True,
        window=window,
        dropout=dropout or config.share("attention_dropout") or None,
        name=scope,
    )


def _window(config: Config) -> int | None:
    used = config.flag("use_sliding_window", config.family in ("mistral", "mixtral"))
    if not used or config.values.get("sliding_window") is None:
        return None
    return config.number("sliding_window")


DECODERS: dict[str, Callable[[Config], Network]] = {
    "falcon": falcon,
    "gemma": llama,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "llama": llama,
    "mistral": llama,
    "mixtral": llama,
    "mpt": mpt,
    "opt": opt,
    "phi": phi,
    "qwen2": llama,
}
