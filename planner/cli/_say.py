"""Words on stderr, beside the result."""

from __future__ import annotations

import sys

from planner.files.printable import printable


def say(words: str) -> None:
    """One line for whoever watches."""
    print(f"planner: {printable(' '.join(words.split()))}", file=sys.stderr, flush=True)
