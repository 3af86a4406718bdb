"""The example of docs/hardware.md about spot is true."""

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/hardware.md"


def test_python() -> None:
    text = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("### Spot")[2], re.DOTALL))
    test = doctest.DocTestParser().get_doctest(text, {}, "hardware.md", str(PAGE), 0)
    assert test.examples
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
