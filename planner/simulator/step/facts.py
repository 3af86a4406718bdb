"""What a recording notes beside the trace: the settings that the trace itself does not hold.

They stand in the trace file under the key "planner", so that a trace stays one file that other viewers open.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

KEY = "planner"
VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Strategy = Literal["alone", "ddp", "fsdp"]


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one rank. `batch` are the samples that it takes in one micro-step; `micro_steps` forward and
    backward passes make one step of the optimizer."""

    version: int = VERSION
    batch: Count
    micro_steps: Count = 1
    model: str = ""
    device: str = ""  # as the framework names it
    device_kind: str = "cpu"
    precision: str = "fp32"
    strategy: Strategy = "alone"
    world_size: Count = 1
    compiled: bool = False
    bucket_bytes: int | None = None
    parameters: tuple[tuple[str, int], ...] = ()  # names and elements, in order of registration
    input_shape: tuple[int, ...] = ()
    optimizer: str = ""
    framework: str = ""  # "torch 2.13.0"
    python: str = ""
    threads: Count | None = None  # that ops of a CPU run on
    cores: Count | None = None  # that the process may use
    step_s: float | None = None  # mean of steps before the profiler was on

    @property
    def samples(self) -> int:
        """Of one step of the optimizer."""
        return self.batch * self.micro_steps
