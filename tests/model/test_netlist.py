"""Shapes, names and order of small networks, worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model.netlist import read_model


@pytest.fixture
def net(tmp_path):
    def build(layers, input="[8, 8, 3]", rest=""):
        path = tmp_path / "net.toml"
        path.write_text(f"input = {input}\nlayers = [{layers}]\n{rest}")
        return read_model(path)

    return build


def shapes(model):
    return [layer.output_shape for layer in model.layers[1:]]


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        ("{ conv = 4, kernel = 3 }", (8, 8, 4), 9 * 3 * 4 * 64),
        ('{ conv = 4, kernel = 3, padding = "valid" }', (6, 6, 4), 9 * 3 * 4 * 36),
        ("{ conv = 4, kernel = 3, stride = 2, padding = 1 }", (4, 4, 4), 9 * 3 * 4 * 16),
        ("{ conv = 4, kernel = [1, 7], stride = [2, 1] }", (4, 8, 4), 7 * 3 * 4 * 32),
        ("{ conv = 6, kernel = 3, groups = 3 }", (8, 8, 6), 9 * 6 * 64),
        ("{ depthwise = 2, kernel = 3 }", (8, 8, 6), 9 * 3 * 2 * 64),
        ("{ fc = 10 }", (10,), 192 * 10),
        ("{ max_pool = 3, stride = 2 }", (3, 3, 3), 0),
        ('{ max_pool = 3, stride = 2, padding = "same" }', (4, 4, 3), 0),
        ("{ avg_pool = 2 }", (4, 4, 3), 0),
        ("{ global_pool = true }", (3,), 0),
        ("{ flatten = true }", (192,), 0),
        ("{ lrn = true }", (8, 8, 3), 0),
    ],
)
def test_one_layer(net, layer, shape, macs):
    layer = net(layer).layers[-1]
    assert (layer.output_shape, layer.macs) == (shape, macs)
    assert layer.input_elements == 192


def test_activation_after_a_layer_is_its_own_layer(net):
    model = net('{ conv = 4, kernel = 3, then = ["batch_norm", "relu"] }, { fc = 2, then = ["bias"] }')
    kinds = [layer.kind for layer in model]
    assert kinds == ["input", "conv", "batch_norm", "relu", "fc", "bias"]
    assert [(t.name, t.shape) for t in model.tensors] == [
        ("conv0/weights", (3, 3, 3, 4)),
        ("conv0/gamma", (4,)),
        ("conv0/beta", (4,)),
        ("fc0/weights", (256, 2)),
        ("fc0/biases", (2,)),
    ]


def test_branches_read_the_same_layer_and_are_joined(net):
    model = net(
        "{ conv = 4, kernel = 1 },"
        '{ branches = [[], [{ conv = 5, kernel = 3 }], [{ max_pool = 3, stride = 1, padding = "same" }]],'
        ' join = "concat" }, { relu = true }'
    )
    assert shapes(model) == [(8, 8, 4), (8, 8, 5), (8, 8, 4), (8, 8, 13), (8, 8, 13)]
    assert model.layers[-2].inputs == ("conv0", "conv1", "max_pool0")
    assert model.consumers_by_layer()["conv0"] == ["conv1", "max_pool0", "concat0"]


def test_blocks_repeat_with_names_and_parameters(net):
    block = (
        '[blocks.b]\nparameters = ["n"]\nlayers = [{ conv = "$n", kernel = 1, name = "c" }, { relu = true }]'
    )
    model = net('{ block = "b", name = "unit_{i}", n = 4, repeat = 2, first = 2 }', rest=block)
    assert [layer.name for layer in model] == ["input", "unit_2/c", "relu0", "unit_3/c", "relu1"]


def test_names_are_looked_up_from_the_innermost_scope(net):
    block = (
        '[blocks.b]\nlayers = [{ conv = 2, name = "a", then = ["relu"] }, { conv = 4, name = "b" },'
        ' { conv = 3, from = "a" }, { conv = 3, from = "input" }]'
    )
    model = net('{ conv = 7, name = "a" }, { block = "b", name = "s" }, { conv = 1, from = "s" }', rest=block)
    reads = {layer.name: layer.inputs for layer in model}
    assert reads["conv0"] == ("s/a/relu",)
    assert reads["conv1"] == ("a",)
    assert reads["conv2"] == ("conv1",)


def test_named_inputs(net):
    model = net(
        '{ conv = 4, name = "x" }, { conv = 4, from = "input", name = "y" }, { add = ["x", "y"] },'
        '{ concat = ["x", "add0"], name = "z" }'
    )
    assert shapes(model)[-1] == (8, 8, 8)


def test_base_gives_what_is_not_said(tmp_path):
    (tmp_path / "a.toml").write_text(
        "input = [4, 4, 1]\ndefault_batch = 7\nlayers = [{ fc = 1 }]\n"
        '[defaults]\nconv = { then = ["bias"] }\nfc = { then = ["bias"] }\n'
        "[blocks.b]\nlayers = [{ conv = 2 }]"
    )
    (tmp_path / "b.toml").write_text(
        'base = "a"\ninput = [6, 6, 1]\nlayers = [{ block = "b" }, { fc = 1 }]\n'
        "[defaults]\nfc = { then = [] }"
    )
    model = read_model(tmp_path / "b.toml")
    assert (model.name, model.default_batch) == ("b", 7)
    assert [layer.kind for layer in model] == ["input", "conv", "bias", "fc"]
    assert model.layers[0].output_shape == (6, 6, 1)


SIZES = st.integers(1, 9)
LAYERS = st.one_of(
    st.builds(
        lambda n, k, s: f"{{ conv = {n}, kernel = {k}, stride = {s} }}", SIZES, SIZES, st.integers(1, 3)
    ),
    st.builds(lambda k: f'{{ max_pool = {k}, stride = 1, padding = "same" }}', SIZES),
    st.builds(lambda n: f'{{ branches = [[], [{{ conv = {n} }}]], join = "concat" }}', SIZES),
    st.sampled_from(["{ relu = true }", "{ batch_norm = true }", "{ bias = true }"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LAYERS, min_size=1, max_size=8))
def test_model_is_in_topological_order_and_adds_up(tmp_path_factory, layers):
    path = tmp_path_factory.mktemp("net") / "net.toml"
    path.write_text(f"input = [9, 7, 2]\nlayers = [{', '.join(layers)}]")
    model = read_model(path)
    shape = {}
    for layer in model:
        assert all(name in shape for name in layer.inputs)
        assert layer.input_elements == sum(math.prod(shape[name]) for name in layer.inputs)
        if layer.kind == "conv":
            assert layer.macs == layer.tensors[0].elements * math.prod(layer.output_shape[:2])
            assert layer.tensors[0].shape[2:] == (shape[layer.inputs[0]][2], layer.output_shape[2])
        shape[layer.name] = layer.output_shape
    assert model.bytes == 4 * sum(tensor.elements for tensor in model.tensors)
