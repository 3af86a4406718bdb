"""The simulator: `simulate` is the one door. `reference.py` specifies, `_engine` is the compiled loop.

Imports the nouns and profiles; knows nothing of money.
"""
