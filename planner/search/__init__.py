"""The space of plans and how it is walked: enumerated, bounded, fitted into memory, simulated in rungs.

A question (`planner.answers`) is a walk with a goal. Imports exchanges, cuts, costs and the simulator.
"""
