"""How long a device computes: kernels of a model, rates of a device, factors of a framework, and their error.

`kernels` turns the workload of layers into arrays; `constants` reads the calibrated figures and their errors;
`device` gives the rates of a device and their basis; `times` divides workload by rates.
`benchmarks/fit/calibrate_rates.py` writes the figures.
"""
