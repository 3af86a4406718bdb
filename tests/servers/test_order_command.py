"""`planner order`: the table, the files it writes and reads, and bad input."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import BadInput, Infeasible, PlannerError
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.order_request import OrderRequest, best_priorities_json, compare_requested_orders
from planner.servers.synthesis import profile_for
from planner.simulator.step.files import save

COMMON = ("order", "--model", "googlenet", "--batch", "16", "--hardware", "g3.8xlarge", "--workers", "2")


def planner(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner", *args], capture_output=True, text=True, check=False
    )


def test_table_json_export_and_import(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    few = ("--bandwidth", "3Gbit", "--strategies", "tic,bytescheduler")
    done = planner(*COMMON, *few, "--export", str(path), "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["strategy"] for row in rows] == ["fifo", "tic", "bytescheduler", "(ideal)"]
    assert all(row["step_s"] >= rows[-1]["step_s"] for row in rows)
    transfers = json.loads(path.read_text())["transfers"]
    assert transfers[0]["priority"] == 0
    assert {t["name"].rpartition("/")[2] for t in transfers} == {"down", "up"}
    again = planner(*COMMON, "--bandwidth", "3Gbit", "--strategies", "tic", "--priorities", str(path))
    assert again.returncode == 0, again.stderr
    assert "priorities " in again.stdout
    assert "Communication takes" in again.stdout


def request(**more: object) -> OrderRequest:
    given = {"model": "googlenet", "hardware": "g3.8xlarge", "batch": 16, "bandwidth": "3Gbit"}
    return OrderRequest(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bandwidth": "0Gbit"}, "must lie between 1kbit and 100000Gbit"),
        ({"bandwidth": "fast"}, "not understood"),
        ({"strategies": "tack"}, "unknown strategy 'tack'; nearest: tac"),
        ({"credit_size": "1KiB"}, "smaller than slice_bytes"),
        ({"slice_size": "0"}, "at least one byte"),
        ({"mode": "bsp"}, "unknown mode"),
        ({"priorities": "/nowhere.json"}, "cannot read /nowhere.json"),
        ({"slow_link": "0Mbit"}, "must lie between"),
        ({"model": "googlenett"}, "googlenet"),
        ({"overhead_ms": -1.0}, "between 0 and 1 s"),
        ({"overhead_ms": 1e9}, r"overhead of a message is 1e\+06 s"),
        ({"download_overhead_ms": 1001.0}, "between 0 and 1 s"),
        ({"slow_worker": 5.0}, "speed is 5; it must be 0.001 to 1"),
        ({"slow_link": "4Gbit"}, "the slow link has 4 Gbit/s, more than the 3 Gbit/s of the others"),
        ({"model": None}, "--model and --hardware, or --profile"),
        ({"profile": "/nowhere.json"}, "give --profile alone"),
        ({"bandwidth": None, "hardware": None}, "no bandwidth is known"),
    ],
)
def test_bad_input_is_one_line(more: dict[str, object], message: str) -> None:
    with pytest.raises(PlannerError, match=message) as error:
        compare_requested_orders(request(**more))
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


def test_more_ops_than_are_simulated_are_refused_with_remedies_that_work() -> None:
    with pytest.raises(BadInput, match=r"take at most \d+ workers, .* or leave p3 \(") as refusal:
        compare_requested_orders(request(model="alexnet", workers=256))
    most = int(re.search(r"at most (\d+) workers", str(refusal.value))[1])  # type: ignore[index]
    assert 30 < most < 256
    assert (
        compare_requested_orders(request(model="alexnet", workers=256, strategies="tic")).comparison.workers
        == 256
    )


def test_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Infeasible, match=r"batch 999999 does not fit .* the largest batch that fits is"):
        compare_requested_orders(request(batch=999_999))


def test_exit_code_of_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text('{"transfers": [{"name": "conv9/weights/down", "priority": 0}]}')
    done = planner(*COMMON, "--bandwidth", "1Gbit", "--priorities", str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("planner: unknown transfer")
    assert len(done.stderr.splitlines()) == 1


def test_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "googlenet.profile.json"
    save(profile_for(load_model("googlenet"), 8, load_hardware("g3.8xlarge")), path)
    own = request(model=None, batch=None, profile=path, strategies="tic")
    answer = compare_requested_orders(own)
    assert answer.title.startswith("googlenet, batch 8, 2 x g3.8xlarge, 1 server, 3 Gbit/s a NIC")
    assert [r.strategy for r in answer.comparison.results] == ["fifo", "tic"]


def test_export_of_fifo_alone_is_refused() -> None:
    answer = compare_requested_orders(request(strategies="fifo"))
    with pytest.raises(BadInput, match="add tac or tic"):
        best_priorities_json(answer)


@pytest.mark.parametrize(("flags", "shown"), [((), True), (("--quiet",), False)])
def test_progress_on_a_terminal(flags: tuple[str, ...], shown: bool) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", *COMMON, "--strategies", "tic", *flags],
        stdout=subprocess.DEVNULL,
        stderr=child,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(child)
    data = b""
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while more := os.read(parent, 4096):
            data += more
    os.close(parent)
    assert process.wait() == 0
    text = data.decode()
    assert ("simulating" in text and "100%" in text) is shown
    assert shown or text == ""


def test_progress_counts_trials_and_strategies() -> None:
    seen: list[tuple[str, int, int]] = []
    request = OrderRequest(
        model="googlenet", hardware="g3.8xlarge", batch=16, strategies="tic,bytescheduler", tune=2
    )
    compare_requested_orders(request, progress=lambda *said: seen.append(said))
    assert [said for said in seen if said[0] == "tuning"] == [("tuning", 0, 2), ("tuning", 1, 2)]
    assert [said for said in seen if said[0] == "simulating"] == [("simulating", n, 3) for n in range(4)]


@pytest.mark.parametrize("exchange", ["allreduce", "alone", "sharded"])
def test_order_without_servers_is_explained(exchange: str) -> None:
    done = planner("order", "--model", "alexnet", "--hardware", "g5.xlarge", "--exchange", exchange)
    assert done.returncode == 2
    assert done.stderr.startswith(f"planner: --exchange {exchange}: ")
    assert len(done.stderr.splitlines()) == 1
    if exchange == "allreduce":
        assert "ends at the same time in any order; try other sizes" in done.stderr
