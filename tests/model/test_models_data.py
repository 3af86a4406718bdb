"""The catalog of models against published and traced figures (tests/data/models/README.md)."""

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest

from planner.model.catalog import load_model, model_names
from planner.report.models import model_summary
from planner.units import MIB

DATA = Path(__file__).parents[1] / "data" / "models"


def rows(name):
    with open(DATA / name, newline="") as file:
        return list(csv.DictReader(file))


TF = {row["model"]: row for row in rows("tf_cnn_benchmarks.csv")}
TENSORS = defaultdict(list)
for _row in rows("tf_cnn_benchmarks_tensors.csv"):
    TENSORS[_row["model"]].append(_row)


@pytest.mark.parametrize("name", TF)
def test_tf_cnn_benchmarks_row(name):
    model, row = load_model(name), TF[name]
    assert len(model.tensors) == int(row["tensors"])
    assert model.parameters == int(row["parameters"])
    assert round(model.macs / 1e9, 4) == float(row["forward_gmacs"])
    if row["forward_macs"]:
        assert model.macs == int(row["forward_macs"])
    kinds = ("conv", "batch_norm", "pool", "fc")
    activations = sum(layer.output_elements for layer in model if layer.kind in kinds)
    assert activations == int(row["activation_elements"])
    assert model.default_batch == int(row["default_batch"])
    assert model.samples_per_epoch == 1_281_167


@pytest.mark.parametrize("name", TF)
def test_tf_cnn_benchmarks_tensor_by_tensor(name):
    model = load_model(name)
    macs = {tensor.name: layer.macs for layer in model for tensor in layer.tensors if layer.macs}
    ours = [(t.name, "x".join(map(str, t.shape)), str(macs.get(t.name, ""))) for t in model.tensors]
    assert ours == [(row["tensor"], row["shape"], row["forward_macs"]) for row in TENSORS[name]]


@pytest.mark.parametrize("row", rows("tictac_table1.csv"), ids=lambda row: row["model"])
def test_tictac_table_1(row):
    model = load_model(row["model"])
    assert len(model.tensors) == int(row["tensors"])
    assert f"{model.bytes / MIB:.2f}" == row["mib"]
    assert model.default_batch == int(row["default_batch"])


def test_slim_tensor_names():
    names = defaultdict(set)
    for row in rows("slim_tensor_names.csv"):
        names[row["model"]].add(row["tensor"])
    for model, expected in names.items():
        ours = {tensor.name for tensor in load_model(model).tensors}
        # the auxiliary head is not needed for the logits, so its six tensors are not in the list
        assert {name for name in ours if "AuxLogits" not in name} == expected


def test_resnet18_is_that_of_the_paper():
    model = load_model("resnet18")
    assert model.parameters == 11_689_512 + 513  # He et al. with 1000 classes, and one class more
    assert len(model.tensors) == 3 * 20 + 2
    assert round(model.macs / 1e9, 1) == 1.8  # their Table 1


def test_networks_of_yan_et_al():
    small, large = load_model("mnist-adam"), load_model("imagenet22k-adam")
    for model, convolutions, classes in ((small, 2, 10), (large, 5, 22_000)):
        kinds = [layer.kind for layer in model if layer.macs]
        assert kinds == ["conv"] * convolutions + ["fc"] * 3
        assert model.layers[-1].output_shape == (classes,)
    assert small.macs == pytest.approx(2.5e6, rel=0.02)
    assert 2e9 < large.macs < 2.5e9
    assert small.samples_per_epoch == 60_000


def test_extremes_for_ordering():
    chain, flat = load_model("seq32"), load_model("par32")
    assert len(chain.tensors) == len(flat.tensors) == 32
    assert chain.bytes == flat.bytes == 128 * MIB
    assert [layer.inputs for layer in chain.layers[1:]] == [(layer.name,) for layer in chain.layers[:-1]]
    assert {layer.inputs for layer in flat.layers[1:-1]} == {("input",)}
    assert len(flat.layers[-1].inputs) == 32


@pytest.mark.parametrize("name", model_names())
def test_every_model_loads_and_says_where_it_is_from(name):
    model = load_model(name)
    assert model.name == name
    assert model.description
    assert model.source
    seen = set()
    for layer in model:
        assert set(layer.inputs) <= seen, layer.name
        seen.add(layer.name)
    assert len({tensor.name for tensor in model.tensors}) == len(model.tensors)
    assert json.loads(json.dumps(model_summary(model)))["bytes"] == 4 * model.parameters


def test_all_that_was_promised_is_there():
    promised = {*TF, "resnet18", "mnist-adam", "imagenet22k-adam", "seq32", "par32"}
    promised |= {row["model"] for row in rows("tictac_table1.csv")}
    assert promised <= set(model_names())
