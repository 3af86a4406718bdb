"""The example of docs/compute.md runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "compute.md"


def test_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(code, {})
