"""The share of a device's arithmetic."""

import pytest

from planner.answers.parts import model_flops_utilization
from planner.device.precision import BF16, FP32, TF32
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model


def test_model_flop_use_is_six_operations_a_parameter_and_token_and_attention() -> None:
    model, device = load_model("llama3-8b"), load_hardware("p5.48xlarge").device
    mfu = model_flops_utilization(model, 1.0, 2, device, BF16)
    assert mfu is not None
    by_rule = 6 * model.parameters * 8192 / (2 * device.flops["bf16"])
    assert mfu / by_rule == pytest.approx(1.2, abs=0.15)  # attention at 8,192 tokens


def test_format_that_the_device_lacks_has_no_use() -> None:
    assert (
        model_flops_utilization(load_model("resnet50"), 1.0, 1, load_hardware("p3.2xlarge").device, TF32)
        is None
    )
    assert model_flops_utilization(load_model("resnet50"), 500.0, 1, load_hardware("p3.2xlarge").device, FP32)
