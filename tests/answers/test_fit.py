"""`planner fit` and requests with a training method."""

from __future__ import annotations

import pytest

import planner
from planner.answers.fit import fit_for
from planner.answers.questions import parse_request, simulation_for
from planner.errors import BadInput
from planner.hardware.catalog import load_hardware
from planner.report.memory import fit_page
from planner.search.request import model_of
from planner.search.scored import training_of


@pytest.fixture(scope="module")
def rows():
    fit = fit_for("llama3-8b", "RTX-4090,L4,A100")
    return {
        (row.gpu, row.method.split(",")[0] + (" 8-bit" if "8-bit" in row.method else "")): row
        for row in fit.rows
    }


def test_8b_model_fits_as_practice_says(rows):
    a100 = next(gpu for gpu, _ in rows if gpu.startswith("A100"))
    assert all(rows[gpu, "QLoRA"].fits for gpu in ("RTX-4090", "L4", a100))
    assert rows["RTX-4090", "LoRA"].fits  # barely
    assert rows["RTX-4090", "LoRA"].peak_bytes > 0.9 * rows["RTX-4090", "LoRA"].usable_bytes
    assert not rows[a100, "full"].fits
    nearly = rows[a100, "full 8-bit"]
    assert 1 < nearly.peak_bytes / nearly.usable_bytes < 1.15


def test_rows_that_do_not_fit_have_no_speed_and_no_cost(rows):
    for row in rows.values():
        assert row.fits == (row.tokens_per_s is not None) == (row.job_usd is not None)


def test_job_costs_its_time_on_the_cheapest_offer(rows):
    row = rows["L4", "QLoRA"]
    assert row.job_s == pytest.approx(30e6 / row.tokens_per_s)
    assert row.job_usd == pytest.approx(row.job_s / 3600 * row.usd_per_hour)


def test_qlora_fits_in_16_gib():
    fits = {row.method.split(",")[0]: row.fits for row in fit_for("llama3-8b", "T4").rows}
    assert fits["QLoRA"]
    assert not fits["LoRA"]


def test_offload_is_a_remedy_where_no_method_fits():
    rows = fit_for("llama3-70b", "RTX-4090,A100").rows
    remedies = [row for row in rows if row.is_remedy]
    assert [(row.gpu, row.fits) for row in remedies] == [("RTX-4090", True)]
    assert "slow" in remedies[0].method
    machine = load_hardware(remedies[0].machine)
    assert machine.memory_bytes > 40 * 2**30  # frozen weights of four bits, and the optimizer
    page = str(fit_page(planner_fit := fit_for("llama3-70b", "RTX-4090,A100")).answer)
    assert planner_fit.rows == rows
    assert "on A100" in page  # no remedy is the cheapest where a method fits


def test_gpus_are_the_fewest_that_hold_a_method(rows):
    a100 = next(gpu for gpu, _ in rows if gpu.startswith("A100"))
    assert rows[a100, "full"].gpus == 2  # 16 bytes per parameter, of 8 billion
    assert rows["RTX-4090", "full"].gpus == 8
    assert all(row.gpus == 1 for row in rows.values() if row.fits)
    gpus = {row.method.split(",")[0]: row.gpus for row in fit_for("llama3-405b", "A100").rows if not row.fits}
    assert gpus == {"full": None, "LoRA": None, "QLoRA": 4}


def test_fit_refuses_networks_without_tokens():
    with pytest.raises(BadInput, match="reads no tokens"):
        fit_for("vgg11", "A100")


def test_default_job_of_fine_tuning_is_three_epochs_over_ten_million_tokens():
    request = parse_request("llama3-8b", train="qlora")
    assert model_of(request).sequence_length == 2048
    job = training_of(request)
    assert job.words == "3 epochs"
    assert job.tokens == pytest.approx(30e6, rel=0.001)


def test_dataset_tokens_and_epochs_make_the_job():
    request = parse_request("llama3-8b", train="lora", dataset_tokens="50M", epochs=2)
    assert training_of(request).tokens == pytest.approx(100e6, rel=0.001)


def test_plans_of_full_training_keep_their_keys():
    plain = simulation_for(parse_request("gpt2", hardware="g5.xlarge", workers="1")).scored.plan
    same = simulation_for(parse_request("gpt2", hardware="g5.xlarge", workers="1", train="full")).scored.plan
    assert plain.key == same.key == "gpt2/" + plain.key.split("/", 1)[1]
    tuned = simulation_for(parse_request("gpt2", hardware="g5.xlarge", workers="1", train="lora")).scored.plan
    assert tuned.key.startswith("gpt2-lora-r16-all-linear-bf16/")


@pytest.mark.parametrize(("model", "options"), [("llama3-8b", {"budget": 2}), ("llama3-70b", {})])
def test_qlora_is_recommended_on_one_machine(model, options):
    chosen = planner.recommend(model, train="qlora", **options).chosen
    assert chosen.plan.workers <= load_hardware(chosen.plan.machine).device_count
