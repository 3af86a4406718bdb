"""Compute, memory and communication of training methods."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import planner
from planner.answers.parts import training_passes
from planner.cli._app import app
from planner.device.activations import saved_activations
from planner.device.memory import footprint
from planner.device.precision import BF16, OPTIMIZERS, find_optimizer
from planner.device.rates.times import computation_s
from planner.errors import BadInput, Infeasible
from planner.hardware.catalog import load_hardware
from planner.model import Model, group_into_units, methods
from planner.model.catalog import load_model
from planner.model.layers import layers_with_gradient, workloads
from planner.model.layers.base import ElementCounts
from planner.model.methods import METHODS, apply_training, method_settings
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.units import Unit
from planner.parallel.plan import Site

GIB = 2**30
LLAMA = load_model("llama3-8b").with_sequence_length(2048)
A100 = load_hardware("p4d.24xlarge")


def trained(method: str = "full", model: Model = LLAMA, **settings) -> Model:
    return apply_training(model, method_settings(method, **settings))


def test_full_training_is_the_model_itself():
    assert trained() is LLAMA
    assert not LLAMA.has_frozen


@pytest.mark.parametrize(
    ("targets", "adapters"),
    [("all-linear", 41_943_040), ("attention", 13_631_488)],  # as PEFT prints them for rank 16
)
def test_lora_trains_as_many_parameters_as_peft(targets, adapters):
    assert trained("lora", targets=targets).trained_parameters == adapters


def test_lora_computes_no_gradients_of_frozen_weights():
    lora = trained("lora", rank=1)
    # forward and input gradients: two passes of three; attention has no weights, so all three
    attention = sum(layer.macs for layer in LLAMA if layer.kind == "attention") / LLAMA.macs
    assert training_passes(lora) == pytest.approx(2 + attention, abs=0.005)
    full, frozen = workloads(LLAMA), workloads(lora)
    flops = sum(work.backward.flops for work in full if work.kernel == "matmul")
    left = sum(work.backward.flops for work in frozen if work.kernel == "matmul")
    assert left == pytest.approx(flops / 2, rel=0.01)


def test_first_layers_of_a_frozen_network_have_no_backward_pass():
    head = trained("head")
    assert layers_with_gradient(head) < layers_with_gradient(LLAMA)
    backward = [work.backward.kernels for work in workloads(head)]
    assert sum(backward[:-3]) == 0
    assert backward[-1] > 0
    assert head.trained_parameters == 128256 * 4096


def test_frozen_weights_have_no_gradients_and_no_optimizer_state():
    full, lora = footprint(LLAMA, BF16), footprint(trained("lora"), BF16)
    assert lora.parameters_bytes == pytest.approx(full.parameters_bytes, rel=0.01)
    assert lora.gradients_bytes == 2 * 41_943_040
    assert lora.optimizer_bytes == 12 * 41_943_040


@pytest.mark.parametrize(("base", "gib"), [("nf4", 5.39), ("int4", 5.49), ("int8", 8.63)])
def test_quantized_base_leaves_embeddings_and_head_in_sixteen_bits(base, gib):
    blocks = sum(t.elements for layer in LLAMA if layer.block and layer.macs for t in layer.tensors)
    memory = footprint(trained("qlora", base=base), BF16)
    assert memory.parameters_bytes / GIB == pytest.approx(gib, rel=0.01)
    assert memory.parameters_bytes > 2 * (LLAMA.parameters - blocks)


def test_dequantization_is_constant_per_micro_step():
    lora, qlora = trained("lora"), trained("qlora")

    def added_s(batch: int) -> float:
        times = [
            computation_s(model, batch, A100.device, BF16, optimizer="adam").step_s for model in (lora, qlora)
        ]
        return times[1] - times[0]

    assert added_s(1) > 0.02
    assert added_s(8) == pytest.approx(added_s(1), rel=0.01)


def test_adapters_add_kernels_and_little_arithmetic():
    lora = trained("lora")
    assert lora.macs / LLAMA.macs == pytest.approx(1.005, abs=0.005)
    assert len(lora.layers) - len(LLAMA.layers) == 3 * 7 * 32


def test_dropout_saves_a_copy_and_a_mask_of_what_each_adapter_reads():
    """Without it the queries, keys and values share what they read, as gate and up do."""
    plain, dropped = (saved_activations(trained("lora", dropout=dropout)).by_kind for dropout in (None, 0.05))
    inputs = sum(layer.input_elements for layer in LLAMA if layer.kind == "linear" and layer.block)
    embedded = 3 * 2048 * 4096  # of the first queries, keys and values, which needs no gradient
    assert dropped["dropout"] == ElementCounts(elements=inputs, masks=inputs - embedded)
    assert "dropout" not in plain
    assert trained("lora", dropout=0.05).trained_parameters == trained("lora").trained_parameters
    assert trained("lora", dropout=0.0) == trained("lora")


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_dropout_is_a_share_below_one(dropout):
    with pytest.raises(BadInput, match=r"--dropout is .*as 0\.05"):
        method_settings("lora", dropout=dropout)
    with pytest.raises(BadInput, match="no setting of --train full"):
        method_settings("full", dropout=0.05)


def test_ddp_reduces_adapter_gradients_alone():
    from planner.parallel.data.ddp import AllReduce

    shares = AllReduce().memory_shares(trained("lora"), BF16, Site(A100, 8))
    assert shares.buffers_bytes == 4 * 41_943_040  # autocast sends gradients in fp32


def test_fsdp_gathers_the_frozen_base_in_its_own_width():
    block = group_into_units(trained("qlora"))
    unit = Unit("block", int(block.elements[1]), float(block.frozen_bytes[1]))
    frozen = unit.gathered_bytes(BF16, stage=3) - unit.gathered_bytes(BF16, stage=2)
    elements = LLAMA.blocks[0].parameters
    assert frozen == pytest.approx(elements * 4.127 / 8, rel=0.01)
    assert unit.gathered_bytes(BF16, stage=2) == 2 * unit.elements
    buffers = [
        Sharded().memory_shares(trained(way), BF16, Site(A100, 8)).buffers_bytes for way in ("lora", "qlora")
    ]
    assert buffers[1] <= buffers[0]


@pytest.mark.parametrize(
    ("name", "state"),
    [("sgd", 0), ("momentum", 4), ("adamw", 8), ("adamw-8bit", 2.03), ("adafactor", 0.002), ("lion", 4)],
)
def test_optimizers_keep_state(name, state):
    memory = footprint(trained(optimizer=name), BF16)
    assert memory.optimizer_bytes / LLAMA.parameters == pytest.approx(4 + state, rel=0.005)


def test_muon_keeps_momentum_alone_inside_blocks_and_takes_longer():
    outside = 2 * 128256 * 4096
    expected = 4 * LLAMA.parameters + 4 * (LLAMA.parameters - outside) + 8 * outside
    assert footprint(trained(optimizer="muon"), BF16).optimizer_bytes == pytest.approx(expected, rel=0.001)
    seconds = {
        name: computation_s(trained(optimizer=name), 1, A100.device, BF16).optimizer_s
        for name in ("muon", "adamw")
    }
    assert seconds["muon"] > 3 * seconds["adamw"]


def test_unknown_optimizer_is_refused_with_the_names():
    with pytest.raises(BadInput, match="one of sgd, momentum, adam"):
        find_optimizer("lamb")
    assert set(OPTIMIZERS) >= {"adamw", "adamw-8bit", "muon"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "lora", "rank": 0}, "--rank is 0; it must be 1 to 65,536"),
        ({"method": "full", "base": "nf4"}, "take --train qlora"),
        ({"method": "lora", "base": "nf4"}, "take --train qlora"),
        ({"method": "head", "rank": 4}, "no setting of --train head"),
        ({"method": "lora", "targets": "mlp"}, "all-linear, attention"),
        ({"method": "lroa"}, "nearest: lora"),
    ],
)
def test_contradicting_settings_are_refused(settings, words):
    with pytest.raises(BadInput, match=words):
        method_settings(settings.pop("method"), **settings)


def test_targets_that_a_network_lacks_are_refused():
    with pytest.raises(BadInput, match="vgg11 has no linear layer in its blocks"):
        trained("lora", load_model("vgg11"))


NORMS = """
from dataclasses import replace

