"""Limits on plans, machines and values of flags, on both sides of each; figures, not the constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.device.precision import FP32
from planner.errors import BadInput
from planner.hardware import Device, Hardware, Market
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import EXCHANGES, Site
from planner.parallel.data.ddp import AllReduce
from planner.parallel.plan import Plan
from planner.search import field, flag_values, measured, objectives
from planner.search.cases import Cases, has_jpeg_samples, input_samples_per_s
from planner.search.feasibility import Exclusion, Feasibility, exclusion, has_machines
from planner.search.field import _SingleDevice
from planner.search.flag_values import check_size
from planner.search.machines import owned_machine_count
from planner.search.objectives import staleness_discount
from planner.search.race import Race
from planner.search.request import Request
from planner.search.screening import BoundPruner
from planner.search.simulations import Simulations, executor_of
from planner.search.sizes import (
    batch_discount,
    dividing_batches,
    is_batch_open,
    is_over_max_step,
    max_step_samples,
    smaller_batches,
    usual_precision,
    with_workers,
    worker_counts,
)
from planner.search.space import enumerate_plans
from planner.servers.parameter_servers import ParameterServers

RESNET = load_model("resnet50")
ASKED = Request(model="resnet50", hardware=("p3.2xlarge",), workers=(4,), batches=(32,))
SCORE = ("samples_per_s", "samples_per_s_low", "samples_per_s_high")
FOUR = Plan("resnet50", 32, "p3.2xlarge", 4, AllReduce())  # $3.06 per hour each


def excluded(request: Request, plan: Plan = FOUR) -> str | None:
    return exclusion(plan, request, Feasibility(request, RESNET))[0]


def test_plan_that_costs_exactly_the_budget_is_kept() -> None:
    usd = 4 * 3.06
    for budget, reason in ((usd, None), (np.nextafter(usd, 0.0), Exclusion.OVER_BUDGET)):
        request = replace(ASKED, budget_usd_per_hour=float(budget))
        assert excluded(request) == reason
        kept = [plan.workers for plan in enumerate_plans(request, RESNET).plans]
        assert kept == ([4] if reason is None else [])


def test_plan_of_exactly_the_machines_that_are_asked_for_is_kept() -> None:
    assert excluded(replace(ASKED, machines=4)) is None
    assert excluded(replace(ASKED, machines=3)) == Exclusion.OVER_MACHINES


def test_plan_of_exactly_the_global_batch_is_kept() -> None:
    assert excluded(replace(ASKED, batches=None, global_batch=128)) is None
    for samples in (127, 129):
        assert excluded(replace(ASKED, batches=None, global_batch=samples)) == Exclusion.INDIVISIBLE


def test_plan_of_exactly_the_owned_machines_is_kept() -> None:
    own = replace(load_hardware("p3.2xlarge"), name="ours", standing="own", machines=4)
    market = Market(own=(own,))
    asked: Any = SimpleNamespace(market=market, machines=None, workers=(4,))
    assert owned_machine_count(asked, own) == 4
    rented = replace(FOUR, machine="ours").rented(market)
    assert has_machines(rented, asked)
    assert not has_machines((*rented, replace(rented[0], role="servers", count=1)), asked)


def test_largest_batch_that_fits_is_kept_and_one_more_is_not() -> None:
    feasibility = Feasibility(ASKED, RESNET)
    alone = replace(FOUR, precision=FP32)
    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        fits = feasibility.out_of_memory(replace(alone, batch=middle)) is None
        low, high = (middle, high) if fits else (low, middle)
    for batch, fits in ((low, True), (low + 1, False)):
        parts = feasibility.memory(replace(alone, batch=batch))
        assert parts is not None
        assert (sum(parts[0].values()) <= parts[1]) is fits


@pytest.mark.parametrize(
    ("values", "good"),
    [
        ({"confidence": 0.5}, True),
        ({"confidence": 0.499}, False),
        ({"confidence": 0.999}, True),
        ({"confidence": 1.0}, False),
        ({"min_marginal_efficiency": 1.0}, True),
        ({"min_marginal_efficiency": 1.001}, False),
        ({"min_marginal_efficiency": 1e-9}, True),
        ({"min_marginal_efficiency": 0.0}, False),
        ({"interval_width": 1e-6}, True),
        ({"interval_width": 0.9e-6}, False),
        ({"interval_width": 0.4999}, True),
        ({"interval_width": 0.5}, False),
        ({"spot": True, "interruptions": 0.0}, True),
        ({"spot": True, "interruptions": 1e-9}, True),
        ({"spot": True, "interruptions": 0.9e-9}, False),
        ({"spot": True, "interruptions": 0.999}, True),
        ({"spot": True, "interruptions": 1.0}, False),
        ({"workers": (1,)}, True),
        ({"workers": (0,)}, False),
        ({"workers": (4096,)}, True),
        ({"workers": (4097,)}, False),
    ],
)
def test_request_values_at_the_ends_of_their_ranges(values: dict[str, Any], good: bool) -> None:
    if good:
        replace(ASKED, **values)
    else:
        with pytest.raises(BadInput):
            replace(ASKED, **values)


@pytest.mark.parametrize(
    ("workers", "servers", "good"),
    [
        (4096, 32, True),
        (4096, 33, False),
        (256, 512, True),
        (256, 513, False),
        (1, 512, True),
        (1, 513, False),
    ],
)
def test_check_size_takes_so_many_workers_servers_and_links(workers: int, servers: int, good: bool) -> None:
    if good:
        check_size(workers, servers)
        return
    with pytest.raises(BadInput, match="simulated"):
        check_size(workers, servers)
    assert flag_values.MOST_PAIRS == 4096 * 32


@pytest.mark.parametrize(("fp16", "precision"), [(4.0, "fp16"), (3.99, "fp32")])
def test_usual_precision_takes_fp16_from_four_times_the_fp32_peak(fp16: float, precision: str) -> None:
    device = Device("X", "gpu", flops={"fp32": 1e12, "fp16": fp16 * 1e12}, memory_bytes=16e9)
    assert usual_precision(device).name == precision
    assert usual_precision(replace(device, flops={**device.flops, "bf16": 1e12})).name == "bf16"
    assert usual_precision(replace(device, kind="cpu", flops={"fp32": 1e12, "bf16": 1e12})).name == "fp32"


def test_dividing_batches_are_the_largest_divisors_up_to_each_limit() -> None:
    assert dividing_batches(96, [1, 31, 32, 33, 95, 96, 97]) == [1, 24, 32, 48, 96]
    assert dividing_batches(7, [0, 6, 7]) == [1, 7]


def test_worker_counts_take_every_count_to_64_then_eighths() -> None:
    counts = worker_counts(replace(ASKED, workers=None, machines=100), load_hardware("p3.2xlarge"), RESNET)
    assert counts[:64] == list(range(1, 65))
    assert counts[64:] == [72, 81, 91]
    assert worker_counts(replace(ASKED, workers=None), load_hardware("p3.2xlarge"), RESNET)[-1] <= 128


@pytest.mark.parametrize(("budget", "most"), [(3.06 * 4, 5), (3.06 * 4 - 0.01, 4)])
def test_worker_counts_look_at_one_machine_above_the_budget(budget: float, most: int) -> None:
    request = replace(ASKED, workers=None, budget_usd_per_hour=budget)
    assert worker_counts(request, load_hardware("p3.2xlarge"), RESNET)[-1] == most


def test_with_workers_keeps_the_global_batch_or_says_that_it_cannot() -> None:
    assert with_workers(FOUR, 8, None) == replace(FOUR, workers=8)
    shared = with_workers(replace(FOUR, accumulate=2), 8, 256)
    assert shared is not None
    assert shared.accumulate == 1
    assert with_workers(FOUR, 3, 256) is None


def test_images_of_a_step_end_at_8192_and_tokens_at_two_to_the_24th() -> None:
    open_ = Request(model="resnet50", hardware=("p3.2xlarge",))
    assert not is_over_max_step(open_, RESNET, 32, 256)
    assert is_over_max_step(open_, RESNET, 1, 8193)
    assert not is_over_max_step(open_, RESNET, 8193, 1)  # one device takes what it is given
    assert max_step_samples(load_model("bert-large").with_sequence_length(512)) == 32768


@pytest.mark.parametrize(("parameters", "is_open"), [(7_999_999_999, True), (8_000_000_000, False)])
def test_batch_is_open_below_eight_billion_parameters(parameters: int, is_open: bool) -> None:
    """Parameters that are trained: the batch of adapters on a larger network is open."""
    model: Any = SimpleNamespace(trained_parameters=parameters, default_batch=8)
    request = Request(model="resnet50", hardware=("p3.2xlarge",))
    assert is_batch_open(request, model) is is_open
    assert smaller_batches(request, model) == ((4, 2, 1) if is_open else ())


def test_batch_discount_is_a_fiftieth_per_doubling_above_the_own_batch() -> None:
    own = RESNET.default_batch
    assert [batch_discount(batch, RESNET) for batch in (own // 2, own)] == [1.0, 1.0]
    assert batch_discount(4 * own, RESNET) == pytest.approx(0.98**2)


def test_asynchronous_plans_must_be_ten_percent_ahead_where_the_mode_is_open() -> None:
    stale = ParameterServers(mode="async")
    open_ = Request(model="resnet50", hardware=("p3.2xlarge",))
    assert staleness_discount(stale, 2, open_) == pytest.approx(1 / 1.1)
    assert staleness_discount(stale, 1, open_) == 1.0
    assert staleness_discount(ParameterServers(mode="sync"), 2, open_) == 1.0
    assert staleness_discount(stale, 2, replace(open_, mode="async")) == 1.0


@pytest.mark.parametrize(
    ("parameters", "workers", "machine", "considered"),
    [
        (2_000_000_000, 2, "c5.9xlarge", True),
        (2_000_000_001, 2, "c5.9xlarge", False),
        (1_000_000, 1, "c5.9xlarge", False),
        (1_000_000, 32, "c5.9xlarge", True),
        (1_000_000, 33, "c5.9xlarge", False),
        (10_000_000, 2, "p3.2xlarge", True),
        (10_000_001, 2, "p3.2xlarge", False),
    ],
)
def test_parameter_servers_are_considered_within_their_limits(
    parameters: int, workers: int, machine: str, considered: bool
) -> None:
    site = Site(load_hardware(machine), workers)
    assert EXCHANGES.entry("servers").considered(parameters, site) is considered


class _At:
    """A front with one plan: 100 samples/s at 1 USD per sample."""

    def dominates(self, speed: float, usd_per_sample: float, plan: int) -> bool:
        return speed <= 100.0


@pytest.mark.parametrize(("ceiling", "kept"), [(97.0, True), (96.0, False)])
def test_bound_pruner_keeps_what_two_percent_and_the_interval_may_lift(ceiling: float, kept: bool) -> None:
    """Of 96 samples/s, 2% for variation and 2% for the interval are not quite 100; of 97 they are more."""
    cases = Cases(replace(ASKED, interval_width=0.02), RESNET)
    pruner = BoundPruner(cases, _At(), ())  # type: ignore[arg-type]
    assert pruner._may_win(ceiling, 0.0) is kept
    assert not pruner._may_win(0.0, 0.0)  # no option at all


@pytest.mark.parametrize(("times", "gone"), [(2.99, False), (3.01, True)])
def test_machines_three_times_as_expensive_per_sample_are_left_out(times: float, gone: bool) -> None:
    """The rival surely reaches nine tenths of its bound: 100 samples/s at $0.9 cost a millionth part more."""
    device = Device("X", "gpu", flops={"fp32": 1e12}, memory_bytes=16e9)
    rival = _SingleDevice(Hardware("rival", device), 100.0, 0.9)
    dear = _SingleDevice(Hardware("dear", device), 10.0, 0.1 * times)
    cases = Cases(replace(ASKED, hardware=None, workers=None, budget_usd_per_hour=0.95), RESNET)
    assert ("dear" in field._find_outclassed([rival, dear], cases)) is gone


@pytest.mark.parametrize(("usd", "gone"), [(1.0, True), (1.001, False)])
def test_machine_of_exactly_the_budget_is_a_rival(usd: float, gone: bool) -> None:
    device = Device("X", "gpu", flops={"fp32": 1e12}, memory_bytes=16e9)
    rival = _SingleDevice(Hardware("rival", device), 100.0, usd)
    dear = _SingleDevice(Hardware("dear", device), 0.5, 0.5)
    cases = Cases(replace(ASKED, hardware=None, workers=None, budget_usd_per_hour=1.0), RESNET)
    assert ("dear" in field._find_outclassed([rival, dear], cases)) is gone


@pytest.mark.parametrize(("speed", "gone"), [(22.4, True), (22.6, False)])
def test_expensive_machines_stay_where_the_budget_makes_them_the_fastest(speed: float, gone: bool) -> None:
    """Four of them are within the budget; the rival surely reaches 90 samples/s."""
    device = Device("X", "gpu", flops={"fp32": 1e12}, memory_bytes=16e9)
    rival = _SingleDevice(Hardware("rival", device), 100.0, 0.1)
    dear = _SingleDevice(Hardware("dear", device), speed, 1.0)
    cases = Cases(replace(ASKED, hardware=None, workers=None, budget_usd_per_hour=4.0), RESNET)
    assert ("dear" in field._find_outclassed([rival, dear], cases)) is gone


def test_cpus_are_left_out_of_large_models_from_eight_billion_parameters_on() -> None:
    kinds = [load_hardware("c5.9xlarge"), load_hardware("p3.2xlarge")]
    for parameters, slow in ((8_000_000_000, ["c5.9xlarge"]), (7_999_999_999, [])):
        model: Any = SimpleNamespace(parameters=parameters)
        assert field._slow_cpu_machines(kinds, model) == slow
        assert field._slow_cpu_machines(kinds[:1], model) == []


def test_equal_network_at_a_higher_price_is_dominated_and_a_faster_one_is_not() -> None:
    device = Device("X", "gpu", flops={"fp32": 1e12}, memory_bytes=16e9)
    rates, usd = {"a": 1e9, "b": 1e9, "c": 1.001e9}, {"a": 1.0, "b": 1.1, "c": 1.2}
    kinds = [
        Hardware(
            name,
            device,
            nic_baseline_bytes_per_s=rates[name],
            price=replace(load_hardware("p3.2xlarge").price, on_demand_usd_per_hour=usd[name]),
        )
        for name in usd
    ]
    assert set(field._find_dominated(kinds, Market())) == {"b"}


def test_input_limits_a_prediction_from_below_its_throughput_on() -> None:
    cases = Cases(replace(ASKED, workers=(1,)), RESNET)
    plan = enumerate_plans(cases.request, RESNET).plans[0]
    with executor_of(jobs=1) as pool:
        prediction = Simulations(cases, pool).predict_all([plan], "glance")[0]
    assert prediction.limit_by_input(prediction.samples_per_s) is prediction
    capped = prediction.limit_by_input(0.8 * prediction.samples_per_s)
    assert capped.samples_per_s == pytest.approx(0.8 * prediction.samples_per_s)
    assert capped.input_s == pytest.approx(0.25 * prediction.step_s)


@pytest.mark.parametrize(("factor", "good"), [(20.0, True), (20.01, False), (1 / 20, True), (0.0499, False)])
def test_measured_run_is_kept_up_to_twenty_times_off(
    factor: float, good: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    run = measured.Measured("T4", "device", "resnet50", "fp16", 64.0, 64.0 * factor, "2026-01-01")
    if good:
        measured.add_run(run)
        assert measured.load_runs() == (run,)
    else:
        with pytest.raises(BadInput, match="times what was predicted"):
            measured.add_run(run)


def test_race_for_skips_plans_within_a_tenth_only_between_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float, int]] = []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        asked.append((kwargs["goal"], kwargs["tolerance"], len(kwargs["ladder"])))
        return Race(*args, **kwargs)

    monkeypatch.setattr(objectives, "Race", recorded)
    speed, ones = np.array([100.0, 200.0, 300.0]), np.ones(3)
    plans = [replace(FOUR, workers=workers) for workers in (1, 2, 3)]
    contest = objectives.Contest(plans, speed, np.array([1.0, 3.0, 9.0]), ones, 0 * ones, 0 * ones)
    objectives.simulate_contenders(
        contest,
        "cheapest",
        lambda batch, rung: [SimpleNamespace(**dict.fromkeys(SCORE, speed[i])) for i in batch],
        min_marginal_efficiency=0.5,
        report=lambda stage, done, of: None,
    )
    assert asked == [("cheapest", 0.0, 5), ("fastest", 0.0, 5), ("front", 0.1, 2)]


@pytest.mark.parametrize(("height", "reads"), [(64, True), (63, False)])
def test_images_are_read_as_files_from_64_pixels_on(height: int, reads: bool) -> None:
    layer = SimpleNamespace(output_shape=(height, height, 3))
    model: Any = SimpleNamespace(layers=(layer,), sequence_length=None)
    assert has_jpeg_samples(model) is reads


def test_input_of_a_plan_is_its_share_of_the_vcpus() -> None:
    request = replace(ASKED, input=10.0)
    assert input_samples_per_s(FOUR, request, RESNET) == pytest.approx(4 * 8 * 10.0)
    half = replace(FOUR, machine="p3.8xlarge", workers=2, workers_per_machine=4)
    assert input_samples_per_s(half, request, RESNET) == pytest.approx(2 * 8 * 10.0)
