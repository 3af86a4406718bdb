"""The README's example is what the command prints."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_answer_shown_is_the_answer_given():
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- output: planner (.*?) -->\n```text\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, "-m", "planner", *shown[1].split()], capture_output=True, text=True, check=True
    )

    def sentence(text):
        return " ".join(text.split()).split("; the fastest")[0]

    assert sentence(done.stdout) == sentence(shown[2])


def test_every_page_it_names_exists():
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / path).exists(), path


def test_every_command_it_names_exists():
    from planner.cli._app import COMMANDS

    readme = (ROOT / "README.md").read_text()
    named = set(re.findall(r"(?:`|^    |bin/)planner ([a-z]+)", readme, re.MULTILINE))
    assert {"recommend", "validate", "sweep", "profile"} <= named
    assert named <= set(COMMANDS)
