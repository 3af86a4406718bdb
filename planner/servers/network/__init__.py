"""Reconstruction of what a recorded network did: transmissions, parse overhead, flow-control window."""
