"""Parse overhead: the fit, its inputs, and parse ops in a profile."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from planner.device.recorded.importers import import_profile
from planner.errors import BadInput
from planner.servers.calibration import (
    calibrate_overhead,
    calibrate_window,
    fit_overhead,
    isolated_delays,
    parse_overhead,
)
from planner.servers.placement import add_parsing
from planner.simulator.step import DOWNLINK, PS, UPLINK, WORKER, Op, Profile, files

DATA = Path(__file__).parents[1] / "data"
CAPTURE = DATA / "overhead_capture.csv"
STEPS = [DATA / "tensorflow" / f"alexnet_ps1_step{k}.pb.gz" for k in range(3)]


@pytest.mark.parametrize(("alpha", "beta"), [(1.6e-10, 3e-4), (1e-9, 1e-5), (0.0, 1e-4), (2e-10, 0.0)])
def test_fit_ignores_outliers(alpha, beta):
    rng = np.random.default_rng(3)
    sizes = np.repeat(np.geomspace(4, 1e7, 12), 12)
    delays = (alpha * sizes + beta) * rng.lognormal(0, 0.15, len(sizes)) + 1e-9
    delays[::10] *= 50
    fit = fit_overhead(sizes, delays)
    assert fit.alpha_s_per_byte * 1e7 + fit.beta_s == pytest.approx(alpha * 1e7 + beta, rel=0.1)
    assert fit.alpha_s_per_byte * 4 + fit.beta_s == pytest.approx(beta, rel=0.15, abs=2e-5)
    assert fit.outliers >= 14
    assert fit.points == 144


def test_real_capture():
    """Isolated transfers of TensorFlow 2.21, recorded end minus arrival of the last packet. Least squares on
    its medians gave 0.14 to 0.26 ns a byte and 190 to 320 us, by direction and rate."""
    fits = calibrate_overhead([CAPTURE])
    assert set(fits) == {"downlink", "uplink"}
    for fit in fits.values():
        assert 1.4e-10 < fit.alpha_s_per_byte < 2.6e-10
        assert 190e-6 < fit.beta_s < 320e-6
        assert fit.median_relative_error < 0.35
        assert fit.source == "capture"


def test_tables_in_json_and_without_directions(tmp_path):
    rows = [{"bytes": b, "overhead_s": 1e-9 * b + 1e-3} for b in (0, 1000, 10**6, 10**7)]
    import json

    (tmp_path / "t.json").write_text(json.dumps(rows))
    (fit,) = calibrate_overhead([tmp_path / "t.json"]).values()
    assert fit.alpha_s_per_byte == pytest.approx(1e-9, rel=1e-3)
    assert fit.beta_s == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bytes,overhead_s\n1,x\n", "overhead_s"),
        ("size,overhead_s\n1,2\n", "bytes|size"),
        ("bytes,overhead_s\n5,1\n5,1\n5,1\n", "different sizes"),
        ("bytes,overhead_s\n5,1\n6,1\n", "2 measurements"),
        ("bytes,overhead_s\n5,1\n6,nan\n7,1\n", "out of range"),
        ("bytes,overhead_s\n5,1\n6,1e300\n7,1\n", "out of range"),
        ('[{"bytes": 1}]', "overhead_s"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    (tmp_path / "t").write_text(text)
    with pytest.raises(BadInput, match=message):
        calibrate_overhead([tmp_path / "t"])


def lonely():
    """Transfers that have the link to themselves, at 100 bytes a second, parsed in 1 s + 0.02 s a byte."""
    ops = [Op(f"d{i}", DOWNLINK, 0, size, (i - 1,) if i else ()) for i, size in enumerate((10, 100, 400))]
    took = [size / 100 + 1 + 0.02 * size for size in (10, 100, 400)]
    starts = [0, *(np.cumsum(took)[:-1] + 0.5 * np.arange(1, 3))]
    return Profile.build(ops, [took], model="x", batch=1, starts_s=[starts], bandwidth_bytes_per_s=100.0)


def test_isolated_transfers_of_a_profile_will_do(tmp_path):
    assert isolated_delays(lonely(), 100.0) == [
        (10, pytest.approx(1.2)),
        (100, pytest.approx(3.0)),
        (400, pytest.approx(9.0)),
    ]
    files.save(lonely(), tmp_path / "p.json.gz")
    (fit,) = calibrate_overhead([tmp_path / "p.json.gz"]).values()
    assert (fit.alpha_s_per_byte, fit.beta_s) == (pytest.approx(0.02, rel=1e-3), pytest.approx(1, rel=1e-3))
    assert "isolated" in fit.source


def test_profiles_without_isolated_transfers_or_bandwidth_are_refused(tmp_path):
    files.save(import_profile(STEPS, batch=4), tmp_path / "p.json.gz")
    with pytest.raises(BadInput, match="--bandwidth"):
        calibrate_window([tmp_path / "p.json.gz"])
    with pytest.raises(BadInput, match="recorded transfers are needed"):
        calibrate_window([DATA / "pytorch" / "plain.json.gz"], 1e6)


def test_window_from_raw_traces_and_from_profiles_is_the_same(tmp_path):
    files.save(import_profile(STEPS, batch=4), tmp_path / "p.json.gz")
    raw = calibrate_window(STEPS, 0.993 * 25e6)
    saved = calibrate_window([tmp_path / "p.json.gz"], 0.993 * 25e6)
    assert raw == saved
    assert raw["downlink"].window_bytes == inf
    assert raw["downlink"].largest_bytes == 1_464_968
    assert raw["downlink"].error < 0.02


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "a,b", "-1,0", "nan,0", "2,0"])
def test_overheads_that_make_no_sense(text):
    with pytest.raises(BadInput, match="overhead"):
        parse_overhead(text)


def test_parse_ops_stand_between_a_transfer_and_who_waits_for_it():
    profile = import_profile(STEPS, batch=4)
    parsed = add_parsing(profile, *parse_overhead("1.6e-10,3e-4"))
    transfers = int(profile.is_transfer.sum())
    assert parsed.ops == profile.ops + transfers
    assert (parsed.resource == WORKER).sum() == (profile.resource == WORKER).sum() + transfers // 2
    assert (parsed.resource == PS).sum() == (profile.resource == PS).sum() + transfers // 2
    for i in np.flatnonzero(parsed.is_transfer).tolist():
        name = parsed.names[i]
        (waiting,) = [k for k in range(parsed.ops) if i in parsed.deps(k)]
        assert parsed.names[waiting] == f"{name}/parse"
        assert parsed.durations_s[0, waiting] == pytest.approx(1.6e-10 * parsed.bytes[i] + 3e-4)
        before = profile.durations_s[0, profile.names.index(name)]
        assert parsed.durations_s[0, i] == pytest.approx(max(before - parsed.durations_s[0, waiting], 0))
    assert parsed.tensors == profile.tensors
    assert np.array_equal(np.sort(parsed.order[0]), np.arange(parsed.ops))
    down = [i for i in range(parsed.ops) if parsed.resource[i] == DOWNLINK]
    old = [profile.names.index(parsed.names[i]) for i in down]
    assert np.array_equal(parsed.order[1, down].argsort(), profile.order[1, old].argsort())
    with pytest.raises(BadInput, match="already"):
        add_parsing(parsed, 0, 0)
    assert (parsed.resource == UPLINK).sum() == (profile.resource == UPLINK).sum()
