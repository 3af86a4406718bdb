"""Errors for users. Each message says what is wrong, where, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable

from planner.printable import printable


class PlannerError(Exception):
    """A one-sentence error that a user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = 2

    def __str__(self) -> str:
        """The message as one line, even if a value in it had several."""
        return printable(" ".join(super().__str__().splitlines()))


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
    """Builds the error for a name that is not in a list; the message gives the nearest names."""
    import difflib

    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=3, cutoff=0.5)
    shown = [k for n in near for k in known if k.lower() == n]
    nearest = f"; nearest: {', '.join(dict.fromkeys(shown))}" if shown else ""
    shortened = name if len(name) <= 80 else f"{name[:80]}..."
    return BadInput(f"unknown {kind} {shortened!r}{nearest}{'; ' + hint if hint else ''}")
