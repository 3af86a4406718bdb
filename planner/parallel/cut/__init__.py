"""Cuts: how one replica is spread over several devices. Pure arithmetic over blocks; knows no search."""

from planner.parallel.cut._cut import WHOLE, Cut

__all__ = ["WHOLE", "Cut"]
