"""Measured fine-tuning runs beside predictions: Qwen's table (QwenLM/Qwen, README.md, 2df8e8a), one A100.

Seconds per step of 8 micro-batches of one sequence, and peak GB, by length; LoRA of rank 64 on all linear
layers, QLoRA with a GPTQ int4 base, full recompute. The share of a launch that adapters take and the time to
dequantize were chosen on this table; runs of LitGPT and unsloth, held out, are in docs/fine-tuning.md.
GB as printed are taken as GiB.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from planner.device.activations import recomputed_layers
from planner.device.memory import footprint
from planner.device.precision import BF16
from planner.device.rates.times import computation_s
from planner.files.regular_file import shipped_folder
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.model.methods import trained_by, training_of

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
SHAPES = {"1.8B": (24, 2048, 16, 5504), "7B": (32, 4096, 32, 11008), "14B": (40, 5120, 40, 13696)}
RUNS = {  # seconds, GB
    ("1.8B", "lora"): ((1.0, 1.0, 1.1, 1.7, 3.3, 6.8), (6.7, 7.4, 8.4, 11.0, 16.2, 21.8)),
    ("1.8B", "qlora"): ((1.4, 1.4, 1.4, 2.0, 3.4, 6.5), (5.8, 6.0, 6.6, 7.8, 10.2, 15.8)),
    ("7B", "lora"): ((1.2, 1.5, 2.8, 5.2, 10.1, 21.3), (20.1, 20.4, 21.5, 23.8, 29.7, 36.6)),
    ("7B", "qlora"): ((3.0, 3.0, 3.5, 7.0, 11.6, 22.3), (11.5, 11.5, 12.3, 13.9, 16.9, 23.5)),
    ("14B", "lora"): ((1.6, 2.4, 4.4, 8.4, 17.0, 36.0), (34.6, 35.1, 35.3, 37.4, 42.5, 55.2)),
    ("14B", "qlora"): ((5.3, 6.3, 8.2, 11.8, 20.1, 38.3), (18.7, 18.4, 18.9, 19.9, 23.0, 27.9)),
}
MICRO_BATCHES = 8


@pytest.fixture(scope="module")
def ratios(tmp_path_factory):
    """Predicted over measured, by size and method: seconds and bytes at each length."""
    folder, device = tmp_path_factory.mktemp("qwen"), load_hardware("p4de.24xlarge").device
    out = {}
    for (size, method), (seconds, gigabytes) in RUNS.items():
        network = _qwen(folder, size)
        base = {"base": "int4"} if method == "qlora" else {}
        settings = training_of(method, rank=64, optimizer="adamw", **base)
        times, sizes = [], []
        for length, second, gigabyte in zip(LENGTHS, seconds, gigabytes, strict=True):
            model = trained_by(network.with_sequence_length(length), settings)
            once = computation_s(model, 1, device, BF16)
            again = recomputed_layers(model, "full", stops_early=True)
            micro_s = float((once.forward_s * (1 + again)).sum() + once.backward_s.sum())
            times.append((MICRO_BATCHES * micro_s + once.optimizer_s) / second)
            sizes.append(footprint(model, BF16, recompute="full").peak(1).total_bytes / 2**30 / gigabyte)
        out[size, method] = times, sizes
    return out


def _qwen(folder: Path, size: str):
    layers, width, heads, inner = SHAPES[size]
    text = (shipped_folder("models") / "llama2-7b.toml").read_text()
    for name, value in (("repeat", layers), ("heads", heads), ("kv_heads", heads), ("queries", width)):
        text = re.sub(rf"\b{name} = \d+", f"{name} = {value}", text)
    for name, value in (("keys", width), ("width", width), ("inner", inner), ("features", width)):
        text = re.sub(rf"\b{name} = \d+", f"{name} = {value}", text)
    path = folder / f"qwen-{size.replace('.', '-').lower()}.toml"
    path.write_text(text.replace("32000", "151936"))
    return load_model(path)


def _errors(ratios, method: str, figure: int) -> np.ndarray:
    return np.array(
        [abs(math.log(r)) for (_, way), both in ratios.items() if way == method for r in both[figure]]
    )


@pytest.mark.parametrize(("method", "median", "most"), [("lora", 0.15, 0.35), ("qlora", 0.20, 0.45)])
def test_step_times_of_qwen(ratios, method, median, most):
    errors = _errors(ratios, method, 0)
    assert np.median(errors) < math.log1p(median)
    assert np.quantile(errors, 0.9) < math.log1p(most)


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_peak_memory_of_qwen(ratios, method):
    errors = _errors(ratios, method, 1)
    assert np.median(errors) < math.log1p(0.12)
    assert np.quantile(errors, 0.9) < math.log1p(0.30)


def test_qlora_takes_as_much_longer_than_lora_as_measured_at_each_length(ratios):
    for size in ("7B", "14B"):
        seconds = {method: np.array(ratios[size, method][0]) for method in ("lora", "qlora")}
        off = seconds["qlora"] / seconds["lora"]
        assert np.median(np.abs(np.log(off))) < math.log(1.2)
