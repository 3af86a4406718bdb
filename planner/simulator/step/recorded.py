"""Facts in a recording besides times: the settings of the run, and the work of each op.

An op consists of parts, each of one kind of kernels; time that no part explains is the host's (Python,
launching). The parts allow a recorded step to be rescaled to another device or another batch. The settings
are those that the trace itself does not hold.

Both stand in the trace file under the key "planner", so that a trace stays one file that other viewers open.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from planner.hardware import Format
from planner.model.layers.base import KernelKind

KEY = "planner"
VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Strategy = Literal["alone", "ddp", "fsdp"]


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of one rank's recorded run. `batch` is the number of samples per micro-step; `micro_steps`
    forward and backward passes make one step of the optimizer."""

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
    step_s: float | None = None  # a typical step without the profiler
    untraced_steps: Count | None = None  # that it is the median of

    @property
    def samples(self) -> int:
        """Samples per optimizer step."""
        return self.batch * self.micro_steps


# Beside the kinds of kernels: overhead, what an op costs however little it does; host,
# what lies between kernels; input, what comes before the first op of the network.
OVERHEAD, HOST, INPUT = "overhead", "host", "input"
Kind = Literal[KernelKind, "overhead"]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class OpPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Kernels of one kind inside one op, with their work and their share of the op's time. `flops`,
    `edge_flops` and `moved_bytes` grow with the batch, `row_flops` and `weight_bytes` do not
    (`planner.device.rates`). A format `tf32` means single precision, in tf32 where the device has it."""

    kind: Kind
    share: Amount
    launches: Amount = 0.0
    flops: Amount = 0.0
    row_flops: Amount = 0.0
    edge_flops: Amount = 0.0
    moved_bytes: Amount = 0.0
    weight_bytes: Amount = 0.0
    format: Format = "fp32"


class Exposed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of a mean step in which the device did not compute or had to wait."""

    step_s: Amount
    input_s: Amount = 0.0
    communication_s: Amount = 0.0
    idle_s: Amount = 0.0
    untraced_s: Amount | None = None


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts in a recording besides times, such as settings and the work of ops. `work` maps ops to their
    parts, `launch_s` to the seconds in which the host issued them to a separate device. `passes` of the trace
    add up to one step; None in files older than the count."""

    facts: Facts
    work: dict[str, tuple[OpPart, ...]] = {}
    exposed: Exposed | None = None
    launch_s: dict[str, Amount] = {}
    passes: Count | None = None


def host_time_share(parts: Iterable[OpPart]) -> float:
    """Fraction of an op's time that its kernels do not account for."""
    return max(1.0 - sum(part.share for part in parts), 0.0)
