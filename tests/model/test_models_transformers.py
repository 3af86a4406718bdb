"""The catalog's transformers, tensor by tensor, against those of Hugging Face
(tests/data/models/README.md)."""

import csv
import sys
from pathlib import Path

import pytest

from planner.model.catalog import load_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks/fit"))

from model_references import REFERENCES, build, digest, tensors_of

with open(Path(__file__).parents[1] / "data" / "models" / "transformers.csv", newline="") as file:
    ROWS = {row["model"]: row for row in csv.DictReader(file)}
with open(Path(__file__).parents[1] / "data" / "models" / "published_counts.csv", newline="") as file:
    PUBLISHED = {row["model"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_network_has_the_parameters_that_are_published(name):
    model = load_model(name)
    assert model.parameters == int(PUBLISHED[name]["parameters"])
    assert load_model(PUBLISHED[name]["hub"]) == model


@pytest.mark.parametrize("name", ROWS)
def test_every_tensor_is_that_of_hugging_face(name):
    model, row = load_model(name), ROWS[name]
    assert len(model.tensors) == int(row["tensors"])
    assert model.parameters == int(row["parameters"])
    assert digest({tensor.name: tensor.shape for tensor in model.tensors}) == row["digest"]


@pytest.mark.parametrize("name", REFERENCES)
def test_figures_kept_are_those_of_the_library(name):
    pytest.importorskip("transformers")
    assert digest(tensors_of(build(name))) == ROWS[name]["digest"]


@pytest.mark.parametrize("name", ROWS)
def test_catalog_transformer_has_training_defaults(name):
    model = load_model(name)
    assert model.default_precision == "bf16"
    assert model.sequence_length >= 512
    assert model.tokens_per_epoch > 1e9
    assert model.samples_per_epoch == -(-model.tokens_per_epoch // model.sequence_length)


@pytest.mark.parametrize(
    ("name", "blocks", "outside"),
    [("gpt2", 12, 50257 * 768 + 1024 * 768 + 2 * 768), ("llama3-405b", 126, 2 * 128256 * 16384 + 16384)],
)
def test_blocks_hold_everything_but_the_ends(name, blocks, outside):
    model = load_model(name)
    assert len(model.blocks) == blocks
    assert len({block.parameters for block in model.blocks}) == 1
    assert model.parameters - sum(block.parameters for block in model.blocks) == outside


def test_tied_tensors_have_two_readers_and_count_once():
    def readers(model: str, name: str) -> list[str]:
        layers = load_model(model).layers
        return [layer.name for layer in layers if name in {t.name for t in (*layer.tensors, *layer.tied)}]

    assert readers("gpt2", "transformer.wte.weight") == ["transformer.wte", "lm_head"]
    assert readers("t5-base", "shared.weight") == ["shared", "decoder.embed_tokens", "lm_head"]


@pytest.mark.parametrize("name", ["gpt2", "llama3-8b", "t5-base"])
def test_longer_text_changes_work_and_not_parameters(name):
    model = load_model(name)
    half = model.with_sequence_length(model.sequence_length // 2)
    assert half.tensors == model.tensors
    assert half.sequence_length == model.sequence_length // 2
    # linear in the length but for attention, which is quadratic
    linear = sum(layer.macs for layer in model if layer.kind != "attention")
    square = model.macs - linear
    assert half.macs == linear // 2 + square // 4
    assert half.with_sequence_length(model.sequence_length) == model
