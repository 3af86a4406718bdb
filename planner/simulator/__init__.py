"""The simulator; its entry point is `simulate`. `reference.py` specifies it, `_engine` is the compiled loop.

Imports the nouns and profiles; knows nothing of money.
"""

from planner.simulator.simulate import Case, simulate, simulate_many
from planner.simulator.statistics import Prediction

__all__ = ["Case", "Prediction", "simulate", "simulate_many"]
