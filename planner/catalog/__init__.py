"""The catalogue: finds and loads `models/*.toml` and `hardware/*.toml`, the user's own folders first.

Imports nouns and files. Names are loaded when first used: whoever reads hardware loads no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.catalog.hardware_files import hardware_names as hardware_names
    from planner.catalog.hardware_files import load_hardware as load_hardware
    from planner.catalog.hardware_files import match_hardware as match_hardware
    from planner.catalog.hardware_files import own_hardware_names as own_hardware_names
    from planner.catalog.model_files import load_model as load_model
    from planner.catalog.model_files import model_names as model_names

_LAZY = {
    "hardware_names": "planner.catalog.hardware_files",
    "load_hardware": "planner.catalog.hardware_files",
    "match_hardware": "planner.catalog.hardware_files",
    "own_hardware_names": "planner.catalog.hardware_files",
    "load_model": "planner.catalog.model_files",
    "model_names": "planner.catalog.model_files",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'planner.catalog' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
