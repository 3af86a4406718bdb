"""Computation times: what must hold whatever the figures are, and the figures of a few known runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.device.precision import BF16, FP8, FP16, FP32, TF32
from planner.device.rates import (
    ATTENTION,
    MATMUL,
    MEMORY,
    constants,
    device_rates,
    is_graphics_board,
    model_kernels,
)
from planner.device.rates.times import computation_s, kernel_s, smooth_max, update_bytes
from planner.errors import BadInput
from planner.hardware import Device
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.model.layers import workloads
from planner.model.layers.base import KERNEL_KINDS
from planner.validation.networks import find_published_device

V100 = load_hardware("p3.2xlarge").device
A100 = load_hardware("p4de.24xlarge").device
H100 = load_hardware("p5.48xlarge").device
RESNET, BERT = load_model("resnet50"), load_model("bert-large")


def test_kernel_takes_the_longer_of_both_and_a_part_of_the_shorter() -> None:
    arithmetic, traffic = np.array([3.0, 1.0, 0.0]), np.array([1.0, 3.0, 2.0])
    assert kernel_s(arithmetic, traffic, 0.0, 0.5, 0.4).tolist() == [3.9, 3.9, 2.5]


def test_cached_bytes_are_not_moved_except_a_minimum() -> None:
    moved = kernel_s(np.zeros(3), np.array([10.0, 2.0, 1.0]), 1.0, 0.0, 0.4)
    assert moved.tolist() == pytest.approx([9.0, 1.0, 0.3])


def test_slower_of_host_and_device_sets_the_pace() -> None:
    assert float(smooth_max(np.float64(1.0), np.float64(10.0))) == pytest.approx(10.0, rel=1e-6)
    assert float(smooth_max(np.float64(1.0), np.float64(1.0))) == pytest.approx(2 ** (1 / 8))


@pytest.mark.parametrize("precision", [FP32, TF32, BF16, FP16])
@pytest.mark.parametrize("model", [RESNET, BERT], ids=["resnet50", "bert-large"])
def test_times_are_of_the_layers_and_positive(model, precision) -> None:
    time = computation_s(model, 32, A100, precision)
    assert len(time.forward_s) == len(time.backward_s) == len(model.layers)
    assert (time.forward_s >= 0).all()
    assert (time.backward_s >= 0).all()
    assert time.optimizer_s > 0
    assert time.backward_s.sum() > time.forward_s.sum()
    parts = time.forward_s.sum() + time.backward_s.sum() + time.optimizer_s
    assert time.step_s == pytest.approx(parts)


def test_more_samples_take_longer_and_less_each() -> None:
    steps = [computation_s(RESNET, batch, V100, FP32).step_s for batch in (1, 2, 8, 64, 256)]
    assert steps == sorted(steps)
    each = [step / batch for step, batch in zip(steps, (1, 2, 8, 64, 256), strict=True)]
    assert each == sorted(each, reverse=True)


def test_small_batches_of_an_eager_framework_wait_for_its_launches() -> None:
    first, two = (computation_s(RESNET, batch, H100, BF16, "pytorch").step_s for batch in (1, 2))
    assert two / first < 1.05
    launches = 1.0 * sum(1 for layer in RESNET.layers) * 2
    assert first > launches * constants().frameworks["pytorch"].floor_s


def test_faster_device_never_makes_a_step_longer_whose_update_is_divided() -> None:
    alexnet = load_model("alexnet")
    for share in (1.0, 1 / 16):
        steps = []
        for times in (1.0, 1.3, 2.0, 4.0):
            flops = {name: rate * times for name, rate in H100.flops.items()}
            memory = (H100.memory_bytes_per_s or 0.0) * times
            faster = Device("faster", "gpu", flops, H100.memory_bytes, memory)
            time = computation_s(alexnet, 1, faster, BF16)
            steps.append(time.forward_s.sum() + time.backward_s.sum() + share * time.optimizer_s)
        assert steps == sorted(steps, reverse=True)


def test_attention_that_writes_its_scores_is_products_and_passes_over_them() -> None:
    long = BERT.with_sequence_length(512)
    kernels = model_kernels(long, flash=False)
    asked = workloads(long, flash=False)
    at = next(place for place, one in enumerate(asked) if one.kernel == "attention")
    rows = kernels.layer == at
    forward = rows & ~kernels.backward
    assert kernels.launches[forward].sum() == asked[at].forward.kernels
    assert sorted(kernels.kind[forward]) == [ATTENTION, MEMORY]
    for mine, one in ((forward, asked[at].forward), (rows & kernels.backward, asked[at].backward)):
        assert (kernels.moved * kernels.launches)[mine].sum() == pytest.approx(one.moved_elements)
        assert (kernels.flops * kernels.launches)[mine].sum() == pytest.approx(one.flops)
        passes = mine & (kernels.kind == MEMORY)
        assert kernels.flops[passes].sum() == 0
        scores = one.matmuls[0].rows * one.matmuls[0].columns * one.matmuls[0].times
        # softmax and dropout: read and written; backward the gradient beside it
        assert kernels.moved[passes].sum() == pytest.approx((2 if one is asked[at].forward else 3) * scores)
    assert (model_kernels(long, flash=True).kind == ATTENTION).sum() == (kernels.kind == ATTENTION).sum()


def test_lower_precisions_are_faster_where_a_device_has_them() -> None:
    steps = [computation_s(RESNET, 256, A100, p, "fused").step_s for p in (FP32, TF32, BF16)]
    assert steps == sorted(steps, reverse=True)
    llama = load_model("llama3-8b")
    assert computation_s(llama, 1, H100, FP8).step_s < computation_s(llama, 1, H100, BF16).step_s


def test_format_that_a_device_lacks_is_refused_with_what_it_has() -> None:
    with pytest.raises(BadInput, match=r"V100.* does not compute in bf16; it has fp32, fp16"):
        computation_s(RESNET, 32, V100, BF16)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(BadInput, match="unknown framework 'tensorflw'; nearest: tensorflow"):
        computation_s(RESNET, 32, V100, FP32, "tensorflw")
    with pytest.raises(BadInput, match="unknown input"):
        computation_s(RESNET, 32, V100, FP32, input="tape")
    with pytest.raises(BadInput, match="unknown optimizer"):
        computation_s(RESNET, 32, V100, FP32, optimizer="lamb")
    with pytest.raises(BadInput, match="batch is 0"):
        computation_s(RESNET, 0, V100, FP32)


def test_files_limit_fast_devices_and_leave_slow_ones_alone() -> None:
    files, synthetic = (
        computation_s(RESNET, 256, H100, BF16, "fused", input=what) for what in ("files", "synthetic")
    )
    assert synthetic.waiting_s == 0
    limit = constants().loader_images_per_s
    assert 256 / files.step_s == pytest.approx(limit)
    assert limit < 256 / synthetic.step_s
    k80 = find_published_device("K80-1GPU")
    assert k80 is not None
    slow = computation_s(RESNET, 32, k80, FP32, "tensorflow", input="files")
    assert slow.waiting_s == 0


def test_images_with_channels_first_cost_conversions_in_sixteen_bits_alone() -> None:
    def step(precision, last):
        return computation_s(RESNET, 128, A100, precision, channels_last=last).step_s

    assert step(BF16, False) > 1.1 * step(BF16, True)
    assert step(TF32, False) == step(TF32, True)


def test_device_of_ones_own_needs_nothing_but_its_peaks() -> None:
    mine = Device("mine", "gpu", {"fp32": 82.6e12, "bf16": 165.2e12}, 24e9, 1008e9)
    known = find_published_device("RTX-4090")
    assert known is not None
    time = computation_s(BERT, 16, mine, BF16)
    assert time.basis == "peaks"
    assert time.error.q90 > 0.2
    assert time.step_s == pytest.approx(computation_s(BERT, 16, known, BF16).step_s, rel=0.5)
    without = Device("mine", "gpu", {"fp32": 1e13}, 24e9)
    with pytest.raises(BadInput, match="memory bandwidth of mine is unknown"):
        computation_s(BERT, 16, without, FP32)


def test_products_of_graphics_boards_in_few_bits_reach_less_than_those_of_devices_with_stacked_memory() -> (
    None
):
    def card(**more: object) -> Device:
        return Device("card", "gpu", {"fp32": 2e13, "fp16": 1e14}, 24 * 2**30, 1e12, **more)  # type: ignore[arg-type]

    board, stacked = card(memory_kind="gddr"), card(memory_kind="hbm")
    half = [device_rates(device, FP16, constants()).flops for device in (board, stacked)]
    ratio = np.divide(*half, where=np.isfinite(half[1]), out=np.ones(len(KERNEL_KINDS)))
    assert ratio[[MATMUL, ATTENTION]].tolist() == pytest.approx([constants().board_share] * 2)
    assert 0.7 < constants().board_share < 0.95
    others = [KERNEL_KINDS.index(kind) for kind in ("conv1x1", "conv3x3", "depthwise")]
    assert ratio[others].tolist() == [1, 1, 1]
    single = [device_rates(device, FP32, constants()).flops[MATMUL] for device in (board, stacked)]
    assert single[0] == single[1]


def test_where_the_kind_of_memory_is_not_said_its_speed_tells() -> None:
    def card(bytes_per_s: float) -> Device:
        return Device("card", "gpu", {"fp32": 2e13}, 24 * 2**30, bytes_per_s)

    assert is_graphics_board(card(1.0e12))
    assert not is_graphics_board(card(2.0e12))
    assert not is_graphics_board(replace(card(1.0e12), memory_kind="hbm"))
    kinds = {
        name: load_hardware(name).device for name in ("p3.2xlarge", "p5.48xlarge", "g5.xlarge", "g6.xlarge")
    }
    assert [is_graphics_board(device) for device in kinds.values()] == [False, False, True, True]


def test_measured_products_beat_the_usual_share_of_the_peak() -> None:
    peaks = {"fp32": 20e12, "bf16": 200e12}
    slow = Device("a", "gpu", peaks, 1e10, 1e12, matmul_flops={"bf16": 80e12})
    plain = Device("a", "gpu", peaks, 1e10, 1e12)
    rates = [device_rates(device, BF16, constants()).flops[0] for device in (slow, plain)]
    assert rates[0] < rates[1]
    assert computation_s(BERT, 8, slow, BF16).basis == "matmul"


def test_mixed_precision_updates_a_master_copy() -> None:
    assert update_bytes(FP32, "adam") == 28
    assert update_bytes(BF16, "adam") == 32
    assert update_bytes(BF16, "none") == 0


def test_times_cannot_be_changed_by_who_reads_them() -> None:
    with pytest.raises(ValueError, match="read-only"):
        computation_s(RESNET, 32, V100, FP32).forward_s[0] = 1.0


def test_compiler_makes_pytorch_faster_by_what_was_published() -> None:
    plain, compiled = (
        computation_s(BERT, 16, A100, BF16, name).step_s for name in ("pytorch", "pytorch-compiled")
    )
    assert plain / compiled == pytest.approx(1.16, rel=1e-3)


def test_deepspeed_adds_gradients_of_bf16_to_wide_ones_in_passes_of_its_own() -> None:
    """18 bytes a parameter and micro-batch, at the memory's rate; a product does it for Megatron-LM, which
    has the same kernels."""
    model, rate = load_model("gpt2"), device_rates(A100, BF16, constants()).memory_bytes_per_s
    for precision, size in ((BF16, 18), (FP16, 0)):
        passes, fused = (
            computation_s(model, 8, A100, precision, name) for name in ("megatron-deepspeed", "megatron")
        )
        longer_s = float((passes.backward_s - fused.backward_s).sum())
        assert longer_s == pytest.approx(size * model.parameters / rate, rel=1e-6)
        assert passes.forward_s == pytest.approx(fused.forward_s)
