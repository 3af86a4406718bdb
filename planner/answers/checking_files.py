"""Step times from a file: numbers of seconds, one a line or separated by commas."""

from __future__ import annotations

from pathlib import Path

from planner.errors import BadInput


def read_step_times(path: Path | str) -> list[float]:
    """The numbers of a file; a first line of words is a heading."""
    from planner.files.regular_file import text_of

    out: list[float] = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        for word in line.replace(",", " ").split():
            try:
                out.append(float(word))
            except ValueError:
                if number == 1:
                    continue
                raise BadInput(f"{path}:{number}: {word[:40]!r} is no number of seconds") from None
    return out
