#!/usr/bin/env bash
# Builds the engine with AddressSanitizer and UndefinedBehaviorSanitizer, warnings as errors, and runs its
# tests under it. Nothing is installed: the build lives in build/sanitize.
#
#     benchmarks/robustness/sanitize.sh [python]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
build=build/sanitize
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug -DPLANNER_WERROR=ON -DPLANNER_SANITIZE=ON \
  -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" -DPython_EXECUTABLE="$(command -v "$python")" >/dev/null
cmake --build "$build" --parallel 2 >/dev/null
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
# Python itself never frees some of its memory; leaks are not what is looked for.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
LD_PRELOAD="$preload" "$python" - "$build" <<'PY'
import glob
import importlib.util
import sys

import pytest

sys.path.insert(0, ".")
import planner.simulator  # noqa: E402

(path,) = glob.glob(f"{sys.argv[1]}/_engine*.so")
spec = importlib.util.spec_from_file_location("planner.simulator._engine", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["planner.simulator._engine"] = module
tests = ["equals_reference", "joint_ops", "closed_forms", "hosts", "invariants", "refusals"]
print("engine under test:", module.__file__)
sys.exit(pytest.main([*(f"tests/simulator/test_{name}.py" for name in tests), "-q", "-p", "no:cacheprovider"]))
PY
