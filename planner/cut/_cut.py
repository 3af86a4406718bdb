"""A cut as a value of the plan: how one replica is spread over workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """So many workers hold one replica together. `kind` says how the model is cut over them: by `features`,
    over CPU workers that train one replica together (`planner.partition.span`)."""

    workers: int = 1
    kind: str = "features"

    @property
    def key(self) -> str:
        """What tells the cut apart in a plan's key; nothing for a whole replica on each worker."""
        return f"/x{self.workers}" if self.workers > 1 else ""


WHOLE = Cut()
