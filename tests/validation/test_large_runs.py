"""Rows of published runs of language models, as plans or with the reason why not."""

from __future__ import annotations

import pytest

from planner.device.computation import repeat_passes
from planner.device.rates.times import find_framework
from planner.model import AttentionShape
from planner.parallel.data.fsdp import Sharded
from planner.parallel.data.owned import Owned
from planner.parallel.mesh import data_parallel_group
from planner.simulator.simulate import Effort, simulate_case
from planner.validation.networks import Dimensions, build_transformer
from planner.validation.predict import (
    RunStep,
    exchange_of,
    exclusion_reason,
    machine_of,
    micro_batch_of,
    predict_range,
    predict_step,
    site_of,
)
from planner.validation.reader import published_runs, read_rows, read_run
from planner.validation.row import fill_columns, load_figures
from planner.validation.run import Run

ROW = {
    "id": "X1",
    "series": "s",
    "source_id": "lab",
    "arch": "llm",
    "model": "GPT 145B",
    "flags": "hidden 12288 layers 80 heads 96 vocab 51200; VP 2",
    "seq_or_image": "2048",
    "micro_batch": "1",
    "global_batch": "2304",
    "precision_norm": "fp16",
    "strategy": "zero1+tp8+pp8",
    "strategy_norm": "3d",
    "dp": "24",
    "tp": "8",
    "pp": "8",
    "cp": "",
    "ckpt_norm": "full",
    "framework": "Megatron-LM",
    "device": "A100-SXM4",
    "device_mem_gb": "80",
    "devices_per_node": "8",
    "devices": "1536",
    "metric_value": "148",
    "metric_unit": "TFLOP/s/GPU (hardware, incl. recompute)",
    "memory_gib": "",
    "params_total": "145000000000",
    "peak_tflops": "312",
    "inter_gbps_per_node": "1600",
    "tokens_per_s_global": "",
    "step_time_s": "",
}


def run(**changes: str) -> Run:
    result = read_run(fill_columns(ROW | changes, 2, "mine"))
    assert isinstance(result, Run), result
    return result


def test_row_is_read_as_a_plan() -> None:
    result = run()
    layout = result.layout
    assert layout is not None
    assert (layout.tensor, layout.pipeline, layout.replicas, layout.interleave, layout.stage) == (
        8,
        8,
        24,
        2,
        1,
    )
    assert result.accumulate == 96
    assert not exclusion_reason(result)
    assert result.model.parameters == pytest.approx(145e9, rel=0.01)
    assert result.links.network_bytes_per_s == 200e9
    assert (layout.kind, result.device_name) == ("model_parallel", "A100-SXM4-80GB")


def test_seconds_follow_from_what_the_source_counts() -> None:
    # 8 floating operations a parameter and token with recomputation, and those of attention and the logits
    counted = run().step_s * 148e12 * 1536
    assert counted / (8 * 145e9 * 2304 * 2048) == pytest.approx(1.02, abs=0.02)
    assert run(metric_unit="TFLOP/s/GPU").step_s == pytest.approx(run().step_s * 3 / 4)
    assert run(step_time_s="12.5").step_s == 12.5
    assert run(tokens_per_s_global="1000").step_s == 2304 * 2048 / 1000


def test_unstated_settings_are_inferred_and_stated() -> None:
    result = run(micro_batch="", flags="hidden 12288 layers  heads  vocab 51k", ckpt_norm="unknown")
    assert set(result.inferred) == {"80 layers", "micro-batch 1", "no recompute", "5 virtual pipeline stages"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dp": "3"}, "are not its 1536 devices"),
        ({"micro_batch": "5"}, "not the global batch"),
        ({"cp": "2"}, "context parallelism"),
        ({"device": "TPU v4"}, "TPU v4 is not in the catalog"),
        ({"flags": "", "model": "Some 3B"}, "network is not in the catalog"),
        ({"seq_or_image": "not stated"}, "no sequence length"),
        ({"precision_norm": "fp4"}, "fp4 is not modelled"),
        ({"metric_unit": "minutes"}, "no rate"),
        ({"framework": "Megatron-LM", "note": "machines not tuned yet"}, "not tuned"),
        ({"id": "T1664"}, "disagree"),
    ],
)
def test_unreadable_rows_state_the_reason(changes: dict[str, str], reason: str) -> None:
    result = read_run(fill_columns(ROW | changes, 2, "mine"))
    assert reason in (result if isinstance(result, str) else exclusion_reason(result))


def test_row_with_an_unknown_name_costs_that_row_only() -> None:
    rows = [
        fill_columns(ROW | {"id": str(number)} | changes, 2, "mine")
        for number, changes in enumerate(
            [{}, {"precision_norm": "int3"}, {"device": "TPU"}, {"model": "Some 3B", "flags": ""}]
        )
    ]
    runs, refused = read_rows(rows)
    assert [entry.id for entry in runs] == ["0", "2", "3"]
    assert [(entry.id, entry.reason) for entry in refused] == [("1", "the precision int3 is not modelled")]
    assert [bool(exclusion_reason(entry)) for entry in runs] == [False, True, True]


def test_transformer_of_given_dimensions_has_the_published_size() -> None:
    llama = build_transformer(Dimensions("llama", 4096, 32, 32, 128256, 8, 14336), 8192)
    assert llama.parameters == 8_030_261_248
    assert len(llama.blocks) == 32


def test_settings_of_a_series_scripts_stand_for_those_its_table_leaves_open() -> None:
    open_row = {"micro_batch": "", "flags": "hidden 12288 layers 80 vocab 51200", "strategy": "tp8+pp8"}
    stated = run(**open_row, series="megatron-a100-weak-apr2021")
    assert (stated.batch, stated.accumulate, stated.layout and stated.layout.interleave) == (2, 48, 2)
    assert stated.inferred == ()
    assert "micro-batch 1" in run(**open_row).inferred


