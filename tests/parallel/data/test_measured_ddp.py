"""Predictions against measured steps of real DDP and FSDP runs, a few of each kind."""

from __future__ import annotations

import pytest

from planner.validation import ddp

CONFIGS = ddp.read_configs(ddp.DATA)
POINTS = {(point.config, point.workers): point for point in ddp.measured_points(ddp.DATA)}


@pytest.mark.parametrize(
    ("config", "workers", "within"),
    [
        ("resnet50_200_r05", 4, 0.01),
        ("resnet50_200_r03_accum4", 8, 0.02),
        ("resnet50_200_r1_slowworker", 4, 0.01),
        ("resnet50_200_r1_slowlink", 4, 0.03),
        ("resnet50_200_r2_jitter10", 8, 0.03),
        ("alexnet_100_r05_lat5", 8, 0.04),
        ("inception3_400_r1_findunused", 4, 0.02),
        ("gpt2_200_r05_small", 4, 0.02),
        ("fsdp_gpt2_200_r1", 4, 0.03),
        ("fsdp2_gpt2_200_r1", 4, 0.04),
    ],
)
def test_measured_step_is_predicted(config: str, workers: int, within: float) -> None:
    predicted_s = ddp.predict_step_s(CONFIGS[config], workers, ddp.DATA)
    assert predicted_s == pytest.approx(POINTS[config, workers].step_s, rel=within)


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config["mode"] == "ddp"])
def test_buckets_are_those_that_ddp_made(name: str) -> None:
    from planner.parallel.data.ddp import bucket_gradients

    config = CONFIGS[name]
    result = bucket_gradients(
        ddp.recorded_computation(config),
        cap_bytes=config["bucket_cap"],
        first_bytes=config["bucket_first"],
        width=4,
        rebuilt=not config.get("find_unused"),
    )
    made = [bucket["bytes"] for bucket in config["ddp_buckets"]]
    # The trace has one gradient of one element that is no parameter's: the model's input.
    assert [bucket.bytes for bucket in result] == pytest.approx(made, abs=4)


def test_computation_has_every_parameter_of_the_model() -> None:
    computation = ddp.recorded_computation(CONFIGS["resnet50_200_r05"])
    assert computation.elements * 4 == pytest.approx(8e6, rel=1e-4)
    assert computation.durations_s.sum() == pytest.approx(0.32, rel=0.01)
    assert 0 < computation.optimizer_s < 3e-3


@pytest.mark.parametrize(("workers", "within"), [(2, 0.01), (8, 0.02)])
def test_imported_profile_keeps_its_buckets(workers: int, within: float) -> None:
    """What the command line does: a profile file of a one-rank trace, lowered for more ranks."""
    from dataclasses import replace

    from planner.device.recorded.importers import import_profile
    from planner.device.recorded.recordings import recorded_computation
    from planner.parallel.data.ddp import AllReduce

    config = CONFIGS["resnet50_200_r05"]
    computation = recorded_computation(import_profile([config.trace], batch=1))
    assert computation.buckets
    exchange = AllReduce(library="gloo", accesses=0.0)
    made = [bucket["bytes"] for bucket in config["ddp_buckets"]]
    assert [bucket.bytes for bucket in exchange.buckets(computation)] == pytest.approx(made, abs=4)
    assert len(replace(exchange, bucket_bytes=10**9).buckets(computation)) == 2
    assert computation.optimizer_s > 0
    case = exchange.lower(computation, ddp.site_of(config, workers, ddp.DATA))
    simulate = ddp.simulate(case.profile, case.cluster, case.policy, joins=case.joins)
    assert workers / simulate.samples_per_s == pytest.approx(
        POINTS["resnet50_200_r05", workers].step_s, rel=within
    )
