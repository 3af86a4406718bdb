"""The questions people ask, one module each, and the values of their answers.

`questions` is the entry point and the Python API, `results` holds the answers. Only reports, validation and
the command line import this package.
"""
