"""The command line: a function per command, its options in `options.toml`, no arithmetic.

`main` turns errors into one line and an exit status.

Imports everything, when a command runs; nothing imports it.
"""

from planner.cli._app import main

__all__ = ["main"]
