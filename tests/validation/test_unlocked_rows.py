"""Rows that need more than their columns: frozen layers, lengths in words, fabrics, definitions of rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.device.rates import model_error, network_class
from planner.model.layers import workloads
from planner.validation.networks import find_network
from planner.validation.predict import RunStep, predict_step
from planner.validation.reader import published_runs, read_run, training_rows
from planner.validation.run import Run
from planner.validation.suites import OF_RUNS, suite_evidence

RUNS: dict[str, Run] = {run.id: run for run in published_runs()[0]}
ROWS = {row["id"]: row for row in training_rows()}


def seconds(run: Run) -> float:
    step = predict_step(run)
    assert isinstance(step, RunStep), step
    return step.seconds


def test_at_least_85_percent_of_the_published_rows_are_compared() -> None:
    compared = {row.id for name in OF_RUNS for row in suite_evidence(name).rows} & ROWS.keys()
    assert len(compared) >= 0.85 * len(ROWS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ResNet-50", "cnn"),
        ("RegNetY-128GF", "cnn"),
        ("BERT-Large", "transformer"),
        ("T5-v1.1-xl", "transformer"),
        ("SSD320", "other"),
        ("nnU-Net 3D", "other"),
        ("GNMT v2", "other"),
    ],
)
def test_networks_are_of_three_kinds(name: str, kind: str) -> None:
    model = find_network(name)
    assert model is not None
    assert network_class(model) == kind


def test_networks_of_another_kind_have_wider_ranges() -> None:
    assert model_error("new kind", "other").q90 > 1.5 * model_error("new kind", "cnn").q90
    assert model_error("matmul", "other").q90 >= model_error("new kind", "other").q90


def test_frozen_layers_of_a_recipe_have_no_backward_pass() -> None:
    model = find_network("RetinaNet ResNeXt50")
    assert model is not None
    work = dict(zip((layer.name for layer in model.layers), workloads(model), strict=True))
    assert work["backbone.body.layer1.0.conv1"].backward.flops == 0
    assert work["backbone.body.layer2.0.conv2"].backward.flops > 0
    norm = work["backbone.body.layer3.0.bn1"]  # statistics are fixed: input and gradient are read once
    size = norm.forward.written_elements
    assert (norm.forward.read_elements, norm.backward.read_elements) == (size, size)
    assert norm.backward.weight_elements == 0


def test_several_devices_read_images_in_the_layout_that_one_does() -> None:
    one, two = seconds(RUNS["T2207"]), seconds(RUNS["T2256"])  # ResNet-50 in fp16, channels first
    assert 1.0 < two / one < 1.1
    last = RUNS["T2256"].software
    assert seconds(RUNS["T2256"].read_as(software=replace(last, channels_last=True))) < 0.9 * two


def test_lengths_in_words_are_looked_up_and_padded_to_the_longest() -> None:
    packed = RUNS["T2815"]
    assert packed.model is not None
    assert packed.model.sequence_length == 256
    assert "256 tokens per sequence" in packed.inferred
    lengths = {RUNS[id].batch: RUNS[id].model.sequence_length for id in ("T3828", "T3829", "T3832")}  # type: ignore[union-attr]
    assert lengths == {1: 109, 4: pytest.approx(205, abs=3), 40: pytest.approx(398, abs=5)}


def test_adapters_are_trained_and_the_base_is_frozen() -> None:
    model = RUNS["T3828"].model
    assert model is not None
    assert model.has_frozen
    assert model.trained_parameters < 0.01 * model.parameters
    sharded = read_run(ROWS["T2986"])
    assert isinstance(sharded, Run)
    assert "adapters (LoRA) on layers that ranks share are not modelled" in sharded.unknown


def test_a_machine_without_a_stated_fabric_has_the_usual_one_of_its_device() -> None:
    run = RUNS["T2752"]
    assert run.links.fabric == "pcie4"
    assert seconds(run) > 0


def test_a_rate_without_a_definition_is_read_both_ways() -> None:
    run = next(run for run in RUNS.values() if run.source == "deepspeed-zeropp" and not run.unknown)
    assert run.batch == 1
    assert run.model is not None
    assert run.model.sequence_length in {1024, 2048}
    (other,) = run.readings
    assert run.step_s is not None
    assert other.step_s == pytest.approx(run.step_s * 3 / 4)


def test_rates_of_timers_alone_are_no_step() -> None:
    assert RUNS["T3402"].doubtful.startswith("its rate leaves out")


@pytest.mark.parametrize(
    ("id", "tier"), [("T2798", "mlperf"), ("T0126", "ngc"), ("T0130", "xla"), ("T0395", "tensorflow")]
)
def test_software_tiers_follow_flags_and_sources(id: str, tier: str) -> None:
    assert RUNS[id].software.tier == tier


def test_code_without_a_framework_is_a_tier() -> None:
    row = ROWS["T0126"] | {"framework": "llm.c", "flags": "", "arch": "llm", "source_id": "mine"}
    run = read_run(row)
    assert isinstance(run, Run)
    assert run.software.tier == "c"


def test_read_run_rate_counting_several_items_per_sample_gives_longer_step() -> None:
    translation, crops = RUNS["T2206"], RUNS["T3802"]
    assert translation.step_s == pytest.approx(1520 * 1.6 * 27 / 243500)  # tokens of both sides
    assert crops.step_s == pytest.approx(16 * 2 / 96.58)  # two global crops per image


def test_network_of_row_whose_source_runs_a_variant_is_that_variant() -> None:
    adaptive, full = RUNS["T0783"].model, RUNS["T2559"].model
    assert adaptive is not None
    assert full is not None
    assert full.layers[-1].output_shape == (192, 267735)
    assert full.macs > 2 * adaptive.macs
    large = RUNS["T2560"].model
    assert large is not None
    assert large.sequence_length == 256


def test_device_of_row_with_higher_power_limit_has_faster_products() -> None:
    usual, dgx2h = RUNS["T0889"], RUNS["T0895"]
    assert usual.device is not None
    assert dgx2h.device is not None
    assert dgx2h.device_name == "V100-SXM3-32GB-450W"
    assert 1.1 < dgx2h.device.matmul_flops["fp16"] / usual.device.matmul_flops["fp16"] < 1.2
    assert seconds(dgx2h) < seconds(usual)


def test_recurrent_layers_of_one_library_call_launch_fewer_kernels() -> None:
    run = RUNS["T0883"]
    assert run.model is not None
    framework = replace(run.model, layers=tuple(replace(layer, host_share=1.0) for layer in run.model.layers))
    assert seconds(run) < 0.6 * seconds(run.read_as(model=framework))


def test_read_run_length_with_a_superscript_is_no_number() -> None:
    row = next(row for row in ROWS.values() if row["seq_or_image"].isdecimal() and row["arch"] == "llm")
    assert isinstance(read_run(row | {"seq_or_image": "²"}), Run)
