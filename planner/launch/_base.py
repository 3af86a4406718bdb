"""What it takes to start a plan, and what a target makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from planner.errors import BadInput
from planner.launch._text import comments


@dataclass(frozen=True, slots=True)
class Launch:
    """Machines, processes a machine, and what the training script has to be told.

    `settings` become environment variables (PLANNER_PRECISION=bf16), because the script is the user's own and
    its flags are not known; `comments` stand at the top of the file. `parameter_servers` counts processes
    that no launcher of PyTorch starts.
    """

    name: str
    machine: str  # as its provider names it
    machines: int
    processes_per_machine: int
    provider: str | None = None
    region: str | None = None
    spot: bool = False
    fast_network: bool = False
    parameter_servers: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    comments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("machines", "processes_per_machine"):
            if getattr(self, name) < 1:
                raise BadInput(f"a launch needs {name.replace('_', ' ')} of at least 1")


class Target(ABC):
    """A kind of file that starts a launch."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]  # of the files it writes, the longest match decides
    says: ClassVar[str]  # what to do with the file, in a sentence

    def refusal(self, launch: Launch) -> str:
        """Why this target cannot express a launch, with a remedy; empty if it can."""
        if launch.parameter_servers:
            return (
                f"{self.name} starts equal ranks and cannot start {launch.parameter_servers} parameter "
                "servers; choose a plan with --exchange allreduce, sharded or alone"
            )
        return ""

    @abstractmethod
    def text(self, launch: Launch) -> str:
        """The whole file."""


def head_comments(launch: Launch) -> str:
    """The comments and settings of a launch as lines that begin with a number sign."""
    settings = [f"{name}={value}" for name, value in launch.settings.items()]
    return comments(
        [*launch.comments, *(["the training script reads: " + ", ".join(settings)] if settings else [])]
    )
