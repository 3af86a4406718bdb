"""The catalogue: finds and loads `models/*.toml` and `hardware/*.toml`, the user's own folders first."""

from planner.hardware_files import hardware_names, load_hardware, match_hardware

__all__ = ["hardware_names", "load_hardware", "match_hardware"]
