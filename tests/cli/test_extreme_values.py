"""Extreme values of flags, closed streams and early Ctrl-C: a line that says what is wrong, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PLANNER = [sys.executable, "-m", "planner"]
SIMULATE = "simulate --model vgg11 --hardware p3.2xlarge --workers 2"
ORDER = "order --model vgg11 --hardware p3.2xlarge"
REFUSED = {
    "recommend --model vgg11 --budget 1e308": "--budget is 1e+308",
    f"{SIMULATE} --interval-width 1e-300": "--interval-width is 1e-300",
    f"{SIMULATE} --spot --interruptions 1e-320": "--interruptions is",
    f"{SIMULATE} --timeline t.json --timeline-steps 9223372036854775808": "--timeline-steps",
    f"{SIMULATE} --timeline t.json --timeline-steps 99999999": "less than or equal to 1000",
    f"{SIMULATE} --max-steps 9223372036854775808": "--max-steps is beyond 1e+18",
    f"{SIMULATE} --max-steps {'9' * 400}": "--max-steps is beyond 1e+18",
    f"{ORDER} --slice 10000000000000000000": "more than 1 PiB",
    f"{ORDER} --credit 1e308": "more than 1 PiB",
    f"{ORDER} --slow-worker 1e-320": "it must be 0.001 to 1",
    f"{ORDER} --workers 4096": "less than or equal to 256",
    f"{ORDER} --workers 256": "at most 500,000 are simulated",
    f"{ORDER} --overhead 1e308": "--overhead",
    "fit --model llama3-8b --gpu T4 --rank 9223372036854775808": "it must be 1 to 65,536",
    "partition --model vgg11 --hardware c4.8xlarge -n 4096": "at most 1024 are searched",
    f"check --forget {'9' * 5000}": "nothing is kept of 999",
    "check --forget ²": "nothing is kept of ²",
}


@pytest.mark.parametrize("command", REFUSED)
def test_values_out_of_range_are_refused_in_one_line(command, tmp_path):
    done = subprocess.run(
        [*PLANNER, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert REFUSED[command] in done.stderr
    assert done.stderr.count("\n") == 1


def test_sparse_file_of_twenty_gibibytes_is_refused_without_being_read(tmp_path):
    with (tmp_path / "p.json").open("wb") as file:
        file.truncate(20 * 2**30)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "from planner.errors import BadInput; from planner.simulator.step.files import load\n"
        "try:\n    load('p.json')\nexcept BadInput as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "more than 1 GiB" in done.stdout


def test_json_nested_deeply_in_a_free_value(tmp_path):
    """`exchange` may hold any value, so that the decoder follows it as deep as it goes."""
    plan = '{"model": "m", "batch": 1, "worker_hardware": "h", "workers": 1, "cluster": "c", '
    plan += '"samples_per_s": 1, '
    deep = '{"a": ' * 1100 + "1" + "}" * 1100
    (tmp_path / "a.json").write_text(f'{{"version": 2, "plan": {plan}"exchange": {deep}}}}}')
    for command in (["diff", "a.json", "a.json"], ["check", "a.json", "--measured", "3"]):
        done = subprocess.run([*PLANNER, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "nested too deeply" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_closed_stream_is_no_traceback(stream):
    closed = ">&-" if stream == "stdout" else "2>&-"
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m planner models {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_commands_are_loaded_is_no_traceback():
    """From the first line of ours on; what Python does before is not ours to change."""
    program = (
        "import os, sys\n"
        "interrupted = sys.argv.pop(1)\n"
        "class Presses:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == interrupted:\n"
        "            os.kill(os.getpid(), 2)\n"
        "sys.meta_path.insert(0, Presses())\n"
        "from planner.__main__ import main\n"
        "main()\n"
    )
    for module in ("planner.cli", "typer", "planner.cli._app", "planner.cli.models"):
        started_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program, module, "models"], capture_output=True, text=True, check=False
        )
        assert done.returncode in (-signal.SIGINT, 130), module
        assert "Traceback" not in done.stderr, module
        assert time.perf_counter() - started_s < 10
