"""What one device does in a step: compute time, memory footprint, precision, recompute, recorded steps."""
