"""Reading regular files of limited size, decoding them, and writing whole files or none.

Imports only errors and units of planner.
"""
