"""Profiles: what one worker does in a training step. The type, its file format, synthesis, importers, fits.

Imports only the nouns (model, hardware, cluster) and the catalogue.
"""

from planner.profile._profile import DOWNLINK, HOST, PS, RESOURCE_NAMES, UPLINK, WORKER, Op, Profile

__all__ = ["DOWNLINK", "HOST", "PS", "RESOURCE_NAMES", "UPLINK", "WORKER", "Op", "Profile"]
