"""Runs the installed package, and says at the end, in large letters, what was not tested."""

import os
import tempfile

from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("planner", deadline=None)
settings.load_profile("planner")
# A checkout has no compiled engine: programs that tests start must not import it from the current folder.
os.environ["PYTHONSAFEPATH"] = "1"
# What the developer has imported or measured must not decide tests.
_HOME = tempfile.TemporaryDirectory(prefix="planner-home-")
os.environ["PLANNER_HOME"] = _HOME.name


def pytest_terminal_summary(terminalreporter):
    missed = [r for r in terminalreporter.stats.get("skipped", []) if "no Chromium" in str(r.longrepr)]
    if missed:
        terminalreporter.section("REPORTS WERE NOT TESTED IN A BROWSER", sep="!", red=True, bold=True)
        reason = missed[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.line(f"{len(missed)} tests skipped: {reason}", red=True)