@pytest.mark.parametrize(
    ("framework", "device", "flash"),
    [
        ("Composer/PyTorch (2023-24)", "A100-SXM4", True),
        ("Composer/PyTorch (2023-24)", "V100-SXM3", False),  # FlashAttention wants Ampere
        ("Megatron-DeepSpeed", "A100-SXM4", False),
        ("Megatron-LM (apr2021)", "A100-SXM4", False),
        ("NeMo/Megatron-Bridge container 26.02", "H100-SXM5", True),
        ("PyTorch NGC 22.11", "A100-SXM4", False),  # a container of November 2022
        ("PyTorch NGC 23.03", "A100-SXM4", True),
    ],
)
def test_attention_is_one_kernel_where_software_and_device_have_it(
    framework: str, device: str, flash: bool
) -> None:
    model = run(framework=framework, device=device, source_id="nobody has seen it").model
    assert model is not None
    assert {layer.detail.flash for layer in model.layers if isinstance(layer.detail, AttentionShape)} == {
        flash
    }


def test_sizes_that_stand_for_a_network_are_those_of_its_dimensions() -> None:
    for name, published in (("1.34B", 1.34e9), ("3.57B", 3.57e9), ("8.86B", 8.86e9), ("80B", 80e9)):
        of = load_figures("networks")["models"][f"Llama-style {name}"]
        assert build_transformer(Dimensions(**of), 4096).parameters == pytest.approx(published, rel=2e-3)


def test_gradients_are_exchanged_as_wide_as_the_software_keeps_them() -> None:
    for name, precision, width in (
        ("Megatron-DeepSpeed", "bf16", 4),
        ("Megatron-DeepSpeed", "fp16", 2),
        ("Megatron-LM", "bf16", 2),
    ):
        result = run(framework=name, precision_norm=precision)
        site = site_of(result)
        exchange = exchange_of(result, data_parallel_group(site))
        assert isinstance(exchange, Sharded)
        assert result.precision is not None
        assert exchange.gradient_bytes(result.precision) == width


def test_checkpoints_are_those_of_the_software() -> None:
    for name, early in (
        ("InternEvo v0.2", False),
        ("Composer/PyTorch (2023-24)", True),
        ("Megatron-LM", False),
    ):
        assert find_framework(run(framework=name).software.tier).stops_early == early


@pytest.mark.parametrize(
    ("written", "size"),
    [
        *(("Llama-3-8B", 8.03e9), ("LLAMA3_8B", 8.03e9), ("llama3 70b", 70.55e9), ("Llama 2 70B", 68.98e9)),
        *(("LLaMA-65B", 65.3e9), ("Llama-3.2-1B", 1.236e9), ("Mistral-7B", 7.24e9)),
        *(("OPT 6.7B", 6.66e9), ("gpt-neox-20b", 20.0e9), ("BLOOM 176B", 176.2e9)),
    ],
)
def test_networks_are_known_however_their_names_are_written(written: str, size: float) -> None:
    result = run(model=written, flags="")
    assert result.model is not None
    assert result.model.parameters == pytest.approx(size, rel=0.03)


@pytest.mark.parametrize("id", ["T1116", "T1119", "T1365", "T1359", "T1892", "T2860", "T3281"])
def test_run_is_predicted_as_plans_are(id: str) -> None:
    """By the simulation of unlike steps, as `planner simulate` does it: the slowest is waited for once."""
    first = next(run for run in published_runs()[0] if run.id == id)
    step, site = predict_step(first), site_of(first)
    assert isinstance(step, RunStep)
    group = data_parallel_group(site)
    computation = repeat_passes(micro_batch_of(first, site), first.accumulate)
    drawn = simulate_case(exchange_of(first, group).lower(computation, group), Effort(max_steps=400))
    assert step.seconds == pytest.approx(computation.batch * group.workers / drawn.samples_per_s, rel=0.015)
    assert step.slower > 1.005


def test_open_setting_widens_the_range_to_both_readings() -> None:
    stated, left_open = predict_range(run()), predict_range(run(ckpt_norm="unknown"))
    none = predict_range(run(ckpt_norm="none"))
    assert not isinstance(stated, str)
    assert not isinstance(left_open, str)
    assert not isinstance(none, str)
    assert left_open.low_s == none.low_s
    assert left_open.high_s == pytest.approx(stated.high_s)
    assert stated.low_s > none.low_s


def test_internevo_deals_out_whole_tensors() -> None:
    said = {"framework": "InternEvo v0.2", "strategy": "zero1(group=8)", "strategy_norm": "zero1"}
    said |= {"tp": "1", "pp": "1", "dp": "1536", "global_batch": "3072"}
    result = run(**said)
    site = site_of(result)
    exchange = exchange_of(result, site)
    assert isinstance(exchange, Owned)
    assert (exchange.within, exchange.bucket_bytes) == ("machine", 2**30)
    assert isinstance(exchange_of(run(**said | {"framework": "DeepSpeed"}), site), Sharded)
    assert isinstance(exchange_of(run(**said | {"strategy_norm": "zero3/fsdp"}), site), Sharded)


@pytest.mark.parametrize(("gbit_per_s", "nics"), [("40", 1), ("100", 1), ("400", 4), ("1600", 8), ("", 8)])
def test_nics_have_100_gbit_a_second_at_least(gbit_per_s: str, nics: int) -> None:
    machine = machine_of(run(inter_gbps_per_node=gbit_per_s))
    assert machine.nics == nics
