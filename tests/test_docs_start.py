"""The ten commands of docs/start.md, run one after the other in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/start.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def test_ten_commands_from_nothing_to_an_answer(tmp_path):
    assert len(COMMANDS) == 10
    (model,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.toml").write_text(model)
    outputs = {}
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "planner"
        done = subprocess.run(
            [sys.executable, "-m", "planner", *words],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        outputs[command] = done.stdout
    (parameters,) = re.findall(r"parameter count \(([\d,]+) here\)", PAGE)
    assert f" {parameters} parameters" in outputs["planner models ./mine.toml"]
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["recommendation"]["usd_per_hour"] <= 3
    assert {"report.html", "timeline.json"} <= {path.name for path in tmp_path.iterdir()}
