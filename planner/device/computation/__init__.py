"""What one worker computes in a step, apart from how replicas exchange what they learn.

`Computation` is the noun: ops of one worker with their durations, and the parameters that they read and make
gradients of; no transfers, no other workers. It is made from a model and a device (`synthesis`) or from
recorded steps (`planner.device.recorded`), and every exchange (`planner.parallel.data`) lowers it to the step
that the simulator runs.

Computations made from others: several micro-batches in a step, recorded steps without their accidents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.device.precision import FP32, Precision
from planner.errors import BadInput
from planner.memoize import memoize
from planner.simulator.step import OpRole

if TYPE_CHECKING:
    from planner.model import Layer, Model
    from planner.simulator.step import Profile


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

FORWARD, BACKWARD, OTHER = OpRole.FORWARD, OpRole.BACKWARD, OpRole.OTHER
COMPUTE, RECOMPUTE, SUM, WAIT = 0, 1, 2, 3  # what an op does with its time
WORK_ROLES = {RECOMPUTE: OpRole.RECOMPUTE, SUM: OpRole.COMMUNICATION, WAIT: OpRole.BUBBLE}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One trained tensor, or the tensors of a whole unit, with the ops that use it. `readers` are the ops
    that need its value (forward, in order), `ready` is the op whose end makes its gradient (None: it gets
    none, as in inference); `block` numbers the unit of the model that it is part of, the grain in which
    sharded training gathers and frees parameters. `untrained` are the elements of variables created after it
    that are never sent, as moving averages. Where one stands for a whole unit, `matrices` are the elements of
    its large tensors. `frozen_bytes` of other tensors in the unit are read and never trained."""

    name: str
    elements: int
    readers: tuple[int, ...]
    ready: int | None
    block: int = 0
    untrained: tuple[int, ...] = ()
    matrices: tuple[int, ...] = ()
    frozen_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Structure of a computation without its durations: the cache key of lowered graphs."""

    names: tuple[str, ...]
    deps: tuple[tuple[int, ...], ...]
    parameters: tuple[Parameter, ...]
    precision: Precision
    roles: tuple[int, ...]
    layer: tuple[int, ...]
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variation:
    """Log-normal factors of mean 1 on every duration: one for the step, one for each op in each step."""

    step_sigma: float = 0.015
    op_sigma: float = 0.03

    def factors(self, steps: int, ops: int, seed: int) -> Floats:
        """Random factors by which durations vary, as an array of steps x ops."""
        if not self.step_sigma and not self.op_sigma:
            return np.ones((steps, ops))
        random = np.random.default_rng(seed)
        step = random.standard_normal((steps, 1)) * self.step_sigma - self.step_sigma**2 / 2
        op = random.standard_normal((steps, ops)) * self.op_sigma - self.op_sigma**2 / 2
        return np.asarray(np.exp(step + op))


NO_VARIATION = Variation(0.0, 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Computation:
    """Work of one worker in one step: one micro-batch forward and backward, or several. Op i has a name, a
    role (FORWARD, BACKWARD, OTHER) and a layer (an index into `layers`, -1: none); it waits for the ops in
    `deps[i]`, which come before it. All ops run on the device. `durations_s` holds one row per step.
    `optimizer_s` is what the optimizer's pass over all parameters would take on this device: whoever updates
    parameters there adds it (a share of it where they are sharded). `batch` are the samples of the step.
    `step` is the recorded step that it was taken from, `network` the model that it was made for, where they
    are known. Synthesized durations are `once_s` times factors of `variation`: an exchange that adds ops
    whose time varies likewise gives their times to `varied` and gets the durations of all ops."""

    model: str
    batch: int
    names: tuple[str, ...]
    role: npt.NDArray[np.uint8]
    layer: Ints
    layers: tuple[str, ...]
    deps: tuple[tuple[int, ...], ...]
    durations_s: Floats  # steps x ops
    parameters: tuple[Parameter, ...]
    optimizer_s: float
    blocks: tuple[str, ...] = ("",)  # names of the model's units; a parameter's `block` is an index
    precision: Precision = FP32
    device: str = ""
    hardware: str = ""
    basis: str = "measured"
    source: str = ""
    notes: tuple[str, ...] = ()
    once_s: Floats | None = None
    variation: Variation = NO_VARIATION
    seed: int = 0
    step: Profile | None = None
    work: npt.NDArray[np.uint8] | None = None  # of each op; None: all compute
    micro_batches: int = 1  # runs of ops that follow each other, each a forward and a backward pass
    buckets: bool = False  # parameters are buckets of gradients, as they were recorded
    stands_for: tuple[float, ...] = ()  # of each run, how many real ones it is as long as; empty: one each
    network: Model | None = None
    layout: object | None = None  # the same object: the same ops and parameters, whatever their times

    def __post_init__(self) -> None:
        n = self.ops
        if not n:
            raise BadInput(f"the computation of {self.model!r} has no op")
        if self.batch < 1:
            raise BadInput(f"batch is {self.batch}; a computation needs at least 1")
        if self.durations_s.ndim != 2 or self.durations_s.shape[1] != n or not len(self.durations_s):
            raise BadInput(f"durations are {self.durations_s.shape}; they must be steps x {n} ops")
        if len(self.role) != n or len(self.layer) != n or len(self.deps) != n:
            raise BadInput(f"roles, layers and dependencies must be those of {n} ops")
        if self.layout is not None:
            return  # made of ops that were checked
        if any(not 0 <= dep < op for op, waits in enumerate(self.deps) for dep in waits):
            raise BadInput("the ops of a computation must come after those they wait for")
        for parameter in self.parameters:
            if any(not 0 <= op < n for op in (*parameter.readers, parameter.ready or 0)):
                raise BadInput(f"parameter {parameter.name!r} points outside the computation")

    @property
    def ops(self) -> int:
        """Number of ops."""
        return len(self.names)

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.durations_s)

    @property
    def elements(self) -> int:
        """Number of elements of all parameters."""
        return sum(parameter.elements for parameter in self.parameters)

    @cached_property
    def op_roles(self) -> npt.NDArray[np.uint8]:
        """Role of each op in a step breakdown; recompute, sums and waits have roles of their own."""
        roles = self.role.copy()
        if self.work is not None:
            for work, role in WORK_ROLES.items():
                roles[self.work == work] = role
        return roles

    @cached_property
    def shape(self) -> Shape:
        """Names, dependencies, roles and parameters without durations, as a cache key."""
        columns = tuple(self.op_roles.tolist()), tuple(self.layer.tolist())
        return Shape(self.names, self.deps, self.parameters, self.precision, *columns, self.layers)

    def vary_durations(self, once_s: Sequence[float] | Floats) -> Floats:
        """Random durations in seconds, as steps x ops, from the durations of one step."""
        once = np.asarray(once_s, np.float64)
        return once * self.variation.factors(self.steps, len(once), self.seed)


@memoize
def chain_deps(ops: int) -> tuple[tuple[int, ...], ...]:
    """Dependencies of ops that run one after another, each on the one before; cached."""
    return ((), *((at,) for at in range(ops - 1)))


def unit_name(layer: Layer) -> str:
    """Name of the unit that a layer belongs to: its block, else its scope, else the layer before it."""
    return layer.block or layer.scope or layer.follows or layer.name


def layout_key(computation: Computation) -> object:
    """Cache key shared by all computations with the same ops and parameters, whatever their durations."""
    return computation.layout or computation


DEFAULT_STEPS = 20  # of a computation that nobody has recorded
MOST_RUNS = 3
ROWS = 64  # steps that stand for a distribution of durations


def repeat_passes(computation: Computation, micro_batches: int, most: int = MOST_RUNS) -> Computation:
    """Repeats the forward and backward pass for each micro-batch before the optimizer. Beyond `most`
    passes, the first and the last stay as they are, because exchanges overlap with them, and `most - 2`
    longer ones represent the rest. Where collectives run in every pass they are longer by the same factor;
    only what is exposed at the ends of a pass, one unit's collective, is counted too often. The pipeline's
    wait is per step and divided among its micro-batches."""
    if micro_batches < 1:
        raise BadInput(f"accumulate is {micro_batches}; a step has at least one micro-batch")
    if micro_batches == 1:
        return computation
    if computation.micro_batches > 1:
        raise BadInput("micro-batches of a step that is made of several already cannot be repeated")
    times = min(micro_batches, most)
    longer = (micro_batches - 2) / (times - 2) if times > 2 else 1.0
    scale = (1.0, *(longer,) * (times - 2), 1.0)
    n = computation.ops
    last = (times - 1) * n
    parameters = tuple(
        replace(
            parameter,
            readers=tuple(at * n + op for at in range(times) for op in parameter.readers),
            ready=None if parameter.ready is None else last + parameter.ready,
        )
        for parameter in computation.parameters
    )
    deps = tuple(
        tuple(at * n + dep for dep in waits) or ((at * n - 1,) if at else ())  # after the pass before
        for at in range(times)
        for waits in computation.deps
    )
    each = np.repeat(scale, n)
    if computation.work is not None:
        each = np.where(np.tile(computation.work == WAIT, times), each / micro_batches, each)
    once_s = None if computation.once_s is None else np.tile(computation.once_s, times) * each
    if once_s is None:  # pass k of step i takes the durations of recorded step i + k
        rows = [np.roll(computation.durations_s, -at, axis=0) for at in range(times)]
        durations_s = np.concatenate(rows, axis=1) * each
    else:
        durations_s = computation.vary_durations(once_s)
    return replace(
        computation,
        batch=computation.batch * micro_batches,
        names=tuple(f"{name}#{at}" for at in range(times) for name in computation.names),
        role=np.tile(computation.role, times),
        layer=np.tile(computation.layer, times),
        work=None if computation.work is None else np.tile(computation.work, times),
        deps=deps,
        durations_s=durations_s,
        parameters=parameters,
        once_s=once_s,
        micro_batches=times,
        stands_for=scale,
        step=None,
        layout=None,
    )


def median_steps(
    computation: Computation, variation: Variation = NO_VARIATION, *, steps: int = ROWS, seed: int = 0
) -> Computation:
    """Replaces recorded steps by steps of median op times, varied at random by `variation`. Few steps, some
    disturbed by the recording, say little about how steps vary."""
    once_s = np.median(computation.durations_s, axis=0)
    rows = steps if variation.step_sigma or variation.op_sigma else 1
    return replace(
        computation,
        durations_s=once_s * variation.factors(rows, len(once_s), seed),
        once_s=once_s,
        variation=variation,
        seed=seed,
        step=None,
    )
