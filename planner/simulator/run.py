"""One simulated run: what can be chosen, what comes out, and the function that performs it.

A run is one sample path: statistics over several runs live elsewhere. `run` hands the same prepared inputs
either to the compiled engine or to `reference.py`; both give the same events at the same times.

Only the main thread is told of Ctrl-C. The engine calls `raise_if_stopped` every few hundredths of a second;
simulations in other threads are given an event with `call_stoppable` and end once it is set.

Random numbers are SplitMix64's (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
2014), one stream per (seed, run, worker): the state grows by a constant and a finalizer scrambles it. The
engine has the same few lines in C++, so both draw the same. A worker draws at the start of each of its steps
only, in this order: which measured step it is; if the profile has no order, a shuffle of its transfers; if
shares are uneven, a normal number for each flow that has a weight (with several servers downloads by server;
then uploads by server). So what a worker draws depends on nothing that others do.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterable, MutableSequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput, PlannerWarning
from planner.memoize import memoize
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Joins, Mode, Policy, mode_joins
from planner.simulator.step import Profile

if TYPE_CHECKING:
    from planner.simulator.inputs import Inputs

T = TypeVar("T")
_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


def raise_if_stopped() -> None:
    """Raises CancelledError if the simulations of this thread were stopped."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise CancelledError("the simulation was stopped")


