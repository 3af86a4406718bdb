"""The analytical layer: compute, network, memory, price and bounds, per layer and per plan.

Closed forms that simulate nothing. Imports nouns, steps and the simulator's cases; exchanges and what stands
on them may import it.
"""
