"""Validation: every published figure and every measurement that ships with the package, beside ours.

    rows = planner.validation.validate(["li", "testbed"])

One small module a source: what was published stands in `data/`, with where it comes from; a module computes
our figures with the public parts of the package and says what is claimed. Imports everything below it; only
reports and the command line import it.
"""

from __future__ import annotations

from planner.validation.row import Row
from planner.validation.suite import names, validate

__all__ = ["Row", "names", "validate"]
