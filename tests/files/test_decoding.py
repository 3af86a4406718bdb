"""Threads that meet a type for the first time together."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import planner

FIRST_MEETINGS = """
import sys, threading
import msgspec
from planner.files.tomlfile import convert, from_json

sys.setswitchinterval(1e-6)
fields = [(f"f{i}", int | str | None, None) for i in range(20)]
for round in range(300):
    inner = msgspec.defstruct("Inner", fields)
    kind = msgspec.defstruct("Outer", [("inner", inner), *fields])
    start = threading.Barrier(4)
    def meet():
        start.wait()
        CALL
    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.mark.parametrize(
    "call",
    [
        """convert({"inner": {"f19": 1}, "f19": 2}, kind)""",
        """from_json(b'{"inner": {"f19": 1}, "f19": 2}', kind)""",
    ],
)
def test_threads_that_meet_a_type_for_the_first_time_together(call):
    """In a process of its own: what went wrong was a segmentation fault in msgspec."""
    program = FIRST_MEETINGS.replace("CALL", call)
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_only_tomlfile_decodes_typed_values():
    for path in Path(planner.__file__).parent.rglob("*.py"):
        if path.name != "tomlfile.py":
            assert not re.search(r"msgspec\.convert\(|msgspec\.json\.decode\(.*type=", path.read_text()), path
