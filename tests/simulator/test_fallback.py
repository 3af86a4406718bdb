"""Without the compiled engine: the same answers from Python, and one line that says so."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['planner.simulator._engine'] = None; sys.argv[0] = 'planner'\n"
ASK = [
    "simulate",
    "--model",
    "alexnet",
    "--hardware",
    "p3.2xlarge",
    "--workers",
    "2",
    "--exchange",
    "servers",
]
ASK += ["--format", "csv"]


def run(code, *words):
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=300
    )


def test_same_answer_and_one_line():
    code = "from planner.cli import main; main()"
    with_engine, without = run(code, *ASK), run(WITHOUT + code, *ASK)
    assert with_engine.stderr == ""
    assert without.stdout == with_engine.stdout
    said = [line for line in without.stderr.splitlines() if not line.endswith(" left")]  # progress where slow
    assert len(said) == 1
    assert said[0].startswith("planner: the compiled engine is not installed (")
    assert (with_engine.returncode, without.returncode) == (0, 0)


def test_in_python_it_is_a_warning():
    code = (
        "import warnings, planner\n"
        "from planner.errors import PlannerWarning\n"
        "from planner.simulator.run import _load_engine\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    print([_load_engine() is None, _load_engine() is None])\n"
        "print([warning.category is PlannerWarning for warning in seen])"
    )
    assert run(WITHOUT + code).stdout == "[True, True]\n[True]\n"


def test_ctrl_c_ends_a_simulation_in_python():
    """Threads are told through an event, which the reference looks at after every step."""
    code = (
        "import threading\n"
        "from concurrent.futures import CancelledError\n"
        "from planner.simulator import reference\n"
        "from planner.simulator.run import call_stoppable\n"
        "stop, steps = threading.Event(), []\n"
        "check = reference.raise_if_stopped\n"
        "def counted():\n"
        "    steps.append(1)\n"
        "    if len(steps) == 3: stop.set()\n"
        "    check()\n"
        "reference.raise_if_stopped = counted\n"
        "from planner.cli import main\n"
        "try: call_stoppable(stop, main)\n"
        "except BaseException as error: print(type(error).__name__, len(steps))\n"
    )
    assert "CancelledError 3" in run(WITHOUT + code, *ASK).stdout
