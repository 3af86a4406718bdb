"""Recorded steps on other devices and at other batches: by kind of op, and never what the host does."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import msgspec.structs
import numpy as np
import pytest
from recorded_examples import DATA, loaded, on_gpu, trace_of, written

from planner.device.recorded.importers import import_profile
from planner.device.recorded.recordings import Recordings
from planner.device.recorded.rescale import (
    KERNEL_S,
    batch_error,
    combine_errors,
    device_error,
    fit_lines,
    host_waits_s,
    interpolate_batch,
    is_deviation_shared,
    part_s,
    rescale,
    rescale_batch,
    rescale_errors,
    seconds_by_kind,
    time_growth,
)
from planner.errors import BadInput
from planner.hardware.catalog import catalog_device_name, find_device, load_hardware
from planner.simulator.step import PS, WORKER, Profile
from planner.simulator.step.recorded import OpPart

A10G, H100, T4, A100 = (
    load_hardware(name).device for name in ("g5.xlarge", "p5.48xlarge", "g4dn.xlarge", "p4d.24xlarge")
)


def recorded(
    path: Path, name: str = "plain", *, slower: float = 20.0, device: str = "NVIDIA A10G"
) -> Profile:
    return import_profile([written(path / f"{name}.json", on_gpu(trace_of(name), device, slower=slower))])


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """Kernels twenty times as long as their launches: the device sets the pace."""
    return recorded(tmp_path)


def test_products_go_by_arithmetic_and_copies_by_memory() -> None:
    product = OpPart("matmul", 1.0, 1.0, flops=1e13, format="bf16")
    copy = OpPart("memory", 1.0, 1.0, moved_bytes=1e11, format="bf16")
    faster = part_s(product, A10G) / part_s(product, H100)
    wider = part_s(copy, A10G) / part_s(copy, H100)
    assert 7 < faster < 16  # 989 against 125 dense teraflops, both as far as networks reach them
    assert 3 < wider < 7  # 3,350 against 600 gigabytes a second
    tiny = OpPart("memory", 1.0, 1.0, moved_bytes=1e3)
    assert part_s(tiny, A10G) / part_s(tiny, H100) < 2
    assert part_s(OpPart("overhead", 1.0, 3.0), H100) == KERNEL_S


def test_tf32_is_single_precision_where_a_device_lacks_it() -> None:
    both = [OpPart("conv", 1.0, 1.0, flops=1e12, format=format) for format in ("tf32", "fp32")]
    assert part_s(both[0], T4) == part_s(both[1], T4)
    assert part_s(both[0], A100) < part_s(both[1], A100)


def test_every_kind_is_moved_by_its_own_ratio(profile: Profile) -> None:
    known = profile.recorded
    assert known is not None
    profile = replace(profile, recorded=msgspec.structs.replace(known, launch_s={}))
    target = rescale(profile, A10G, H100)
    worker = np.flatnonzero(profile.resource == WORKER)
    before_s, after_s = (recording.durations_s.mean(axis=0)[worker] for recording in (profile, target))
    pure = {}
    for at, op in enumerate(worker):
        parts = known.work.get(profile.names[op], ())
        if len(parts) == 1 and parts[0].share > 0.999:
            expected = part_s(parts[0], A10G) / part_s(parts[0], H100)
            assert before_s[at] / after_s[at] == pytest.approx(expected, rel=1e-3)
            pure[parts[0].kind] = expected
    assert len(pure) > 2
    assert max(pure.values()) > 1.3 * min(pure.values())
    assert (
        target.durations_s[:, profile.resource == PS].sum()
        < profile.durations_s[:, profile.resource == PS].sum()
    )


def test_rescaled_host_work_gets_no_faster(profile: Profile) -> None:
    target = rescale(profile, A10G, H100)
    worker = np.flatnonzero(profile.resource == WORKER)
    assert profile.names[worker[0]] == "input"
    assert np.array_equal(target.durations_s[:, worker[0]], profile.durations_s[:, worker[0]])


def test_same_device_changes_nothing_and_there_and_back_little(profile: Profile) -> None:
    assert rescale(profile, A10G, A10G) is profile
    there = replace(rescale(profile, A10G, T4), recorded=profile.recorded)
    assert there.durations_s.sum() > profile.durations_s.sum()


def test_host_that_sets_the_pace_sets_it_on_a_faster_device_too(tmp_path: Path) -> None:
    """Kernels as long as their launches: no device makes the steps shorter than the host issues them."""
    slow = recorded(tmp_path, slower=1.0)
    known = slow.recorded
    assert known is not None
    host_s = sum(known.launch_s.values())
    target = rescale(slow, A10G, H100)
    worker = target.resource == WORKER
    assert target.durations_s[:, worker].sum(axis=1).mean() > 0.95 * host_s


def test_waiting_for_the_host_by_hand() -> None:
    """Issued at 1, 2 and 6; the device takes 3 for each: it waits 1 for the first and nothing more."""
    launch = np.array([1.0, 1.0, 4.0])
    assert host_waits_s(np.full((1, 3), 3.0), launch).tolist() == [[1.0, 0.0, 0.0]]
    assert host_waits_s(np.full((1, 3), 0.5), launch).tolist() == [[1.0, 0.5, 3.5]]


def test_one_recording_grows_by_its_parts_and_not_by_the_host(profile: Profile) -> None:
    larger = rescale_batch(profile, 32, A10G)
    assert larger.batch == 32
    before, after = seconds_by_kind(profile), seconds_by_kind(larger)
    assert before["conv3x3"] < after["conv3x3"] < 4 * before["conv3x3"]  # kernels of few microseconds
    assert after["host"] == pytest.approx(before["host"])
    assert after["input"] == pytest.approx(4 * before["input"])
    assert after["overhead"] == pytest.approx(before["overhead"])
    assert after["optimizer"] == before["optimizer"]
    again = rescale_batch(larger, 8, A10G)
    assert np.allclose(again.durations_s, profile.durations_s)


def test_large_parts_grow_as_the_batch_and_weights_do_not() -> None:
    product = OpPart("matmul", 1.0, 1.0, flops=1e12, row_flops=1e6, format="bf16")
    assert time_growth(product, 4, A10G) == pytest.approx(4, rel=0.01)
    weights = OpPart("memory", 1.0, 1.0, moved_bytes=1e6, weight_bytes=1e10)
    assert time_growth(weights, 4, A10G) == pytest.approx(1, abs=0.01)
    for device in (A10G, None):
        assert time_growth(OpPart("overhead", 1.0, 5.0), 4, device) == 1.0
    assert time_growth(product, 4, None) == 4
    assert time_growth(OpPart("memory", 1.0, 1.0, moved_bytes=30.0, weight_bytes=10.0), 4, None) == 3.25


def test_two_recordings_make_straight_lines() -> None:
    eight, sixteen = loaded("plain"), loaded("plain16")
    middle = interpolate_batch((eight, sixteen), 12)
    medians = [np.median(recording.durations_s, axis=0) for recording in (eight, sixteen)]
    rising = (medians[1] >= medians[0]) & (2 * medians[0] >= medians[1])
    expected = (medians[0] + medians[1]) / 2
    middle_s = np.median(middle.durations_s, axis=0)
    assert rising.sum() > 10
    assert middle_s[rising] == pytest.approx(expected[rising])
    assert interpolate_batch((eight, sixteen), 16) is sixteen
    assert interpolate_batch((eight, sixteen), 64).durations_s.sum() > sixteen.durations_s.sum()


def test_lines_neither_fall_nor_begin_below_zero() -> None:
    batches = np.array([1.0, 2.0, 3.0])
    times = np.array([[2.0, 1.0, 3.0], [3.0, 4.0, 2.0], [4.0, 7.0, 1.0]])
    fixed, slope = fit_lines(batches, times)
    assert fixed.tolist() == [1.0, 0.0, 2.0]
    assert slope[0] == pytest.approx(1.0)
    assert slope[1] == pytest.approx((1 + 8 + 21) / 14)
    assert slope[2] == 0.0


def test_recordings_of_different_loops_are_not_joined() -> None:
    with pytest.raises(BadInput, match="run different ops"):
        interpolate_batch((loaded("plain"), replace(loaded("compiled"), batch=16)), 12)


def test_names_of_drivers_are_those_of_the_catalog() -> None:
    assert catalog_device_name("Tesla V100-SXM2-16GB") == "V100-SXM2-16GB"
    assert find_device("NVIDIA H100 80GB HBM3") == H100
    assert find_device("g5.xlarge") == A10G
    assert find_device("AMD EPYC") is None
    assert find_device("") is None
    import tomllib

    from planner.files.regular_file import shipped_folder

    known = tomllib.loads((shipped_folder("hardware") / "devices.toml").read_text())["devices"]
    named = tomllib.loads((files("planner.hardware") / "device_names.toml").read_text())["devices"]
    assert set(named) <= set(known)


def test_errors_are_those_of_published_runs_and_grow_with_ignorance() -> None:
    known = rescale_errors()
    for network in ("all", "cnn", "transformer"):
        assert 0.02 < known.device["fitted"][network].q90 < known.device["unseen"][network].q90
    far = [batch_error([8], batch, A10G).q90 for batch in (16, 32, 256)]
    assert far == sorted(far)
    assert batch_error([8], 16, None).q90 > batch_error([8], 16, A10G).q90
    assert batch_error([8, 16], 12, None).q90 < batch_error([8], 12, None).q90
    first, other = device_error(A10G, H100, "cnn"), batch_error([8], 16, A10G)
    both = combine_errors(first, other)
    assert both.q90 == pytest.approx(np.hypot(first.q90, other.q90))


def test_answer_says_where_it_was_recorded_and_how_far_off_it_is(profile: Profile) -> None:
    recordings = Recordings((profile,))
    words = recordings.origin_text(8, H100)
    assert words.startswith("recorded on A10G at batch 8, scaled to H100-SXM5-80GB: range 0.")
    assert "published pairs of devices" in words
    assert recordings.origin_text(8, A10G) == "recorded on A10G at batch 8"
    assert "and batch 32: range" in recordings.origin_text(32, H100)
    here, there = recordings.error(8, A10G), recordings.error(8, H100)
    assert here is not None
    assert there is not None
    assert (here.basis, there.basis) == ("recorded", "moved")
    assert here.q90 < there.q90


def test_device_that_nobody_knows_is_used_for_itself_only() -> None:
    recordings = Recordings((loaded("plain"),))
    name = recordings.first.hardware
    for machine in ("g4dn.xlarge", "p5.4xlarge", "c5.xlarge"):
        assert f"recorded on {name}, which the catalog does not hold" in recordings.mismatch_reason(
            load_hardware(machine)
        )


def test_unscalable_recording_is_refused_with_the_reason(tmp_path: Path, profile: Profile) -> None:
    bare = Recordings((replace(profile, recorded=None),))
    assert bare.mismatch_reason(load_hardware("g5.12xlarge")) == ""
    assert "holds no shapes of ops to scale it to T4" in bare.mismatch_reason(load_hardware("g4dn.xlarge"))
    with pytest.raises(BadInput, match="--batch 9 contradicts --profile, which was recorded at batch 8"):
        bare.check_batch(9)
    whole = Recordings((profile,))
    assert "nothing measured says how a step moves" in whole.mismatch_reason(load_hardware("c5.xlarge"))
    half = Recordings((recorded(tmp_path, "autocast"),))
    assert "computes in bf16, and T4 does not" in half.mismatch_reason(load_hardware("g4dn.xlarge"))
    assert half.mismatch_reason(load_hardware("p5.4xlarge")) == ""


def test_profiles_given_together_are_of_one_loop(profile: Profile) -> None:
    for other, words in (
        (replace(profile, model="other", batch=16), "of two models, Mixed and other"),
        (replace(profile, hardware="T4", batch=16), "of two hardwares"),
        (profile, "two of the profiles given have batch 8"),
    ):
        with pytest.raises(BadInput, match=words):
            Recordings((profile, other))


def test_parts_of_a_file_are_those_of_the_recording() -> None:
    part = OpPart("matmul", 0.5, 1.0, 2.0, format="bf16")
    assert json.loads(msgspec.json.encode(part))[:4] == ["matmul", 0.5, 1.0, 2.0]
    assert (DATA / "record.py").is_file()


def test_device_residual_carries_over_to_relatives_without_published_runs() -> None:
    unseen = replace(H100, name="nobody-has-published-it")
    assert is_deviation_shared(A100, unseen)
    assert not is_deviation_shared(A100, H100)  # whose own runs tell
    assert not is_deviation_shared(replace(A100, year=2014), unseen)
    assert not is_deviation_shared(A100, replace(unseen, vendor="amd"))
    part = OpPart("matmul", 1.0, 1.0, flops=1e12, format="bf16")
    assert part_s(part, A100, own=False) != part_s(part, A100)
    assert part_s(part, unseen, own=False) == part_s(part, unseen)
