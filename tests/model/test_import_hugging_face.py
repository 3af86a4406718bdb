"""Hugging Face configurations: every family has the tensors that `transformers` gives it."""

import json
import sys
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import format_model_file, import_file
from planner.model.importers.families import families_by_type

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/fit"))

from model_references import REFERENCES, family_tensors

CASES = json.loads((Path(__file__).parents[1] / "data/models/families.json").read_text())
SMALL = [name for name in CASES if not name.startswith("published/")]


def config(tmp_path, name, **changes):
    settings = {**CASES[name]["config"], **changes}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not ...}))
    return tmp_path / "config.json"


@pytest.mark.parametrize("name", CASES)
def test_family_has_the_parameters_that_the_library_gives_it(tmp_path, name):
    assert load_model(config(tmp_path, name)).parameters == CASES[name]["parameters"]


@pytest.mark.parametrize("name", CASES)
def test_every_tensor_is_that_of_the_library(tmp_path, name):
    pytest.importorskip(CASES[name].get("library", "transformers"))
    model = load_model(config(tmp_path, name))
    assert {tensor.name: tensor.shape for tensor in model.tensors} == family_tensors(CASES[name])


def test_every_family_of_the_list_is_tried():
    known = families_by_type("")
    types = (case["config"].get("model_type") or case["config"]["_class_name"] for case in CASES.values())
    tried = {known[kind] for kind in types}
    assert tried == {*known.values()} - {"gemma3"}, "gemma3 is gemma3_text inside another object"


@pytest.mark.parametrize("name", SMALL)
def test_file_that_is_written_is_the_same_network(tmp_path, name):
    imported = import_file(config(tmp_path, name))
    (tmp_path / "mine.toml").write_text(format_model_file(imported.values))
    again = load_model(tmp_path / "mine.toml")
    assert again.layers == imported.model.layers
    assert again.sequence_length == imported.model.sequence_length


@pytest.mark.parametrize(
    "name", ["gpt2", "bert-base", "llama3-8b", "mistral-7b", "mixtral-8x7b", "mpt-7b", "t5-base"]
)
def test_catalog_says_the_same(tmp_path, name):
    """A configuration with the settings of a network of the catalog gives its tensors and multiply-adds."""
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


def test_folder_and_the_index_are_held_against_the_weights(tmp_path):
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
        ("llama", {"model_type": "lama"}, "unknown model_type in .*nearest: llama.*known ones: bert, ca"),
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
def test_bad_configuration_is_refused_in_one_line(tmp_path, name, changes, said):
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
def test_file_that_is_no_configuration(tmp_path, text, said):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadInput, match=said):
        load_model(tmp_path / "config.json")


def test_activation_that_nobody_knows_is_said(tmp_path):
    imported = import_file(config(tmp_path, "gpt2", activation_function="cubic"))
    assert imported.notes == ("the activation 'cubic' is not known and counted as gelu",)
    assert any(layer.kind == "gelu" for layer in imported.model)


def test_folder_without_a_configuration(tmp_path):
    with pytest.raises(BadInput, match=r"there is no config\.json, which says how its tensors are used"):
        import_file(tmp_path)


def test_longer_texts_than_anyone_trains_on_are_cut_and_said(tmp_path):
    imported = import_file(config(tmp_path, "llama", max_position_embeddings=131072))
    assert imported.model.sequence_length == 8192
    assert "--seq-length sets it" in imported.notes[0]
    assert import_file(tmp_path / "config.json", tokens=100).model.sequence_length == 100


SMOLLM3 = CASES["llama"]["config"] | {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}


@pytest.mark.slow
def test_family_that_is_not_described_is_made_by_the_library(tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    settings = SMOLLM3 | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    imported = import_file(tmp_path)
    config_class = transformers.SmolLM3Config
    with torch.device("meta"):
        module = transformers.SmolLM3ForCausalLM(config_class(**settings))
    theirs = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    assert {tensor.name: tensor.shape for tensor in imported.model.tensors} == theirs
    assert imported.model.sequence_length == 64
    assert imported.notes == ("every operator is known",)


def test_without_the_library_the_message_says_that_it_would_help(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM3))
    with pytest.raises(BadInput, match="where transformers is installed, it makes others"):
        import_file(tmp_path)
