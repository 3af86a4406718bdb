"""planner: what to rent and how to run it before training a deep network.

Public names are loaded when first used, so that `import planner` and the command line start at once.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as that of typing, whose module takes milliseconds to load
if TYPE_CHECKING:
    from typing import Any

    from planner.answers.questions import compare as compare
    from planner.answers.questions import recommend as recommend
    from planner.answers.questions import saturation as saturation
    from planner.answers.questions import simulate as simulate
    from planner.answers.sweep import sweep as sweep
    from planner.device.recorded.importers import import_profile as import_profile
    from planner.errors import BadInput as BadInput
    from planner.errors import Infeasible as Infeasible
    from planner.errors import PlannerError as PlannerError
    from planner.hardware.catalog import load_hardware as load_hardware
    from planner.model.catalog import load_model as load_model
    from planner.recorder import record as record
    from planner.search.request import Request as Request
    from planner.servers.lowering import cluster_of as cluster_of
    from planner.servers.orders import compare_orders as compare_orders
    from planner.servers.synthesis import profile_for as profile_for
    from planner.simulator import Prediction as Prediction
    from planner.simulator import simulate as simulate_profile  # noqa: F401
    from planner.simulator import simulate_many as simulate_many
    from planner.simulator.cluster import Cluster as Cluster
    from planner.simulator.cluster import Node as Node
    from planner.simulator.step import Profile as Profile

__version__ = "0.1.0"

_LAZY = {
    "BadInput": "planner.errors",
    "Infeasible": "planner.errors",
    "PlannerError": "planner.errors",
    "Cluster": "planner.simulator.cluster",
    "Node": "planner.simulator.cluster",
    "Prediction": "planner.simulator",
    "Profile": "planner.simulator.step",
    "Request": "planner.search.request",
    "cluster_of": "planner.servers.lowering",
    "import_profile": "planner.device.recorded.importers",
    "compare": "planner.answers.questions",
    "compare_orders": "planner.servers.orders",
    "load_hardware": "planner.hardware.catalog",
    "load_model": "planner.model.catalog",
    "profile_for": "planner.servers.synthesis",
    "record": "planner.recorder",
    "recommend": "planner.answers.questions",
    "saturation": "planner.answers.questions",
    "simulate": "planner.answers.questions",
    "simulate_many": "planner.simulator",
    "simulate_profile": "planner.simulator:simulate",
    "sweep": "planner.answers.sweep",
}

__all__ = ["__version__", *_LAZY]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Imports a public name on its first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    import importlib

    module, _, original = _LAZY[name].partition(":")
    return getattr(importlib.import_module(module), original or name)
