"""The questions people ask, one module each, and what their answers are made of.

`questions` is the door (and the Python API), `results` the answers. Imports everything that plans are made,
priced and simulated with; only reports, validation and the command line import it.
"""
