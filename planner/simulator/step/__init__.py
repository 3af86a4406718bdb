"""The step: what one worker does in a training step, as the simulator runs it; its files and its summary.

Also what is told from a recorded step: transmissions, the worker's port, TensorFlow's window, overheads.
A step knows no model and no plan: it imports nouns and files only.
"""

from planner.simulator.step._profile import (
    DOWNLINK,
    HOST,
    PS,
    RESOURCE_KINDS,
    UPLINK,
    WORKER,
    Op,
    OpRole,
    Profile,
    RoleShares,
    resource_of,
)

__all__ = [
    "DOWNLINK",
    "HOST",
    "PS",
    "RESOURCE_KINDS",
    "UPLINK",
    "WORKER",
    "Op",
    "OpRole",
    "Profile",
    "RoleShares",
    "resource_of",
]
