#!/usr/bin/env bash
# Wheels into empty environments: built for every Python given (3.12 and later share one), installed, asked the
# README's question; then the size of an install without and with extras, and what takes it.
#
#     benchmarks/robustness/wheels.sh python3.11 python3.12 python3.13 ...
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/wheels
rm -rf "$out" && mkdir -p "$out"
python3 -m venv "$out/tools"
"$out/tools/bin/pip" install -q uv
uv=$out/tools/bin/uv
question=(recommend --budget 20 --model vgg11 --quiet)

wheel_for() { # the one that fits a Python, built where there is none yet
  local version; version=$("$1" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  local tag=cp312-abi3; [ "$version" = 311 ] && tag=cp311-cp311
  ls "$out"/*-"$tag"-*.whl >/dev/null 2>&1 || "$uv" build -q --wheel --python "$1" --out-dir "$out" . >&2
  ls "$out"/*-"$tag"-*.whl
}
megabytes() { du -sm "$1" | cut -f1; }

for python in "$@"; do
  wheel=$(wheel_for "$python")
  env=$out/env-$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
  "$uv" venv -q --python "$python" "$env"
  "$uv" pip install -q --python "$env/bin/python" "$wheel"
  (cd / && "$OLDPWD/$env/bin/planner" "${question[@]}") > "$env/answer.txt"
  echo "$(basename "$env" | cut -c5-) $(basename "$wheel"): $(head -n 1 "$env/answer.txt" | cut -c1-100)"
  cmp -s "$env/answer.txt" "${first:=$env/answer.txt}" || { echo "  ANOTHER ANSWER than $first"; differs=1; }
done

site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
echo "the wheel: $(du -k "$wheel" | cut -f1) kB; installed without extras: $(megabytes "$site") MB, of which"
du -sm "$site"/* | sort -rn | head -n 8 | while read -r size name; do echo "  $size $(basename "$name")"; done
for extra in cluster postgresql onnx test docs; do
  "$uv" venv -q --python "$python" "$out/extra"
  "$uv" pip install -q --python "$out/extra/bin/python" "$wheel[$extra]"
  echo "with $extra: $(megabytes "$(dirname "$out"/extra/lib/python*/site-packages/numpy)") MB"
  rm -rf "$out/extra"
done
exit "${differs:-0}"
