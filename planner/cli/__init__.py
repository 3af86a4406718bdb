"""The command line: one file a command, no arithmetic. `main` turns our errors into a line and exit code."""

from planner.cli._app import main

__all__ = ["main"]
