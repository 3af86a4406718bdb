"""Published runs: what is read, what is left out and why, and how well it is met."""

from __future__ import annotations

from collections import Counter

import numpy as np

from planner.device.rates.kernels import network_of
from planner.validation.rates import log_error
from planner.validation.training import one_machine_runs, single_device_runs, training_rows

RUNS = single_device_runs()


def test_all_rows_have_a_source_and_a_place() -> None:
    rows = training_rows()
    assert len(rows) == 2323
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["source_id"] and row["repo"] + row["path"] + row["note"] for row in rows)


def test_runs_are_of_many_sources_devices_and_precisions() -> None:
    assert len({run.source for run in RUNS}) >= 15
    assert len({run.device.name for run in RUNS}) >= 15
    assert {run.precision.name for run in RUNS} >= {"fp32", "tf32", "fp16", "bf16"}
    assert Counter(network_of(run.model) for run in RUNS)["transformer"] > 100
    assert len({run.id for run in RUNS}) == len(RUNS)


def test_a_run_has_the_settings_that_its_row_tells() -> None:
    by_id = {run.id: run for run in RUNS}
    run = by_id["T0102"]  # MXNet NGC, fp16, DALI, NHWC, 3,410.52 images/s with 512
    assert (run.model.name, run.batch, run.device.name) == ("resnet50-v1.5", 512, "A100-SXM4-80GB")
    assert (run.framework, run.precision.name, run.channels_last) == ("fused", "fp16", True)
    assert abs(run.per_s - 3410.52) < 0.01
    assert by_id["T3736"].input == "files"
    assert by_id["T3742"].input == "synthetic"
    assert by_id["T0486"].update_share == 1 / 8192


def test_rows_that_no_setting_explains_say_why() -> None:
    reasons = {run.id: run.unexplained for run in RUNS if run.unexplained}
    assert "below L40S" in reasons["T4088"]
    assert "sorted by length" in reasons["T0411"]
    assert len(reasons) < len(RUNS) / 5


def test_fine_tuning_has_no_vocabulary_head() -> None:
    by_id = {run.id: run for run in RUNS}
    assert not any(layer.name.startswith("cls.predictions") for layer in by_id["T0438"].model.layers)
    assert any(layer.name.startswith("cls.predictions") for layer in by_id["T3656"].model.layers)


def test_sharded_runs_count_what_they_send() -> None:
    run = next(run for run in one_machine_runs() if run.id == "T1143")  # MPT-7b on 8 H100, FSDP
    assert run.communication_s == 3 * 2 * run.model.parameters * 7 / 8 / 367e9
    assert run.update_share == 1 / 8


def test_published_runs_are_met() -> None:
    used = [run for run in (*RUNS, *one_machine_runs()) if not run.unexplained and run.input != "files"]
    off = np.abs(np.expm1([-log_error(run) for run in used]))
    assert np.median(off) < 0.06
    assert np.quantile(off, 0.9) < 0.20


def test_devices_that_files_hold_up_are_met_too() -> None:
    files = [run for run in RUNS if run.input == "files" and run.device.vendor == "nvidia"]
    off = np.abs(np.expm1([-log_error(run) for run in files]))
    assert len(files) >= 8
    assert np.median(off) < 0.15


def test_settings_that_a_table_leaves_open_are_those_that_its_source_states() -> None:
    by_id = {run.id: run for run in RUNS}
    assert by_id["T3509"].update_share == 0.1  # DeepSpeed's kernels: ten batches accumulated
    assert by_id["T3549"].update_share == 1.0  # its fine-tuning: none
    heads = {run.id: any(layer.name == "loss" for layer in run.model.layers) for run in RUNS}
    assert heads["T3515"]  # Hugging Face's code applies the vocabulary to all positions
    assert not heads["T3509"]  # NVIDIA's to the masked ones
    machine = {run.id: run for run in one_machine_runs()}
    assert machine["T1566"].framework == "transformer-engine"  # Megatron on B200
