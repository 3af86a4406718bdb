"""The command line: one file a command, no arithmetic. `main` turns our errors into a line and exit code.

Imports everything, when a command runs; nothing imports it.
"""

from planner.cli._app import main

__all__ = ["main"]
