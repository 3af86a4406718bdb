"""Measurements on the user's own machine and network, written as a hardware file.

`canonical` runs in a process of its own and imports nothing of planner; `compute`, `network` and
`hardware_file` import the nouns only. The command line and reports may import this package.
"""
