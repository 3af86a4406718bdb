"""A cut as a value of the plan: how one replica is spread over workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.errors import BadInput

Kind = Literal["features", "layers"]


@dataclass(frozen=True, slots=True)
class Cut:
    """So many workers hold one replica together. `kind` says how the model is cut over them: by `features`,
    over CPU workers that train one replica together (`planner.servers.partition.span`), or by `layers`:
    `tensor` devices share every layer and `pipeline` stages hold the layers one after another, `interleave`
    of them on each device (`planner.parallel.cut.replica`)."""

    workers: int = 1
    kind: Kind = "features"
    tensor: int = 1
    pipeline: int = 1
    interleave: int = 1

    def __post_init__(self) -> None:
        for name in ("workers", "tensor", "pipeline", "interleave"):
            if getattr(self, name) < 1:
                raise BadInput(f"a cut has {name} {getattr(self, name)}; it is at least 1")
        if self.kind == "layers" and self.workers != self.tensor * self.pipeline:
            raise BadInput(f"{self.tensor} x {self.pipeline} devices a replica are not {self.workers}")
        if self.interleave > 1 and self.pipeline == 1:
            raise BadInput("interleaved stages need a pipeline of at least 2 stages")

    @staticmethod
    def layers(tensor: int = 1, pipeline: int = 1, interleave: int = 1) -> Cut:
        """Layers shared by `tensor` devices, in `pipeline` stages; a whole replica where both are 1."""
        if tensor * pipeline == 1:
            return WHOLE
        return Cut(tensor * pipeline, "layers", tensor, pipeline, interleave)

    @property
    def key(self) -> str:
        """What tells the cut apart in a plan's key; nothing for a whole replica on each worker."""
        if self.kind == "layers":
            return f"/t{self.tensor}p{self.pipeline}v{self.interleave}"
        return f"/x{self.workers}" if self.workers > 1 else ""


WHOLE = Cut()
