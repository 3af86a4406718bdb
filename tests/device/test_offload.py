"""Offload and the other settings of what memory holds: footprints, times, refusals and answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.device.computation import BACKWARD, FORWARD
from planner.device.memory import USABLE_HOST, Shares, footprint, host_memory_bytes, set_offload
from planner.device.offload import (
    COPY_SHARE,
    MOST_UPDATES_PER_S,
    UPDATES_PER_VCPU,
    HostLink,
    host_link,
    offload_parts,
    offload_times,
    pcie_bytes_per_s,
)
from planner.device.precision import BF16
from planner.errors import BadInput, Infeasible
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.model.methods import MethodSettings
from planner.parallel.data.fsdp import Sharded
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Site
from planner.search.cases import device_computation
from planner.search.feasibility import stage_shares

LLAMA = load_model("llama3-8b").with_sequence_length(2048)
P5 = load_hardware("p5.48xlarge")
GIB = 2**30


def offloaded(*parts: str):  # type: ignore[no-untyped-def]
    return footprint(set_offload(LLAMA, offload_parts(parts)), BF16, recompute="full")


def test_optimizer_state_leaves_the_device() -> None:
    whole, moved = footprint(LLAMA, BF16, recompute="full"), offloaded("optimizer")
    assert moved.optimizer_bytes == moved.fp32_gradients_bytes == 0
    assert moved.parameters_bytes == whole.parameters_bytes
    # two states, a master copy and gradients in fp32
    assert moved.host_bytes(1) == pytest.approx(16 * LLAMA.parameters)
    assert moved.host_bytes(4, Shares(optimizer=1 / 8)) == pytest.approx(2 * LLAMA.parameters)


def test_parameters_leave_two_units_behind() -> None:
    moved = offloaded("parameters")
    block = sum(tensor.elements for tensor in LLAMA.tensors if "layers.5." in tensor.name)
    assert moved.parameters_bytes == 0
    assert 2 * 2 * block <= moved.peak(1).parameters_bytes < 0.2 * 2 * LLAMA.parameters
    assert moved.host_bytes(1) == pytest.approx((16 + 2) * LLAMA.parameters)
    # what FSDP gathers is in its buffers already
    assert moved.peak(1, Shares(parameters=1 / 8)).parameters_bytes == 0


def test_activations_of_two_blocks_stay() -> None:
    whole, moved = footprint(LLAMA, BF16, recompute="full"), offloaded("activations")
    assert moved.saved_bytes + moved.host_saved_bytes == pytest.approx(whole.saved_bytes)
    checkpoint = 2 * 2048 * 4096  # of one block
    assert moved.host_saved_bytes == pytest.approx(30 * checkpoint, rel=0.04)
    assert moved.host_bytes(3) == 3 * moved.host_saved_bytes


def test_host_memory_limits_the_batch() -> None:
    moved = offloaded("activations")
    per_sample = moved.host_bytes(1)
    shares = Shares(parameters=1 / 8, gradients=1 / 8, optimizer=1 / 8)
    assert moved.largest_batch(P5.device, shares, 2.5 * per_sample) == 2
    assert moved.largest_batch(P5.device, shares, 0.5 * per_sample) == 0
    assert moved.largest_batch(P5.device, shares) > 2
    machine = replace(P5, memory_bytes=1000.0)
    assert host_memory_bytes(set_offload(LLAMA, ("optimizer",)), machine, 8) == 1000 * USABLE_HOST / 8
    assert host_memory_bytes(LLAMA, machine, 8) == np.inf
    assert host_memory_bytes(set_offload(LLAMA, ("optimizer",)), load_hardware("c5.4xlarge"), 1) == 0


def test_rates_of_a_host() -> None:
    link = host_link(P5, 8)
    assert link.copy_bytes_per_s == pytest.approx(COPY_SHARE * 63e9)
    assert link.updates_per_s == MOST_UPDATES_PER_S / 8
    small = load_hardware("g5.xlarge")
    assert host_link(small, 1).updates_per_s == 4 * UPDATES_PER_VCPU
    for year, kind, rate in (
        (2017, "hbm", 15.8e9),
        (2021, "gddr", 31e9),
        (2023, "gddr", 31e9),
        (2023, "hbm", 63e9),
    ):
        device = replace(P5.device, pcie_bytes_per_s=None, year=year, memory_kind=kind)
        assert pcie_bytes_per_s(device) == rate


def test_only_what_exceeds_a_pass_is_exposed() -> None:
    site = Site(P5, 8)
    plain = device_computation(LLAMA, 1, site, BF16, recompute="full", brief=True)
    forward_s = plain.durations_s[:, plain.role == FORWARD].sum()
    backward_s = plain.durations_s[:, plain.role == BACKWARD].sum()
    weights = 2 * plain.elements
    fast = HostLink(2 * weights / forward_s, 1e9)
    times = offload_times(plain, ("optimizer", "parameters"), fast, Shares(), 0.0)
    assert (times.forward_s, times.backward_s) == (0, 0)
    assert times.update_s == pytest.approx(plain.elements / 1e9)  # the parameters stay on the host
    slow = HostLink(weights / (3 * forward_s), 1e9)
    times = offload_times(plain, ("optimizer", "parameters", "activations"), slow, Shares(), weights / 2)
    assert times.forward_s == pytest.approx(2 * forward_s)
    assert times.backward_s == pytest.approx(4.5 * forward_s - backward_s)
    shared = offload_times(
        plain, ("optimizer", "parameters"), slow, Shares(parameters=1 / 8, optimizer=1 / 8), 0.0
    )
    assert shared.forward_s == 0
    only = offload_times(plain, ("optimizer",), slow, Shares(), 0.0)
    assert only.update_s == pytest.approx(plain.elements / 1e9 + 3 * forward_s)


@pytest.mark.parametrize(
    ("hardware", "tokens", "measured_s", "measured_gib"),
    [
        ("p5en.48xlarge", 8192, 3.17, 16.3),
        ("p6-b200.48xlarge", 8192, 2.68, 16.3),
        ("p5en.48xlarge", 32768, 7.48, 25.8),
        ("p6-b200.48xlarge", 32768, 4.62, 25.8),
    ],
)
def test_published_steps_of_zero_offload(
    hardware: str, tokens: int, measured_s: float, measured_gib: float
) -> None:
    """Llama 3.1 8B on 8 GPUs, ZeRO-3 with the optimizer in host memory, full recompute, Liger's loss and
    FlashAttention 3 (stas00/ml-engineering, insights/when-to-upgrade-gpus at 744d01e1)."""
    answer = planner.simulate(
        "llama3-8b",
        hardware=hardware,
        workers=8,
        exchange="sharded",
        batch=1,
        recompute="full",
        seq_length=tokens,
        framework="transformer-engine",
        cross_entropy="chunked",
        offload="optimizer",
    )
    assert answer.scored.prediction.step_s == pytest.approx(measured_s, rel=0.22)
    assert answer.details.memory is not None
    assert answer.details.memory.total_bytes / GIB == pytest.approx(measured_gib, rel=0.25)


def test_plan_that_fits_nowhere_else_is_offered_offload() -> None:
    with pytest.raises(Infeasible, match=r"with --offload optimizer --recompute full, which is slow"):
        planner.simulate("llama3-8b", hardware="g6e.12xlarge", workers=1, exchange="alone", batch=1)
    answer = planner.simulate(
        "llama3-8b", hardware="g6e.12xlarge", workers=1, exchange="alone", batch=1,
        offload="optimizer", recompute="full",
    )  # fmt: skip
    assert "offload is slow" in " ".join(map(str, answer.as_dict()["assumptions"]))


def test_offload_that_no_host_holds_is_refused() -> None:
    with pytest.raises(Infeasible, match=r"offloads 2\d\d(\.\d+)? GiB per device, and g6e.12xlarge has"):
        planner.simulate(
            "llama3-70b", hardware="g6e.12xlarge", workers=4, exchange="sharded", batch=1,
            recompute="full", offload="parameters",
        )  # fmt: skip
    with pytest.raises(Infeasible, match="no other memory to offload to"):
        planner.simulate("vgg11", hardware="c5.4xlarge", workers=2, offload="optimizer")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (
            {"offload": "disk"},
            "--offload is 'disk'; it is one or several of optimizer, parameters, activations",
        ),
        ({"cross_entropy": "lazy"}, "--cross-entropy is 'lazy'; it is one of eager, fused, chunked"),
        ({"activations": "int3"}, "--activations is 'int3'; it is one of fp8"),
    ],
)
def test_unknown_settings_are_refused_in_one_line(flag: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        planner.simulate("llama3-8b", hardware="p5.48xlarge", workers=8, **flag)


def with_settings(**settings):  # type: ignore[no-untyped-def]
    return replace(LLAMA, training=MethodSettings(**settings))


def test_chunked_loss_holds_no_logits() -> None:
    logits = 2048 * 128_256
    held = {}
    for kind in ("eager", "fused", "chunked"):
        at_loss = next(
            moment
            for moment in footprint(LLAMA, BF16, recompute="full", loss=kind).moments
            if not moment.gradients
        )
        held[kind] = at_loss.activations_bytes + at_loss.workspace_bytes
    assert held["eager"] - held["chunked"] > 10 * logits
    assert held["fused"] - held["chunked"] > 0.9 * logits
    assert held["chunked"] < held["fused"] < held["eager"]


def test_loss_of_a_request_is_that_of_its_memory() -> None:
    peaks = [
        planner.simulate(
            "llama3-8b", hardware="p5.48xlarge", workers=8, exchange="sharded", batch=4, seq_length=2048,
            recompute="full", cross_entropy=kind,
        ).details.memory.total_bytes  # type: ignore[union-attr]
        for kind in ("eager", "chunked")
    ]  # fmt: skip
    assert peaks[0] > 1.05 * peaks[1]


def test_eight_bit_activations_halve_what_is_saved() -> None:
    plain, narrow = (footprint(with_settings(activations=kind), BF16) for kind in (None, "fp8"))
    assert 0.5 < narrow.saved_bytes / plain.saved_bytes < 0.6
    assert narrow.peak(1).workspace_bytes == pytest.approx(plain.peak(1).workspace_bytes, rel=0.2)


def test_compiled_graph_saves_what_fused_kernels_read() -> None:
    """Of a block of Llama: its input, the normalised inputs and the product of the gate are made again."""
    plain, compiled = (footprint(with_settings(compiled=on), BF16) for on in (False, True))
    hidden, inner, per_block = 4096, 14336, 2 * 2048
    saved = (plain.saved_bytes - compiled.saved_bytes) / len(LLAMA.blocks)
    assert saved == pytest.approx(per_block * (2 * hidden + 2 * inner), rel=0.1)


def test_fsdp_with_tensor_parallelism_shards_states_over_both() -> None:
    from planner.parallel.plan import Plan

    model = load_model("llama3-8b")
    mesh = Mesh.of(tensor=2)
    plan = Plan(model.name, 1, P5.name, 8, Sharded(), BF16, mesh, 8, recompute="full")
    site = plan.site(Site(P5, 8).market)
    ((layers, shares),) = stage_shares(plan, model, site)
    shard = mesh.inner_mesh.shard(model).model
    held = footprint(shard, BF16, recompute="full", only=layers).peak(1, shares)
    norms = 65 * 4096  # every rank has them whole
    elements = (model.parameters - norms) / 8 + norms / 4
    assert shares.parameters == shares.optimizer == shares.gradients == 1 / 4
    assert held.parameters_bytes == pytest.approx(2 * elements)
    assert held.optimizer_bytes == pytest.approx(12 * elements)
