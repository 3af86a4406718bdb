"""Hugging Face configurations: every family has the tensors that `transformers` gives it."""

import json
import sys
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import import_file, toml_of
from planner.model.importers.hugging_face import FAMILIES

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/fit"))

from model_references import REFERENCES

SMALL = {"num_hidden_layers": 2, "vocab_size": 1000, "max_position_embeddings": 64}
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, **SMALL}

# (class of transformers, settings, parameters it has there)
CASES = {
    "llama": ("LlamaForCausalLM", {**WIDE, "num_key_value_heads": 2}, 202048),
    "llama-biases": ("LlamaForCausalLM", {**WIDE, "attention_bias": True, "mlp_bias": True}, 211392),
    "mistral": ("MistralForCausalLM", {**WIDE, "num_key_value_heads": 2, "sliding_window": 16}, 202048),
    "mixtral": ("MixtralForCausalLM", {**WIDE, "num_local_experts": 4, "num_key_value_heads": 2}, 350016),
    "qwen2": ("Qwen2ForCausalLM", {**WIDE, "num_key_value_heads": 2, "tie_word_embeddings": True}, 138304),
    "gemma": ("GemmaForCausalLM", {**WIDE, "num_key_value_heads": 1, "head_dim": 32}, 154432),
    "phi": ("PhiForCausalLM", WIDE, 195816),
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 1000},
        168192,
    ),
    "opt": ("OPTForCausalLM", {**WIDE, "ffn_dim": 128, "word_embed_proj_dim": 64}, 135296),
    "opt-350m": (
        "OPTForCausalLM",
        {**WIDE, "ffn_dim": 128, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
        107264,
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", WIDE, 195072),
    "falcon-7b": ("FalconForCausalLM", {**WIDE, "ffn_hidden_size": 256, "alibi": False}, 150400),
    "falcon-40b": (
        "FalconForCausalLM",
        {**WIDE, "ffn_hidden_size": 256, "new_decoder_architecture": True, "num_kv_heads": 2},
        154752,
    ),
    "falcon-rw": (
        "FalconForCausalLM",
        {
            **WIDE,
            "ffn_hidden_size": 256,
            "alibi": True,
            "bias": True,
            "multi_query": False,
            "parallel_attn": False,
        },
        164096,
    ),
    "mpt": ("MptForCausalLM", {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 1000}, 162624),
    "bert": ("BertForMaskedLM", WIDE, 140584),
    "bert-both": ("BertForPreTraining", {**WIDE, "architectures": ["BertForPreTraining"]}, 144874),
    "vit": (
        "ViTForImageClassification",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "image_size": 32,
            "patch_size": 8,
            "num_labels": 10,
        },
        81226,
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2, "vocab_size": 1000},
        228864,
    ),
    "t5-gated": (
        "T5ForConditionalGeneration",
        {
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 128,
            "num_heads": 4,
            "num_layers": 2,
            "vocab_size": 1000,
            "feed_forward_proj": "gated-gelu",
        },
        261632,
    ),
}


def config(tmp_path, name, **changes):
    family = name.partition("-")[0]
    settings = {"model_type": family, **CASES[name][1], **changes}
    if family == "vit":
        labels = settings.pop("num_labels")
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not ...}))
    return tmp_path / "config.json"


