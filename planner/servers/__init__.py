"""Parameter servers and what the five papers say of them: placement, transfer ordering, the partition search,
TensorFlow traces, bounds and validation. A plug-in, imported only when a request needs it."""

from dataclasses import field
from typing import Any


def option(default: Any, spelling: str, help: str, **more: Any) -> Any:
    """A field of a request that is an option of its command (`planner.servers.cli`)."""
    return field(default=default, metadata={"option": (spelling, help, more)})
