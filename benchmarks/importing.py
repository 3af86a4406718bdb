"""What importing costs: `python benchmarks/importing.py`, CPU seconds and peak memory.

- 60 steps of ResNet-50 (161 tensors, one server) as TensorFlow 2.21 recorded them, one file a step: one real
  step, 60 times. Target 2 s.
- A PyTorch profiler trace of 200 MB: a real one of three steps, repeated. Target 30 s and 1.5 GB.
"""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
STEP = HERE / "data" / "importing" / "resnet50_step.pb.gz"
TRACE = HERE.parent / "tests" / "data" / "pytorch" / "plain.json.gz"
TRACE_BYTES = 200_000_000


def tensorflow_files(folder: Path) -> list[Path]:
    return [Path(shutil.copy(STEP, folder / f"step{k:02}.pb.gz")) for k in range(60)]


def pytorch_file(folder: Path) -> list[Path]:
    """The trace again and again, each time later and with other flow ids."""
    events = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    events = [e for e in events if e["ph"] in ("X", "s", "f") and e.get("cat") != "Trace"]
    length = max(e["ts"] + e.get("dur", 0) for e in events) - min(e["ts"] for e in events) + 100
    path = folder / "big.json"
    written = turn = 0
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        while written < TRACE_BYTES:
            for e in events:
                shifted = {**e, "ts": e["ts"] + turn * length}
                if "id" in e:
                    shifted["id"] = e["id"] + turn * 1_000_000
                written += file.write((", " if written else "") + json.dumps(shifted))
            turn += 1
        file.write("]}")
    return [path]


def measure(name: str, files: list[Path]) -> None:
    """Import in a process of its own, whose memory is all that is counted."""
    subprocess.run([sys.executable, __file__, name, *map(str, files)], check=True)


def one(name: str, files: list[str]) -> None:
    begin = time.process_time()
    from planner.device.recorded.importers import import_profile

    profile = import_profile(files, batch=16)
    cpu_s = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(Path(file).stat().st_size for file in files)
    print(
        f"{name}: {len(files)} file(s), {size / 1e6:.1f} MB, {profile.steps} steps of {profile.ops} ops: "
        f"{cpu_s:.2f} s CPU, {peak / 1e9:.2f} GB"
    )


def main() -> None:
    if len(sys.argv) > 1:
        one(sys.argv[1], sys.argv[2:])
        return
    with tempfile.TemporaryDirectory() as folder:
        measure("TensorFlow ResNet-50", tensorflow_files(Path(folder)))
        measure("PyTorch", pytorch_file(Path(folder)))


if __name__ == "__main__":
    main()
