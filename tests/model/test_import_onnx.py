"""ONNX files; small ones are kept in tests/data/models/onnx. Skipped without onnx."""

import sys
from pathlib import Path

import pytest

from planner.errors import BadInput
from planner.model.catalog import load_model
from planner.model.importers import ImportOptions, format_model_file, import_file, import_named
from planner.model.layers import workloads

DATA = Path(__file__).parents[1] / "data" / "models" / "onnx"
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _onnx():
    pytest.importorskip("onnx")


def flops(model):
    asked = workloads(model, flash=False)
    return [sum(getattr(work, way).nominal_flops for work in asked) for way in ("forward", "backward")]


def test_small_network(tmp_path):
    imported = import_file(DATA / "tiny.onnx")
    model = imported.model
    assert [(t.name, t.shape) for t in model.tensors] == [
        ("conv.weight", (4, 3, 3, 3)),
        ("conv.bias", (4,)),
        ("bn.weight", (4,)),
        ("bn.bias", (4,)),
        ("fc.weight", (5, 4)),
        ("fc.bias", (5,)),
    ]
    assert model.macs == 3 * 4 * 9 * 64 + 20
    assert [layer.kind for layer in model] == (
        ["input", "conv", "batch_norm", "relu", "add", "pool", "global_pool", "view", "linear", "softmax"]
    )
    assert imported.notes == ("every operator is known",)
    (tmp_path / "mine.toml").write_text(format_model_file(imported.values))
    assert load_model(tmp_path / "mine.toml").layers == model.layers
    assert load_model(DATA / "tiny.onnx").parameters == 145


def test_text_products_and_operators_that_are_not_known():
    imported = import_file(DATA / "text.onnx")
    assert imported.model.sequence_length == 7
    assert imported.model.parameters == 11 * 6 + 6 * 12 + 6
    assert imported.model.macs == 7 * 6 * 12 + 7 * 7 * 12 + 7 * 7 * 6
    assert "Mod x 1" in imported.notes[0]


def test_open_axes_are_asked_for():
    with pytest.raises(BadInput, match=r"axes of its input have no size; give them with --axis batch=SIZE"):
        import_file(DATA / "open.onnx")
    imported = import_named(str(DATA / "open.onnx"), ImportOptions(axes=("batch=4",)))
    assert imported.model.parameters == 145
    assert imported.model.default_batch == 4


@pytest.mark.parametrize(
    ("axes", "said"), [(("batch",), "write the axis and its size"), (("b=0",), "write the axis")]
)
def test_axes_that_are_none(axes, said):
    with pytest.raises(BadInput, match=said):
        import_named(str(DATA / "open.onnx"), ImportOptions(axes=axes))


@pytest.mark.parametrize("data", [b"", b"\x08", b"not a model at all"])
def test_files_that_are_none(tmp_path, data):
    (tmp_path / "net.onnx").write_bytes(data)
    with pytest.raises(BadInput, match=r"net\.onnx: "):
        import_file(tmp_path / "net.onnx")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_exported_resnet_is_the_network_of_the_catalog(tmp_path):
    torch = pytest.importorskip("torch")
    from torchvision_like import resnet50

    torch.onnx.export(
        resnet50(),
        (torch.zeros(1, 3, 224, 224),),
        tmp_path / "resnet.onnx",
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
    )
    result, ours = import_file(tmp_path / "resnet.onnx").model, load_model("resnet50-v1.5")
    assert {(t.name, t.shape) for t in result.tensors} == {(t.name, t.shape) for t in ours.tensors}
    assert flops(result) == flops(ours)
    assert len(result.blocks) == len(ours.blocks)


@pytest.mark.parametrize(
    ("name", "parameters", "forward_flops"),
    [
        ("shared_linear", 8 * 8 + 8 + 16 + 8 * 4 + 4, 5 * 2 * (64 + 64 + 32)),
        ("shared_conv", 3 * 3 * 9 + 3 + 6 + 3 * 5 + 5, 2 * 256 * 2 * 81 + 30),
        ("tied", 50 * 8 + 8 * 8 + 8, 6 * 2 * (64 + 400)),
        ("vit_script", 4666, 2 * (16 * 192 * 16 + 17 * 16 * 64 + 2 * 2 * 17 * 17 * 8 + 160)),
    ],
)
def test_shared_parameters_count_once_and_are_multiplied_each_time(name, parameters, forward_flops):
    """Files of PyTorch, exported without constant folding: a shared linear layer and norm, a shared
    convolution, a head that is the transposed embedding, and a ViT whose shapes go through Concat."""
    imported = import_file(DATA / f"{name}.onnx")
    assert imported.model.parameters == parameters
    assert flops(imported.model)[0] == forward_flops
    assert imported.notes == ("every operator is known",)


def test_unknown_operators_say_what_they_may_hide():
    """Mod of two texts of 42 elements could be a product of at most 2 sqrt(42^3) FLOPs."""
    notes = import_file(DATA / "text.onnx").notes
    assert "they may hide up to" in notes[1]
    assert "GFLOPs forward" in notes[1]
