"""The analytical layer: compute, network, memory, price and bounds, per layer and per plan."""
