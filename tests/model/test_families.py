"""Families of one's own, and what their files may not say."""

import json
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import import_file
from planner.model.layers import workloads

LLAMA = {
    "model_type": "mynet",
    "dim": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}
MYNET = """
description = "Llama with norms of queries and keys in every second layer, and wide experts"
base = "_decoder"

[config]
experts = "optional"

[aliases]
hidden_size = ["dim"]

[values]
qk_norm = "'head' if i % 2 else ''"
feed_forward = "'experts' if experts else 'gated'"
expert_count = "experts or 0"
"""


@pytest.fixture
def mynet(tmp_path, monkeypatch):
    """Write a family and a config.json; give the model."""
    monkeypatch.setenv("PLANNER_PATH", str(tmp_path))
    (tmp_path / "families").mkdir()

    def load(text=MYNET, **changes):
        (tmp_path / "families" / "mynet.toml").write_text(text)
        (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
        return load_model(tmp_path / "config.json")

    return load


def test_family_is_one_file(mynet):
    model = mynet()
    norms = [tensor.name for tensor in model.tensors if "self_attn.q_norm" in tensor.name]
    assert norms == ["model.layers.1.self_attn.q_norm.weight", "model.layers.3.self_attn.q_norm.weight"]
    assert model.parameters == 2 * 1000 * 64 + 4 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 2 * 16 + 64
    assert [len(block.layers) for block in model.blocks] == [16, 18, 16, 18]


def test_key_turns_feed_forward_networks_into_experts(mynet):
    experts = [layer for layer in mynet(experts=8) if layer.kind == "moe"]
    assert len(experts) == 4
    assert sum(tensor.elements for tensor in experts[0].tensors) == 8 * 3 * 64 * 128 + 8 * 64


def doubling(text, times):
    """Values of which each reads the one before twice."""
    return "v0 = '1'\n" + "".join(f"v{k + 1} = '{text.format(k, k)}'\n" for k in range(times))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('[values]\nwindow = "nothing_such"', "nothing is called 'nothing_such'"),
        ('[values]\nwindow = "1 +"', "'1 \\+' is no expression"),
        ("[values]\nwindow = \"__import__('os')\"", "is no part of an expression"),
        ('[values]\nwindow = "(1).real"', "is no name"),
        ("[values]\nwindow = \"'a' * 9999999\"", "multiplies and divides whole numbers"),
        ('[values]\nwindow = "1 // 0"', "ZeroDivisionError"),
        ('[values]\nwindow = "layer_types[9]"', "IndexError"),
        ('[values]\nwindow = "window"', "refer to one another in a circle"),
        ("[blocks]\ngated = [{ use = 'gated' }]", "refer to one another in a circle"),
        ("[blocks]\nlayer = [{ use = 'nothing' }]", "there is no block 'nothing'"),
        ("[blocks]\nlayer = [{ linear = '= hidden_size', nam = 'a' }]", "nam"),
        ("base = 'mynet'", "is no other family"),
        ("colour = 1", "colour: unknown key; allowed: description"),
        ("model_types = 'mynet'", "model_types: expected array, got str"),
        ("[file]\nlayers = 'none'", "file.layers: a list of layers"),
        ("[file]\nsequence_length = 'long'", "file.sequence_length: 'long' is no whole number"),
        ("[values]\n" + doubling("v{} + v{}", 25) + "window = 'v25'", "more than 500,000 expressions"),
        ("[values]\nwindow = '" + "99999 * " * 20 + "9'", "a number beyond 64 bits"),
    ],
)
def test_wrong_family_is_refused_in_one_line(mynet, line, message):
    head = "" if line.startswith("base") else "base = '_decoder'\n"
    with pytest.raises(BadInput, match=message) as error:
        mynet(f"{head}{line}\n[aliases]\nhidden_size = ['dim']\n")
    assert "\n" not in str(error.value)


CASES = json.loads((Path(__file__).parents[1] / "data/models/families.json").read_text())


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("published/")])
def test_flops_are_six_per_active_parameter_and_token(tmp_path, name):
    """Forward and backward FLOPs of all but attention, against 6 N for the parameters that a token uses."""
    (tmp_path / "config.json").write_text(json.dumps(CASES[name]["config"]))
    model = import_file(tmp_path / "config.json", tokens=None).model
    if model.sequence_length is None or "targets" in {layer.name for layer in model} or "whisper" in name:
        pytest.skip("its parts read sequences of other lengths")
    tokens, active, flops = model.sequence_length, 0.0, 0.0
    for layer, work in zip(model, workloads(model), strict=True):
        if layer.kind == "attention" or not layer.macs:
            continue
        weights = sum(tensor.elements for tensor in (*layer.tensors, *layer.tied) if len(tensor.shape) > 1)
        if layer.kind == "moe":
            experts = layer.detail
            router = experts.experts * layer.output_shape[-1]
            weights = (weights - router) * experts.top_k / experts.experts + router
        active += weights
        flops += work.forward.nominal_flops + work.backward.nominal_flops
    assert flops == pytest.approx(6 * active * tokens, rel=0.01)


def test_windows_of_gemma_3_are_in_five_of_six_layers(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CASES["published/google/gemma-3-1b-pt"]["config"]))
    windows = [
        layer.detail.window for layer in load_model(tmp_path / "config.json") if layer.kind == "attention"
    ]
    assert windows == [None if (index + 1) % 6 == 0 else 512 for index in range(26)]


def test_description_inside_another_object_is_read(tmp_path):
    inner = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": inner}))
    imported = import_file(tmp_path / "config.json")
    assert "the vision tower is left out" in " ".join(imported.notes)
    assert imported.model.tensors[0].name == "model.language_model.embed_tokens.weight"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    with pytest.raises(BadInput, match="the key 'text_config' is missing"):
        load_model(tmp_path / "config.json")


def test_latent_attention_has_narrower_values(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CASES["deepseek_v3"]["config"]))
    attention = next(layer for layer in load_model(tmp_path / "config.json") if layer.kind == "attention")
    assert (attention.detail.head_size, attention.detail.value_features) == (24, 12)
    assert attention.macs == 64 * 64 * 4 * (24 + 12)
    assert attention.output_shape == (64, 4 * 12)
