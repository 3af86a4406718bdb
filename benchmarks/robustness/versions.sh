#!/usr/bin/env bash
# The suite with the lowest versions of dependencies that pyproject.toml allows, or with the newest, in an
# environment of its own (build/versions). Prints the versions and pytest's closing line.
#
#     benchmarks/robustness/versions.sh lowest|newest [python] [arguments of pytest]
set -euo pipefail
cd "$(dirname "$0")/../.."
which=${1:?lowest or newest}
python=${2:-python3}
shift $(($# < 2 ? $# : 2))
case $which in
  lowest) resolution=lowest-direct ;;
  newest) resolution=highest ;;
  *) echo "usage: benchmarks/robustness/versions.sh lowest|newest [python] [arguments of pytest]" >&2; exit 2 ;;
esac
env=build/versions/$which
"$python" -m venv --clear "$env"
"$env/bin/pip" install -q uv
"$env/bin/uv" pip install -q --python "$env/bin/python" --resolution "$resolution" --upgrade --reinstall-package dnn-planner '.[test]'
named=$("$env/bin/python" - <<'PY'
import re
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
lines = project["dependencies"] + project["optional-dependencies"]["test"]
print("|".join(re.match(r"[\w-]+", line)[0].replace("_", "-") for line in lines))
PY
)
"$env/bin/python" --version
"$env/bin/uv" pip list --python "$env/bin/python" 2>/dev/null | grep -iE "^($named) " | tr -s ' ' | paste -sd, -
"$env/bin/pytest" -n 2 "$@" | tail -n 15
