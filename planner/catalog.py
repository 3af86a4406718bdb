"""The catalogue: finds and loads `models/*.toml` and `hardware/*.toml`, the user's own folders first."""

from planner.hardware_files import hardware_names, load_hardware, match_hardware, own_hardware_names
from planner.model_files import load_model, model_names

__all__ = [
    "hardware_names",
    "load_hardware",
    "load_model",
    "match_hardware",
    "model_names",
    "own_hardware_names",
]
