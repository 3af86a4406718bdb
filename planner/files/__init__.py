"""Files of any kind: read only what is regular and small enough, decode it, write it whole or not at all.

Imports nothing of planner but errors and what makes text printable.
"""
