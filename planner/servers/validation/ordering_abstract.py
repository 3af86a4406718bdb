"""Checks of the ordering abstract (Hashemi et al., 2018): ordering efficiency, extreme models, order gains.

`ForwardPass` is what this file and TicTac study: forward passes of one worker at a balance of
communication and computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.device.computation import Variation
from planner.hardware.catalog import load_hardware
from planner.memoize import memoize
from planner.model.catalog import load_model
from planner.servers import orders
from planner.servers.ordering import schedule
from planner.servers.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.run import RunOptions, run
from planner.simulator.step import WORKER, Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation.row import Paper, Row, Section

BEST = 0.95  # of E: 1 is the bound, which a step misses by its first transfer and last op
ALIKE = 0.01
STEPS = 200  # where only the mean counts
HOW = "simulated forward passes on private-32core-1gbe, 1 Gbit/s, one worker, at the batch where N = C"
Floats = npt.NDArray[np.float64]
PAPER = Paper("ordering_abstract", HOW)
GIVEN, CHECKS = PAPER.figures, PAPER.checks


@dataclass(frozen=True)
class ForwardPass:
    """Forward pass of a model on a machine, at the batch where downloads take as long as computation."""

    model: str
    hardware: str
    bandwidth_bytes_per_s: float

    @cached_property
    def batch(self) -> int:
        """Batch at which downloads take as long as computation (rho is 1)."""
        # A step is affine in the batch up to rounding, so that two batches tell.
        small, large = (self._computation_s(batch) for batch in (8, 64))
        return max(1, round((self.communication_s - small) / ((large - small) / 56) + 8))

    def _computation_s(self, batch: int) -> float:
        """Computation seconds of a forward step at a batch."""
        once = self._profile(batch, 1, NO_VARIATION)
        return float(once.durations_s[0, once.resource == WORKER].sum())

    def _profile(self, batch: int, steps: int, variation: Variation) -> Profile:
        """Synthesized profile of forward steps at a batch."""
        model, hardware = load_model(self.model), load_hardware(self.hardware)
        return profile_for(
            model, batch, hardware, steps=steps, training=False, parsing=NO_PARSING, variation=variation
        )

    @cached_property
    def communication_s(self) -> float:
        """Seconds to download all parameters."""
        return load_model(self.model).bytes / self.bandwidth_bytes_per_s

    @cached_property
    def profile(self) -> Profile:
        """Synthesized profile of 50 varying forward steps."""
        return self._profile(self.batch, 50, Variation())

    @cached_property
    def bounds(self) -> orders.Bounds:
        """Lower and upper bounds of a forward step."""
        return orders.step_bounds(self.profile, self.bandwidth_bytes_per_s)

    def steps(self, strategy: str, count: int, *, seed: int = 0) -> ForwardSteps:
        """Simulates forward steps under a strategy; `fifo` means no order."""
        bandwidth = self.bandwidth_bytes_per_s
        policy = schedule(self.profile, strategy, bandwidth_bytes_per_s=bandwidth, seed=seed).policy
        cluster = Cluster.uniform(1, 1, bandwidth)
        result = run(self.profile, cluster, policy, "async", RunOptions(steps=count, timeline=True))
        assert result.timeline is not None
        return ForwardSteps(result.step_ends_s[0] - result.step_starts_s[0], result.timeline)

    def efficiency(self, steps: ForwardSteps) -> float:
        """Ordering efficiency of the mean simulated step."""
        return orders.ordering_efficiency(steps.mean_s, self.bounds)


@dataclass(frozen=True, eq=False)
class ForwardSteps:
    """Simulated steps: seconds of each, and their timeline."""

    step_s: Floats
    timeline: orders.Timeline

    @property
    def mean_s(self) -> float:
        """Mean step time in seconds."""
        return float(self.step_s.mean())

    def overlap(self, communication_s: float) -> Floats:
        """Overlap coefficient (alpha) of each step."""
        computation_s = self.step_s - orders.idle_s(self.timeline)
        pairs = zip(computation_s, self.step_s, strict=True)
        return np.array([orders.overlap_coefficient(communication_s, c, t) for c, t in pairs])


@memoize
def _forward_pass(model: str) -> ForwardPass:
    """Forward pass of a model on the paper's machine and link."""
    return ForwardPass(model, GIVEN["hardware"], GIVEN["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S)


def _speedup(model: str) -> float:
    """Throughput under the paper's heuristic divided by throughput without an order."""
    none, ordered = (_forward_pass(model).steps(name, STEPS).mean_s for name in ("fifo", "simple"))
    return none / ordered


@PAPER.check()
def check_step_time(section: Section) -> Iterator[Row]:
    """Yields rows comparing the step time of Inception-v2 with and without an order."""
    given = section.figures
    forward = _forward_pass(given["model"])
    none, ordered = (forward.steps(name, GIVEN["steps"]).step_s for name in ("fifo", "simple"))
    reduction, least = 100 * (1 - float(ordered.mean() / none.mean())), given["deviation_ratio"]
    what = "Inception-v2: an order shortens the step by"
    yield section.close("reduction", what, 100 * given["reduction"], reduction, 5, unit="%")
    what = "Inception-v2: an order narrows the standard deviation of steps"
    yield section.at_least("deviation", what, least, float(none.std() / ordered.std()), least, unit="times")


@PAPER.check()
def check_speedup(section: Section) -> Iterator[Row]:
    """Yields rows comparing ResNet-152's gains with the paper's, and checking that other models gain too."""
    given = section.figures
    forward = _forward_pass(given["model"])
    none, ordered = (forward.efficiency(forward.steps(name, STEPS)) for name in ("fifo", "simple"))
    published, gain = 100 * given["efficiency_gain"], 100 * (ordered - none)
    what = "ResNet-152: ordering efficiency E rises by"
    yield section.close("efficiency", what, published, gain, 20, unit="points")
    what, ours = "ResNet-152: throughput with an order", _speedup(given["model"])
    yield section.near("throughput", what, given["speedup"], ours, 0.20, unit="times")
    for model in given["others"]:
        what, ours = f"{model}: throughput with an order", _speedup(model)
        yield section.stated(
            model, what, "an order is faster", f"{ours:.2f} times", ours > 1.1, "above 1.1 times"
        )


@PAPER.check()
def check_simple(section: Section) -> Iterator[Row]:
    """Yields rows comparing the heuristic of equation 3 with TAC, which knows the costs."""
    most = 100 * section.figures["within"]
    for model in section.figures["models"]:
        ours, complete = (_forward_pass(model).steps(name, STEPS).mean_s for name in ("simple", "tac"))
        what = f"{model}: equation 3 is slower than an order that knows costs by"
        yield section.at_most(model, what, most, round(100 * (ours / complete - 1), 2), most, unit="%")


@PAPER.check()
def check_extremes(section: Section) -> Iterator[Row]:
    """Yields rows comparing the efficiency of orders for a chain of layers with that for parallel layers."""
    given = section.figures

    def efficiencies(model: str) -> tuple[float, list[float], str, float]:
        """TAC's efficiency, those of random orders, both as text, and the largest gap in step time."""
        forward = _forward_pass(model)
        best = forward.steps("tac", STEPS)
        others = [forward.steps("random", 30, seed=s) for s in range(given["random_orders"])]
        first, rest = forward.efficiency(best), [forward.efficiency(other) for other in others]
        words = f"E {first:.2f}; random orders {min(rest):.2f} to {max(rest):.2f}"
        return first, rest, words, max(abs(other.mean_s / best.mean_s - 1) for other in others)

    against = "the order of consumption against 20 random ones"
    best, others, words, _ = efficiencies(given["sequence"])
    holds, claim = best >= BEST and max(others) < BEST, f"E above {BEST:g}, others below"
    yield section.stated("seq32", f"Seq-32: {against}", "one order is the best", words, holds, claim)
    _, others, words, apart = efficiencies(given["parallel"])
    holds, claim = apart <= ALIKE and min(others) >= BEST, "steps alike to 1%"
    yield section.stated("par32", f"Par-32: {against}", "all orders are the best", words, holds, claim)
