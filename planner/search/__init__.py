"""The space of plans and its search: enumerated, pruned by memory and bounds, simulated in rungs, ranked.

Imports strategies, meshes, device models and the simulator; `planner.answers` asks the questions.
"""