from planner.model.methods import Method, freeze_layer


class Norms(Method):
    name = "norms"

    @classmethod
    def apply(cls, model, training, base):
        def bits(layer, tensor):
            return 16.0 if len(tensor.shape) > 1 else None

        return replace(model, layers=tuple(freeze_layer(layer, bits) for layer in model.layers))
"""


@pytest.fixture
def norms(tmp_path, monkeypatch):
    """A method whose file lies beside the others."""
    (tmp_path / "norms.py").write_text(NORMS)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    yield
    sys.modules.pop("planner.model.methods.norms")


def test_method_is_one_file(norms):
    assert list(METHODS) == ["full", "lora", "qlora", "head", "norms"]
    model = trained("norms")
    assert model.trained_parameters == 65 * 4096
    assert footprint(model, BF16).gradients_bytes == 2 * 65 * 4096
    answer = planner.simulate("llama3-8b", hardware="g6e.xlarge", train="norms", batch=1)
    assert "norms" in answer.as_dict()["plan"]["model"]
    with pytest.raises(BadInput, match="--rank 4 is no setting of --train norms"):
        method_settings("norms", rank=4)


def test_tensor_parallelism_of_frozen_networks_is_refused():
    from planner.parallel.tensor import TensorParallel

    assert TensorParallel(8).infeasibility(None, LLAMA) is None
    assert "--pipeline" in str(TensorParallel(8).infeasibility(None, trained("qlora")))


@pytest.mark.parametrize(
    ("method", "base", "gib"), [("full", None, 29.9), ("lora", None, 15.0), ("qlora", "nf4", 5.4)]
)
def test_memory_of_a_model_is_shown_by_training_method(method, base, gib):
    options = ["--train", method, *(["--base", base] if base else [])]
    precision = "fp32" if method == "full" else "bf16"
    asked = ["models", "llama3-8b", "--memory", *options, "--precision", precision, "--format", "json"]
    parts = json.loads(CliRunner().invoke(app, asked).output)["layouts"]["alone"]
    assert parts["parameters_bytes"] / GIB == pytest.approx(gib, rel=0.02)


def test_eight_devices_hold_full_training_of_an_8b_model():
    options = {"optimizer": "adamw", "batch": 1, "seq_length": 2048, "recompute": "full"}
    sharded = {"workers": 8, "exchange": "sharded:stage=3"}
    eight = planner.simulate("llama3-8b", hardware="p4de.24xlarge", **sharded, **options)
    memory = eight.as_dict()["memory"]
    assert memory["total_bytes"] < 0.6 * memory["usable_bytes"]
    with pytest.raises(Infeasible, match="A100-SXM4-80GB"):
        planner.simulate("llama3-8b", hardware="p4de.24xlarge", workers=1, **options)


def test_padded_examples_take_more_samples_and_give_fewer_tokens_per_second():
    options = {"hardware": "g6e.xlarge", "train": "qlora", "batch": 1}
    packed = planner.simulate("llama3-8b", **options)
    padded = planner.simulate("llama3-8b", **options, mean_length=512)
    assert padded.scored.samples_per_s == packed.scored.samples_per_s
    assert padded.scored.tokens_per_s == pytest.approx(packed.scored.tokens_per_s / 4)
    samples = [answer.as_dict()["plan"]["job_samples"] for answer in (packed, padded)]
    assert samples[1] == pytest.approx(4 * samples[0], rel=1e-3)


@pytest.mark.parametrize("length", [0, 2049])
def test_mean_length_outside_the_sample_is_refused(length):
    with pytest.raises(BadInput, match=r"--mean-length is .*; examples have 1 to --seq-length \(2,048\)"):
        planner.simulate("llama3-8b", hardware="g6e.xlarge", train="qlora", mean_length=length)


def test_mean_length_of_images_is_refused():
    with pytest.raises(BadInput, match="--mean-length: resnet50 reads no sequence"):
        planner.simulate("resnet50", hardware="g6e.xlarge", mean_length=5)
