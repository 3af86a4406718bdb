"""How long a device computes: kernels of a model, rates of a device, factors of a framework, and their error.

`kernels` turns a model's layers into what they ask of a device; `constants` reads the calibrated figures;
`device` says how fast a device does it and on what basis; `times` puts both together; `error` says how far
off that is for sources that no fit has seen. `benchmarks/fit/calibrate_rates.py` writes the figures.
"""
