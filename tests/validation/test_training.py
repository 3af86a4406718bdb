"""Published runs: what is read, what is left out and why, and how well it is met."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from planner.device.rates import network_class
from planner.model import Layer
from planner.validation.predict import RunStep, predict_step
from planner.validation.reader import published_runs, training_rows
from planner.validation.run import Run
from planner.validation.suites import is_excluded_from_fit, is_without_network
from planner.validation.throughput import throughput_runs

ALONE = [run for run in (*published_runs()[0], *throughput_runs()) if is_without_network(run)]
KNOWN = [run for run in ALONE if run.model is not None and run.device is not None]
RUNS = [run for run in KNOWN if run.devices == 1]


def errors_of(runs: list[Run]) -> np.ndarray:
    steps = [(run, step) for run in runs if isinstance(step := predict_step(run), RunStep)]
    return np.array([abs(run.step_s / step.seconds - 1) for run, step in steps if run.step_s is not None])


def test_all_rows_have_a_source_and_a_place() -> None:
    rows = training_rows()
    assert len(rows) == 2323
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["source_id"] and row["repo"] + row["path"] + row["note"] for row in rows)


def test_runs_are_of_many_sources_devices_and_precisions() -> None:
    assert len({run.source for run in RUNS}) >= 15
    assert len({run.device_name for run in RUNS}) >= 15
    assert {run.precision.name for run in RUNS if run.precision} >= {"fp32", "tf32", "fp16", "bf16"}
    assert Counter(network_class(run.model) for run in RUNS if run.model)["transformer"] > 100
    assert len({run.id for run in RUNS}) == len(RUNS)


def test_run_has_the_settings_that_its_row_tells() -> None:
    by_id = {run.id: run for run in RUNS}
    run = by_id["T0102"]  # MXNet NGC, fp16, DALI, NHWC, 3,410.52 images/s with 512
    assert (run.model and run.model.name, run.batch, run.device_name) == (
        "resnet50-v1.5",
        512,
        "A100-SXM4-80GB",
    )
    assert (run.software.tier, run.precision and run.precision.name) == ("fused", "fp16")
    assert run.software.channels_last is True
    assert abs(run.samples_per_s - 3410.52) < 0.01
    assert by_id["T3736"].software.input == "files"
    assert by_id["T3742"].software.input == "synthetic"
    assert by_id["T0486"].accumulate == 8192


def test_rows_that_no_setting_explains_say_why() -> None:
    reasons = {run.id: run.doubtful for run in RUNS if run.doubtful}
    assert "below L40S" in reasons["T4088"]
    assert "sorted by length" in reasons["T0411"]
    assert len(reasons) < len(RUNS) / 5


def test_fine_tuning_has_no_vocabulary_head() -> None:
    by_id = {run.id: run for run in RUNS}
    assert not any(layer.name.startswith("cls.predictions") for layer in layers_of(by_id["T0438"]))
    assert any(layer.name.startswith("cls.predictions") for layer in layers_of(by_id["T3656"]))


def layers_of(run: Run) -> tuple[Layer, ...]:
    assert run.model is not None
    return run.model.layers


def test_published_runs_are_met() -> None:
    kinds = ("cnn", "transformer")
    known = [
        run
        for run in KNOWN
        if run.model and network_class(run.model) in kinds and not is_excluded_from_fit(run)
    ]
    off = errors_of([run for run in known if run.software.input != "files"])
    assert len(off) > 500
    assert np.median(off) < 0.06
    assert np.quantile(off, 0.9) < 0.20


def test_devices_that_files_hold_up_are_met_too() -> None:
    by_device: dict[str, list[Run]] = defaultdict(list)
    for run in RUNS:
        if run.software.input == "files" and run.device and run.device.vendor == "nvidia":
            by_device[run.device_name].append(run)
    assert sum(map(len, by_device.values())) >= 8
    medians = [float(np.median(errors_of(runs))) for runs in by_device.values()]
    assert np.median(medians) < 0.15
    assert max(medians) < 0.27


def test_settings_that_a_table_leaves_open_are_those_that_its_source_states() -> None:
    by_id = {run.id: run for run in ALONE}
    assert by_id["T3509"].accumulate == 10  # DeepSpeed's kernels: ten batches accumulated
    assert by_id["T3549"].accumulate == 1  # its fine-tuning: none
    heads = {run.id: any(layer.name == "loss" for layer in layers_of(run)) for run in RUNS}
    assert heads["T3515"]  # Hugging Face's code applies the vocabulary to all positions
    assert not heads["T3509"]  # NVIDIA's to the masked ones
    assert by_id["T1566"].software.tier == "transformer-engine"  # Megatron on B200
