"""Parameter servers and what the five papers say of them: placement, transfer ordering, the partition search,
TensorFlow traces, bounds and validation. A plug-in, imported only when a request needs it."""

from dataclasses import field
from typing import Any


def option(default: Any, spelling: str, help: str, **more: Any) -> Any:
    """Declares a dataclass field as a command-line option: its flags, help text and limits."""
    return field(default=default, metadata={"option": (spelling, help, more)})
