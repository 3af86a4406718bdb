"""Runs are predicted as `planner.simulate` answers, whatever their layout."""

from __future__ import annotations

import pytest

import planner
from planner.device.precision import find_precision
from planner.hardware.prices.offers import has_name
from planner.model.catalog import load_model
from planner.validation.networks import find_published_device
from planner.validation.predict import RunStep, predict_step
from planner.validation.run import Layout, Run, Software


def run(model: str, device: str, precision: str, batch: int, **settings: object) -> Run:
    about = {
        "id": "1",
        "source": "test",
        "series": "s",
        "arch": "llm" if model.startswith("llama") else "cnn",
        "network": model,
        "model": load_model(model),
        "device_name": device,
        "device": find_published_device(device),
        "precision": find_precision(precision),
        "batch": batch,
        "step_s": 1.0,
    }
    return Run(**(about | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (
            run("resnet50-v1.5", "V100-SXM2-16GB", "fp16", 128, software=Software(tier="ngc")),
            {"hardware": "p3.2xlarge", "batch": 128, "precision": "fp16", "framework": "ngc"},
        ),
        (
            run(
                "llama3-8b",
                "H100-SXM5-80GB",
                "bf16",
                1,
                devices=8,
                recompute="full",
                layout=Layout(replicas=8, stage=3),
                software=Software(tier="pytorch"),
            ),
            {"hardware": "p5.48xlarge", "workers": 8, "batch": 1, "exchange": "sharded", "recompute": "full"},
        ),
        (
            run(
                "llama3-8b",
                "H100-SXM5-80GB",
                "bf16",
                1,
                devices=8,
                accumulate=8,
                layout=Layout(tensor=4, pipeline=2),
                software=Software(tier="megatron"),
            ),
            {
                "hardware": "p5.48xlarge",
                "workers": 8,
                "batch": 1,
                "accumulate": 8,
                "tensor": 4,
                "pipeline": 2,
                "framework": "megatron",
                "exchange": "allreduce",
            },
        ),
    ],
)
def test_run_takes_as_long_as_simulate_says(one: Run, asked: dict[str, object]) -> None:
    step = predict_step(one)
    assert isinstance(step, RunStep), step
    answer = planner.simulate(one.network, **asked)  # type: ignore[arg-type]
    assert step.seconds == pytest.approx(one.samples_per_step / answer.scored.samples_per_s, rel=0.015)


def test_names_of_publications_are_known_to_every_command() -> None:
    assert load_model("ResNet-50 v1.5").name == "resnet50-v1.5"
    assert load_model("resnet50").name == "resnet50"  # a name of the catalog means its file
    assert load_model("Llama-3.1-8B").name == "llama3-8b"
    v100 = find_published_device("V100-SXM2-32GB")
    assert v100 is not None
    assert has_name(v100, "V100-SXM3")
    assert not has_name(v100, "V100-PCIe")
