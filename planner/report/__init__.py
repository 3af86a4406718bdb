"""What people see: terminal tables, plots, HTML, Chrome traces, JSON and CSV.

One module per kind of answer; none computes figures that answers lack. Data are in TOML files: sentences in
`assumed.toml`, columns of tables in `columns.toml`, styles of charts in `charts.toml`.

Imports answers and all below them; only the command line imports it.
"""