def call_stoppable(stop: threading.Event, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls a function whose simulations end when the event `stop` is set."""
    token = _stop.set(stop)
    try:
        raise_if_stopped()
        return function(*args, **kwargs)
    finally:
        _stop.reset(token)


Path = Literal["engine", "reference"]
MAX_SIGMA = 3.0

# One row for each chunk that ended: it takes its turn at start_s, its bytes flow from flow_s (the same unless
# the policy has an overhead), and it is over at end_s. Compute ops are one chunk of 0 bytes.
TIMELINE_DTYPE = np.dtype(
    [
        ("worker", np.int32),
        ("resource", np.int32),
        ("server", np.int32),
        ("op", np.int32),
        ("step", np.int32),
        ("bytes", np.float64),
        ("start_s", np.float64),
        ("flow_s", np.float64),
        ("end_s", np.float64),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run that are not part of the plan: its length, seed and limits. `until`: "first" cuts the
    run when the first worker has done its `steps`, so that all workers compete to the end; "all" lets every
    worker finish. Integrals (busy times, bytes) count from the moment when every worker has finished
    `warmup_steps`. `start_offsets_s` delays the first step of each worker. `fairness_sigma`: how unevenly TCP
    divides a port where flows of several senders meet. In every step each worker draws a log-normal weight of
    this sigma for each of its flows: one for uploads on each channel and, with several channels, one for
    downloads on each (a lone server's NIC is shared evenly). Joint ops draw none. 0 means equal shares.
    `server_cores` limits how many updates a server runs at once, whatever the cores of its node (None: as
    many as the node's cores allow). `local_bytes_per_s` is the rate of a channel whose ends are one node
    (infinite: instantly)."""

    seed: int = 0
    run: int = 0
    steps: int = 100
    until: Literal["first", "all"] = "first"
    warmup_steps: int = 0
    start_offsets_s: tuple[float, ...] = ()
    fairness_sigma: float = 0.0
    server_cores: int | None = None
    local_bytes_per_s: float = math.inf
    max_events: int | None = None
    max_time_s: float = math.inf
    timeline: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.seed < 2**64 and 0 <= self.run < 2**64):
            raise BadInput(f"seed {self.seed} and run {self.run} must be whole numbers from 0 to 2**64 - 1")
        if self.steps < 1:
            raise BadInput(f"a run needs at least one step, not {self.steps}")
        if not 0 <= self.warmup_steps < self.steps:
            raise BadInput(f"warmup_steps is {self.warmup_steps}; it must be below the {self.steps} steps")
        if any(not (math.isfinite(offset) and offset >= 0) for offset in self.start_offsets_s):
            raise BadInput("start offsets must be finite and not negative")
        if not 0 <= self.fairness_sigma <= MAX_SIGMA:  # beyond, sums of weights lose the small ones
            raise BadInput(f"fairness_sigma is {self.fairness_sigma}; it must lie in 0 to {MAX_SIGMA:g}")
        if self.server_cores is not None and self.server_cores < 1:
            raise BadInput(f"server_cores is {self.server_cores}; a server needs at least one")
        if not self.local_bytes_per_s > 0:
            raise BadInput("local_bytes_per_s must be above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Times and integrals of a run. Integrals run from `measured_from_s` to `end_s`. `staleness[w][k]`: how
    many steps the other workers completed between the start and the end of step k of worker w (0 in lockstep,
    where gradients are never stale). `link_bytes[d, w, c]`: bytes that flowed on channel c of worker w, d = 0
    down, 1 up; those of a joint op flow on its leader's. `stopped` says what ended the run."""

    step_starts_s: tuple[npt.NDArray[np.float64], ...]
    step_ends_s: tuple[npt.NDArray[np.float64], ...]
    staleness: tuple[npt.NDArray[np.int32], ...]
    end_s: float
    measured_from_s: float
    worker_busy_s: npt.NDArray[np.float64]  # (workers,)
    ps_busy_s: npt.NDArray[np.float64]  # (workers, channels)
    host_busy_s: npt.NDArray[np.float64]  # (workers,)
    link_bytes: npt.NDArray[np.float64]  # (2, workers, channels)
    events: int  # chunks that ended; on "run-ahead", those at the very instant of the cut may be missing
    stopped: Literal["steps", "time", "events"]
    path: str  # "reference", "lockstep"; of the engine "[lazy |run-ahead |unison ]virtual time|max-min"
    timeline: npt.NDArray[Any] | None = None  # of TIMELINE_DTYPE, in the order of ends


def run(
    profile: Profile,
    cluster: Cluster,
    policy: Policy,
    mode: Mode = "async",
    options: RunOptions | None = None,
    *,
    joins: Joins | None = None,
    path: Path = "engine",
) -> RunResult:
    """Simulates one sample path of `profile` on `cluster`; `joins` follow from `mode` unless given."""
    return run_all(profile, cluster, policy, mode, [options or RunOptions()], joins=joins, path=path)[0]


def run_all(
    profile: Profile,
    cluster: Cluster,
    policy: Policy,
    mode: Mode,
    options: Iterable[RunOptions],
    *,
    joins: Joins | None = None,
    path: Path = "engine",
) -> list[RunResult]:
    """Simulates one run per entry of `options`, checking the inputs once for runs with equal arrays."""
    from planner.simulator.inputs import inputs_for_rerun, prepare_inputs

    if path == "reference":
        from planner.simulator.reference import run
    else:
        run = run_with_engine

    joins = joins or mode_joins(profile, mode)
    inputs, results = None, []
    for option in options:
        raise_if_stopped()  # a short run ends before the engine asks
        inputs = inputs and inputs_for_rerun(inputs, option)
        inputs = inputs or prepare_inputs(profile, cluster, policy, joins, option)
        results.append(run(inputs))
    return results


@memoize  # one warning is enough
def _load_engine() -> Callable[[Inputs, Callable[[], None]], dict[str, Any]] | None:
    """`run` function of the compiled engine; None if it is not installed."""
    try:
        from planner.simulator._engine import run as engine_run
    except ImportError as error:
        warnings.warn(
            f"the compiled engine is not installed ({error}): simulations run in Python, with equal results "
            "and up to a hundred times slower; to have it, `pip install .` where Python's headers are, and "
            "start planner outside the checkout or with PYTHONSAFEPATH=1",
            PlannerWarning,
            stacklevel=3,
        )
        return None
    return engine_run


def run_with_engine(inputs: Inputs) -> RunResult:
    """Runs the compiled engine; without it, `lockstep.run` or `reference.run`."""
    engine_run = _load_engine()
    if engine_run is None:
        from planner.simulator import lockstep, reference

        return lockstep.run(inputs) or reference.run(inputs)
    try:
        raw = engine_run(inputs, raise_if_stopped)
    except ValueError as error:
        raise BadInput(f"{error}; path='reference' has no such limit") from None
    used, timeline = raw.pop("used").reshape(inputs.cluster.workers, -1), raw.pop("timeline")
    steps: dict[str, Any] = {
        name: tuple(raw.pop(name)) for name in ("step_starts_s", "step_ends_s", "staleness")
    }
    table = None if timeline is None else np.frombuffer(timeline, TIMELINE_DTYPE)
    return RunResult(**raw, **steps, **integrals_by_resource(used), timeline=table)


def integrals_by_resource(used: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Busy seconds and bytes of a `RunResult`, from the use of each worker's lanes. Lanes: downlinks,
    computation, uplinks, servers, host."""
    channels = used.shape[1] // 3
    down, worker, up, servers, host = np.split(used, np.cumsum([channels, 1, channels, channels]), axis=1)
    return {
        "worker_busy_s": worker[:, 0],
        "ps_busy_s": servers,
        "host_busy_s": host[:, 0],
        "link_bytes": np.stack([down, up]),
    }


_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(value: int) -> int:
    """Output of the SplitMix64 generator for the state `value + golden`."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Generator:
    """Random number stream of one worker in one run."""

    def __init__(self, seed: int, run: int, worker: int) -> None:
        self.state = splitmix64((splitmix64((splitmix64(seed & _MASK) + run) & _MASK) + worker) & _MASK)

    def next(self) -> int:
        """Random 64-bit integer."""
        value = splitmix64(self.state)
        self.state = (self.state + _GOLDEN) & _MASK
        return value

    def below(self, n: int) -> int:
        """Random integer from 0 to n - 1 (n < 2**32; the bias is below n / 2**32)."""
        return ((self.next() >> 32) * n) >> 32

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffles in place, from the last item down (Fisher and Yates)."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def normal(self) -> float:
        """Random number with a standard normal distribution (Box and Muller, the cosine half)."""
        u = ((self.next() >> 11) + 1) * 2.0**-53
        v = (self.next() >> 11) * 2.0**-53
        return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)

    def weight(self, sigma: float) -> float:
        """Random log-normal weight, from 2**-20 to 2**20 in steps of 2**-20: sums are exact in any order."""
        scaled = math.floor(math.exp(sigma * self.normal()) * 2.0**20 + 0.5)
        return min(max(scaled, 1), 2**40) * 2.0**-20
