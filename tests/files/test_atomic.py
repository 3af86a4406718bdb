"""Files are replaced whole or not at all: a full disk, Ctrl-C and kill -9 leave the old one as it was."""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from planner.errors import BadInput
from planner.files.regular_file import write_file

PLANNER = [sys.executable, "-m", "planner"]
TRACE = Path(__file__).parents[1] / "data" / "tensorflow" / "alexnet_ps1_step0.pb.gz"


def full_disk():
    """What a disk with room for a hundred bytes looks like: writing on gives an error."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.parametrize(
    "command",
    [
        ["models", "--format", "json", "--output", "FILE"],
        ["hardware", "--format", "csv", "--output", "FILE"],
        ["profile", "import", str(TRACE), "--batch", "4", "--output", "FILE"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_full_disk_leaves_the_old_file(command, tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    command = [str(path) if word == "FILE" else word for word in command]
    done = subprocess.run(
        [*PLANNER, *command], preexec_fn=full_disk, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"planner: cannot write {path}: File too large")
    assert "Traceback" not in done.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


STOPPED = """
import os, signal, sys
from planner.files.regular_file import write_file
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have told us to ignore
os.fsync = lambda file: os.kill(os.getpid(), int(sys.argv[2]))  # all is written, nothing is renamed
write_file(sys.argv[1], b"new" * 1000)
"""


@pytest.mark.parametrize(("how", "left"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)])
def test_signal_in_the_middle_leaves_the_old_file(how, left, tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, str(path), str(int(how))], capture_output=True, check=False
    )
    assert done.returncode == -how
    assert path.read_text() == "old"
    # Ctrl-C removes the temporary file; nothing can after kill -9, and its name is hidden and unique.
    others = [other for other in tmp_path.iterdir() if other != path]
    assert len(others) == left
    assert all(other.name.startswith(".result.json.") for other in others)


def test_error_while_renaming_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(28, "No space left on device")

    path = tmp_path / "result.json"
    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(BadInput, match="No space left on device"):
        write_file(path, "new")
    assert list(tmp_path.iterdir()) == []


def test_there_is_one_writer():
    """Every file that the package writes goes through planner/files/regular_file.py."""
    writes = re.compile(r"""\.write_(text|bytes)\(|open\([^)\n]*["'][wax]b?\+?["']|\.savefig\(|\.tofile\(""")
    root = Path(planner.__file__).parent
    kept_rglob = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path != root / "files" / "regular_file.py"
        for line in path.read_text().splitlines()
        if writes.search(line)
    ]
    assert kept_rglob == []
