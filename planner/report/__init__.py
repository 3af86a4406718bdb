"""What people see: terminal tables, plots, HTML, Chrome traces, JSON and CSV.

A module a kind of answer; it asks values for their words and computes nothing that answers do not know.
Imports answers and all below them; only the command line imports it.
"""
