"""Modules of PyTorch: exported or watched, they are the networks of the catalog. Skipped without torch."""

import sys
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import ImportOptions, format_model_file, import_named
from planner.model.layers import workloads

BENCHMARKS = Path(__file__).parent
MODULES = """
import sys
import torch
from torch import nn
sys.path.insert(0, {benchmarks!r})
from torchvision_like import ResNet, resnet50

def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config())

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.unused = nn.Linear(3, 5)
        self.factor = nn.Parameter(torch.zeros(4, 4))
    def forward(self, x):
        return torch.special.i0(self.up(x)) @ self.up.weight + torch.logdet(self.factor)

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
    def forward(self, x):
        return self.up(x) if x.sum() > 0 else x

class Tied(nn.Module):
    # looks into a tensor, adds positions, and ends with the transpose of how it begins: as GPT-2 does
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 8), nn.Embedding(16, 8)
        self.up = nn.Linear(8, 8)
        self.out = nn.Linear(8, 50, bias=False)
        self.out.weight = self.words.weight
    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        if (places[:, 0] == 1).all() or ids.max() > 40:
            places = places + 1
        return self.out(self.up(self.words(ids) + self.places(places)))

def needing(width):
    return nn.Linear(width, 2)

def failing():
    raise ValueError("no weights here")

def small():
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    return nn.Sequential(*layers)

def small_of(name, **settings):
    import transformers
    kind = getattr(transformers, name)
    usual = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
             "num_hidden_layers": 2, "vocab_size": 1000, "max_position_embeddings": 64, "pad_token_id": 0}
    return kind(kind.config_class(**usual | settings))

def gpt_oss():
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    return small_of("GptOssForCausalLM", head_dim=16, sliding_window=16, **experts)

def qwen3_moe():
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return small_of("Qwen3MoeForCausalLM", head_dim=16, **experts)

def phi3():
    return small_of("Phi3ForCausalLM")

def maxvit():
    import timm
    return timm.create_model("maxvit_tiny_rw_224")

def eva02():
    import timm
    return timm.create_model("eva02_tiny_patch14_224")

number = 7
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "mynets.py").write_text(MODULES.replace("{benchmarks!r}", repr(str(BENCHMARKS))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def flops(model):
    asked = workloads(model, flash=False)
    return [sum(getattr(work, way).nominal_flops for work in asked) for way in ("forward", "backward")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "asked", "name"),
    [
        ("mynets:resnet50", ImportOptions(input="32x3x224x224"), "resnet50-v1.5"),
        ("mynets:gpt2", ImportOptions(input_ids="8x1024"), "gpt2"),
    ],
)
def test_module_is_the_network_of_the_catalog(modules, tmp_path, source, asked, name):
    if name == "gpt2":
        pytest.importorskip("transformers")
    result, ours = import_named(source, asked), load_model(name)
    assert {(t.name, t.shape) for t in result.model.tensors} == {(t.name, t.shape) for t in ours.tensors}
    assert flops(result.model) == flops(ours)
    assert len(result.model.blocks) == len(ours.blocks)
    assert result.notes == ("every operator is known",)
    (tmp_path / "mine.toml").write_text(format_model_file(result.values))
    assert load_model(tmp_path / "mine.toml").layers == result.model.layers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "experts"),
    [("gpt_oss", 2 * 2 * (64 * 256 + 128 * 64)), ("qwen3_moe", 2 * 2 * 3 * 64 * 32), ("phi3", 0)],
)
def test_small_transformer_is_read_whole(modules, name, experts):
    """Experts multiply the rows of 2 of 8 experts for each token, in two products."""
    pytest.importorskip("transformers")
    imported = import_named(f"mynets:{name}", ImportOptions(input_ids="2x64"))
    module = getattr(sys.modules["mynets"], name)()
    assert imported.model.parameters == sum(tensor.numel() for tensor in module.parameters())
    assert imported.notes == ("every operator is known",)
    grouped = [layer for layer in imported.model if layer.kind == "grouped_linear"]
    assert sum(2 * layer.macs for layer in grouped) == 2 * 64 * experts
    assert imported.model.has_experts == bool(experts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maxvit", "eva02"])
def test_network_of_timm_has_all_its_parameters(modules, name):
    """Tables of distances between positions of windows; a bias of queries and values, none of keys."""
    pytest.importorskip("timm")
    imported = import_named(f"mynets:{name}", ImportOptions(input="2x3x224x224"))
    module = getattr(sys.modules["mynets"], name)()
    assert imported.model.parameters == sum(tensor.numel() for tensor in module.parameters())
    assert imported.notes == ("every operator is known",)


def test_hooks_see_the_layers_of_a_small_network(modules):
    exported, watched = (
        import_named("mynets:small", ImportOptions(input="4x3x8x8", hooks=hooks)) for hooks in (False, True)
    )
    assert exported.model.parameters == watched.model.parameters == 3 * 8 * 9 + 8 + 16 + 5120 + 10
    assert flops(exported.model) == flops(watched.model)
    assert "hooks see modules only" in watched.notes[1]


def test_hooks_watch_a_module_that_looks_into_its_tensors(modules):
    """And what two modules share is counted once."""
    imported = import_named("mynets:Tied", ImportOptions(input_ids="4x12", hooks=True))
    assert imported.model.parameters == 50 * 8 + 16 * 8 + 8 * 8 + 8
    assert flops(imported.model)[0] == 2 * 12 * (8 * 8 + 8 * 50)
    assert imported.notes[0] == "every operator is known"


@pytest.mark.slow
def test_hooks_watch_gpt2_of_transformers(modules):
    pytest.importorskip("transformers")
    exported, watched = (
        import_named("mynets:gpt2", ImportOptions(input_ids="8x1024", hooks=hooks)) for hooks in (False, True)
    )
    named = [{(t.name, t.shape) for t in imported.model.tensors} for imported in (exported, watched)]
    assert named[0] == named[1]
    attention = 12 * 4 * 1024 * 1024 * 768  # which is between modules
    assert flops(exported.model)[0] - flops(watched.model)[0] == attention


def test_unknown_modules_are_counted_and_stated(modules):
    imported = import_named("mynets:Odd", ImportOptions(input="4x8"))
    assert "special_i0" in imported.notes[0]
    assert "% of what is moved" in imported.notes[0]
    assert "2 parameter tensors (20 values) are not used, as unused.weight" in imported.notes
    assert imported.model.parameters == 8 * 16 + 16 + 16
    assert flops(imported.model)[0] == 2 * (8 * 16 + 16 * 8)


@pytest.mark.parametrize(
    ("source", "asked", "said"),
    [
        ("mynets:needing", ImportOptions(input="4x8"), r"needs arguments \(width\)"),
        (
            "mynets:failing",
            ImportOptions(input="4x8"),
            "cannot be made on the meta device: ValueError: no weights here",
        ),
        ("mynets:number", ImportOptions(input="4x8"), "is a int; it must be a function"),
        ("mynets:nothing", ImportOptions(input="4x8"), "mynets has no nothing"),
        ("nosuch:thing", ImportOptions(input="4x8"), "cannot import nosuch"),
        ("mynets:Branching", ImportOptions(input="4x8"), "its graph cannot be exported: .*; --hooks watches"),
        ("mynets:small", ImportOptions(input="4x5x8x8"), "its graph cannot be exported"),
    ],
)
def test_modules_that_cannot_be_read(modules, source, asked, said):
    with pytest.raises(BadInput, match=said) as error:
        import_named(source, asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "asked", "said"),
    [
        ("mynets:small", ImportOptions(), "say what mynets:small reads: --input 32x3x224x224"),
        ("mynets:small", ImportOptions(input="1x2", input_ids="1x2"), "say what mynets:small reads"),
        ("mynets:small", ImportOptions(input="axb"), "sizes with x between them"),
        ("mynets:small", ImportOptions(input="0x3"), "each at least 1"),
        ("mynets:small", ImportOptions(input_ids="1x2x3"), "it has 2, batch and length"),
        ("mynets:small", ImportOptions(input="99999x99999x9"), "more than a device holds"),
        ("./mine.toml", ImportOptions(), "is a model file already"),
        ("a b", ImportOptions(), "import a config.json or its folder"),
        ("./nosuch.json", ImportOptions(), "there is no ./nosuch.json"),
    ],
)
def test_questions_that_make_no_sense(source, asked, said):
    with pytest.raises(BadInput, match=said):
        import_named(source, asked)