@pytest.mark.parametrize("name", CASES)
def test_a_family_has_the_parameters_that_the_library_gives_it(tmp_path, name):
    model = load_model(config(tmp_path, name))
    assert model.parameters == CASES[name][2]
    assert len(model.blocks) == (4 if name.startswith("t5") else 2)


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_that_of_the_library(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    import torch

    kind = getattr(transformers, CASES[name][0])
    with torch.device("meta"):
        module = kind(kind.config_class(**CASES[name][1]))
    theirs = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    model = load_model(config(tmp_path, name))
    assert {tensor.name: tensor.shape for tensor in model.tensors} == theirs


def test_every_family_of_the_list_is_tried():
    assert {name.partition("-")[0] for name in CASES} == FAMILIES.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_file_that_is_written_is_the_same_network(tmp_path, name):
    imported = import_file(config(tmp_path, name))
    (tmp_path / "mine.toml").write_text(toml_of(imported.values))
    again = load_model(tmp_path / "mine.toml")
    assert again.layers == imported.model.layers
    assert again.sequence_length == imported.model.sequence_length


@pytest.mark.parametrize(
    "name", ["gpt2", "bert-base", "llama3-8b", "mistral-7b", "mixtral-8x7b", "mpt-7b", "t5-base"]
)
def test_the_catalogue_says_the_same(tmp_path, name):
    """A configuration with the settings of a network of the catalogue gives its tensors and multiply-adds."""
    family = {"bert-base": "bert", "llama3-8b": "llama", "t5-base": "t5"}.get(name, name.partition("-")[0])
    settings = {"model_type": family, "max_position_embeddings": 512, **REFERENCES[name][1]}
    settings |= {"architectures": [REFERENCES[name][0]], "vocab_size": settings.get("vocab_size", 30522)}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    ours = load_model(name)
    imported = import_file(
        tmp_path / "config.json", tokens=ours.sequence_length if name != "bert-base" else 512
    )
    assert {(t.name, t.shape) for t in imported.model.tensors} == {(t.name, t.shape) for t in ours.tensors}
    assert imported.model.macs == ours.macs


def test_the_folder_and_the_index_are_held_against_the_weights(tmp_path):
    model = load_model(config(tmp_path, "llama"))
    names = {tensor.name: "model-00001.safetensors" for tensor in model.tensors}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    assert import_file(tmp_path).notes == (
        f"all {len(names)} tensors are those of the weights beside it, names",
    )
    assert import_file(index).model == model
    header = {t.name: {"dtype": "BF16", "shape": t.shape, "data_offsets": [0, 0]} for t in model.tensors}
    header["lm_head.weight"]["shape"] = [7, 64]
    text = json.dumps({"__metadata__": {}, **header}).encode()
    (tmp_path / "model-00001.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 64)
    (note,) = import_file(tmp_path).notes
    assert note == "tensors differ from the weights beside it: 1 of another shape (lm_head.weight)"


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("llama", {"model_type": "lama"}, "unknown model_type in .*nearest: llama.*known ones: bert, falcon"),
        ("llama", {"model_type": ...}, "'model_type' is missing; known ones: bert"),
        ("llama", {"vocab_size": ...}, "'vocab_size' is missing; a llama network cannot do without it"),
        ("gpt2", {"n_layer": ...}, "'n_layer' is missing"),
        ("llama", {"hidden_size": "big"}, "hidden_size: 'big'; it is a whole number from 1 to"),
        ("llama", {"hidden_size": 10**12}, "hidden_size: 1000000000000; it is a whole number"),
        (
            "llama",
            {"num_hidden_layers": 10**6},
            "num_hidden_layers: 1000000; it is a whole number from 1 to 2,000",
        ),
        ("llama", {"num_attention_heads": 7}, "64 features cannot be divided among 7 heads"),
        ("llama", {"num_key_value_heads": 3}, "4 heads are no multiple of 3 key/value heads"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes'; it is true or false"),
        ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok is 5, more than its 4 experts"),
        ("vit", {"patch_size": 64}, "patches of 64 pixels do not fit into images of 32"),
        ("gpt2", {"resid_pdrop": 3}, "resid_pdrop: 3; it is a number from 0 to 1"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path, name, changes, said):
    path = config(tmp_path, name, **changes)
    with pytest.raises(BadInput, match=said) as error:
        load_model(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model_type": "llama",', "not valid JSON"),
        ("[1, 2]", "a configuration is one JSON object"),
        ("\xff", "not text in UTF-8"),
        ("[" * 100_000, "not JSON|nested"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path, text, said):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=said):
        load_model(tmp_path / "config.json")


def test_an_activation_that_nobody_knows_is_said(tmp_path):
    imported = import_file(config(tmp_path, "gpt2", activation_function="cubic"))
    assert imported.notes == ("the activation 'cubic' is not known and counted as gelu",)
    assert any(layer.kind == "gelu" for layer in imported.model)


def test_a_folder_without_a_configuration(tmp_path):
    with pytest.raises(BadInput, match=r"there is no config\.json, which says how its tensors are used"):
        import_file(tmp_path)


def test_longer_texts_than_anyone_trains_on_are_cut_and_said(tmp_path):
    imported = import_file(config(tmp_path, "llama", max_position_embeddings=131072))
    assert imported.model.sequence_length == 8192
    assert "--seq-length sets it" in imported.notes[0]
    assert import_file(tmp_path / "config.json", tokens=100).model.sequence_length == 100
