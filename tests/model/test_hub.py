"""Networks by their names on the Hugging Face hub, without the library and without a network."""

import json
import sys

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import ImportOptions, import_named

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Write a network into a cache as the library lays it out, the file a link to a blob."""
    for name in ("HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    def write(folder="models--someone--tiny", revision="abc123", file="config.json", **changes):
        place = tmp_path / "hub" / folder
        blob = place / "blobs" / f"{revision}-blob"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(json.dumps(CONFIG | changes))
        link = place / "snapshots" / revision / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
        return place

    return write


def test_network_of_the_cache_is_read_by_its_name(cached):
    cached()
    model = load_model("someone/tiny")
    assert model.name == "tiny"
    assert model.parameters == 2 * 64_000 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64)
    assert import_named("someone/tiny", ImportOptions()).model == model


def test_main_revision_is_taken_of_several(cached):
    place = cached()
    cached(revision="zzz", num_hidden_layers=3)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("zzz")
    assert len(load_model("someone/tiny").blocks) == 3
    (place / "refs" / "main").write_text("../../..")
    assert len(load_model("someone/tiny").blocks) == 2


def test_transformer_of_a_pipeline_is_read(cached):
    cached(file="transformer/config.json")
    assert len(load_model("someone/tiny").blocks) == 2


def test_catalog_comes_before_the_cache(cached):
    cached("models--Qwen--Qwen3-8B")
    assert load_model("Qwen/Qwen3-8B").parameters == 8_190_735_360
    assert load_model("Qwen3-8B") == load_model("qwen3-8b") == load_model("Qwen/Qwen3-8B-Base")


def test_folder_here_comes_before_the_cache(cached, tmp_path, monkeypatch):
    cached()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "tiny").mkdir(parents=True)
    (tmp_path / "someone" / "tiny" / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 5}))
    assert len(load_model("someone/tiny").blocks) == 5


@pytest.mark.parametrize("name", ["someone/absent", "models/vgg11"])
def test_without_the_library_the_extra_is_named(cached, name):
    message = rf"no file {name}, and no such network in the Hugging Face cache \(.*\); pip install 'dnn-plan"
    with pytest.raises(BadInput, match=message) as error:
        load_model(name)
    assert "\n" not in str(error.value)


def test_offline_is_one_sentence(cached, monkeypatch):
    monkeypatch.delitem(sys.modules, "huggingface_hub")
    hub = pytest.importorskip("huggingface_hub")

    def fails(*_args):
        raise ConnectionError("[Errno 101] Network is unreachable\nretry")

    monkeypatch.setattr(hub, "hf_hub_download", fails)
    with pytest.raises(BadInput, match=r"the hub cannot be reached \(\[Errno 101\] Network") as error:
        load_model("someone/absent")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["./someone/tiny", "../a/b", "a/b/c", "a b/c", "/a/b", "someone/tiny.json"])
def test_other_names_than_of_the_hub_are_files(cached, name):
    with pytest.raises(BadInput, match="there is no model file"):
        load_model(name)
