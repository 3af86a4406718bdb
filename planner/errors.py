r"""Errors for users, and text as terminals may show it.

Each message says what is wrong, where, and what would be right. Names of files, paths and variables may hold
control characters, which colour a terminal, set its title or move its cursor, and marks that turn the
direction of writing, behind which another name hides. Both are shown as `\x1b` and `\u202e`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any


class PlannerError(Exception):
    """One-sentence error that a user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = 2

    def __str__(self) -> str:
        """The message as one line, even if a value in it had several."""
        return escape_unprintable(" ".join(super().__str__().splitlines()))


class BadInput(PlannerError):
    """A file, a flag or an argument is invalid."""


class Infeasible(PlannerError):
    """No plan meets the request; the message names the limit that binds."""

    exit_code = 1


class PlannerWarning(UserWarning):
    """A warning that does not stop the answer; the command line prints it in one line."""


class ClusterWarning(PlannerWarning):
    """The Dask cluster was lost before the end; the answer holds the results so far."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C before there was an answer; the message gives the results so far."""


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> BadInput:
    """Error for a name that is not in a list; its message gives the nearest names."""
    import difflib

    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=3, cutoff=0.5)
    shown = [k for n in near for k in known if k.lower() == n]
    nearest = f"; nearest: {', '.join(dict.fromkeys(shown))}" if shown else ""
    shortened = name if len(name) <= 80 else f"{name[:80]}..."
    return BadInput(f"unknown {kind} {shortened!r}{nearest}{'; ' + hint if hint else ''}")


_PLAIN = {"─": "-", "█": "#", "±": "+-", "×": "x", "·": ".", "–": "-", "…": "...", "→": "->", "≥": ">="}
ASCII = "planner_ascii"  # the name under which codecs know `_replace_by_ascii`


def escape_unprintable(text: str) -> str:
    """Escapes control characters, direction marks and line breaks of a text."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def escape_unprintable_lines(text: str) -> str:
    """Escapes the unprintable characters of each line of a text."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def escape_unprintable_json(text: str, *, ascii_only: bool = False) -> str:
    """Escapes control characters in JSON text without changing its values.

    `ascii_only` escapes all non-ASCII characters.
    """

    def escape(match: re.Match[str]) -> str:
        """Returns a matched character, escaped if it is unprintable or `ascii_only` is set."""
        return match[0] if match[0].isprintable() and not ascii_only else _json_code(match[0])

    return re.sub(r"[^\n -~]", escape, text)


def _json_code(char: str) -> str:
    r"""JSON escape of a character: `\\uXXXX` for each UTF-16 code unit."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def enable_ascii_fallback(*streams: Any) -> None:
    """Makes streams replace characters that they cannot encode by similar ASCII."""
    codecs.register_error(ASCII, _replace_by_ascii)
    for stream in streams:
        if hasattr(stream, "reconfigure") and not is_unicode(stream):
            stream.reconfigure(errors=ASCII)


def is_unicode(stream: Any) -> bool:
    """Whether a stream can encode every character; True if it names no encoding."""
    return str(getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def _replace_by_ascii(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: similar ASCII text, and the position where encoding continues."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    chars = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in chars), error.end
