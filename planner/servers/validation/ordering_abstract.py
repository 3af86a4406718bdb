"""The ordering abstract (file 004): ordering efficiency, two extreme models, and what an order brings.

`ForwardPass` is what this file and TicTac (file 001) study: forward passes of one worker at a balance of
communication and computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.device.computation import Variation
from planner.hardware.catalog import load_hardware
from planner.memoize import memoize
from planner.model.catalog import load_model
from planner.servers.ordering import measures, order
from planner.servers.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.run import RunOptions, run
from planner.simulator.step import WORKER, Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation import row
from planner.validation.row import Row, figures

GIVEN: dict[str, Any] = figures("ordering_abstract")
BEST = 0.95  # of E: 1 is the bound, which a step misses by its first transfer and last op
ALIKE = 0.01
STEPS = 200  # where only the mean counts
HOW = "simulated forward passes on private-32core-1gbe, 1 Gbit/s, one worker, at the batch where N = C"
Floats = npt.NDArray[np.float64]
_about = row.of_paper("ordering_abstract", HOW)


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass of a model on a machine and its network, at the batch that balances the two."""

    model: str
    hardware: str
    bandwidth_bytes_per_s: float

    @cached_property
    def batch(self) -> int:
        """Where downloads take as long as computation: rho is 1."""
        # A step is affine in the batch up to rounding, so that two batches tell.
        small, large = (self._computation_s(batch) for batch in (8, 64))
        return max(1, round((self.communication_s - small) / ((large - small) / 56) + 8))

    def _computation_s(self, batch: int) -> float:
        once = self._profile(batch, 1, NO_VARIATION)
        return float(once.durations_s[0, once.resource == WORKER].sum())

    def _profile(self, batch: int, steps: int, variation: Variation) -> Profile:
        model, hardware = load_model(self.model), load_hardware(self.hardware)
        return profile_for(
            model, batch, hardware, steps=steps, training=False, parsing=NO_PARSING, variation=variation
        )

    @cached_property
    def communication_s(self) -> float:
        return load_model(self.model).bytes / self.bandwidth_bytes_per_s

    @cached_property
    def profile(self) -> Profile:
        return self._profile(self.batch, 50, Variation())

    @cached_property
    def bounds(self) -> measures.Bounds:
        return measures.bounds(self.profile, self.bandwidth_bytes_per_s)

    def steps(self, strategy: str, count: int, *, seed: int = 0) -> ForwardSteps:
        """Steps under a strategy, or without order (`fifo`)."""
        policy = order(self.profile, strategy, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, seed=seed)
        cluster = Cluster.uniform(1, 1, self.bandwidth_bytes_per_s)
        result = run(self.profile, cluster, policy, "async", RunOptions(steps=count, timeline=True))
        assert result.timeline is not None
        return ForwardSteps(result.step_ends_s[0] - result.step_starts_s[0], result.timeline)

    def efficiency(self, steps: ForwardSteps) -> float:
        return measures.ordering_efficiency(steps.mean_s, self.bounds)


@dataclass(frozen=True, eq=False)
class ForwardSteps:
    """Steps of a run: how long each took, and what happened when."""

    step_s: Floats
    timeline: measures.Timeline

    @property
    def mean_s(self) -> float:
        return float(self.step_s.mean())

    def overlap(self, communication_s: float) -> Floats:
        """Alpha of every step."""
        computation_s = self.step_s - measures.idle_s(self.timeline)
        pairs = zip(computation_s, self.step_s, strict=True)
        return np.array([measures.overlap(communication_s, c, t) for c, t in pairs])


@memoize
def _forward(model: str) -> ForwardPass:
    return ForwardPass(model, GIVEN["hardware"], GIVEN["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S)


def _speedup(model: str) -> float:
    """Throughput with the simple order over that without."""
    none, ordered = (_forward(model).steps(name, STEPS).mean_s for name in ("fifo", "simple"))
    return none / ordered


def step_time() -> list[Row]:
    """Inception-v2 with and without an order."""
    given = GIVEN["step_time"]
    forward = _forward(given["model"])
    none, ordered = (forward.steps(name, GIVEN["steps"]).step_s for name in ("fifo", "simple"))
    reduction, least = 100 * (1 - float(ordered.mean() / none.mean())), given["deviation_ratio"]
    shorter = _about("step_time", "reduction", "Inception-v2: an order shortens the step by")
    what = "Inception-v2: an order narrows the standard deviation of steps"
    narrower = _about("step_time", "deviation", what)
    return [
        row.close(100 * given["reduction"], reduction, 5, unit="%", **shorter),
        row.at_least(least, float(none.std() / ordered.std()), least, unit="times", **narrower),
    ]


def speedup() -> list[Row]:
    """ResNet-152's gain in efficiency and throughput; the other models gain too."""
    given = GIVEN["speedup"]
    forward = _forward(given["model"])
    none, ordered = (forward.efficiency(forward.steps(name, STEPS)) for name in ("fifo", "simple"))
    rises = _about("speedup", "efficiency", "ResNet-152: ordering efficiency E rises by")
    faster = _about("speedup", "throughput", "ResNet-152: throughput with an order")
    rows = [
        row.close(100 * given["efficiency_gain"], 100 * (ordered - none), 20, unit="points", **rises),
        row.near(given["speedup"], _speedup(given["model"]), 0.20, unit="times", **faster),
    ]
    for model in given["others"]:
        ratio = _speedup(model)
        about = _about("speedup", model, f"{model}: throughput with an order")
        claim = "above 1.1 times"
        rows.append(row.stated("an order is faster", f"{ratio:.2f} times", ratio > 1.1, claim, **about))
    return rows


def simple() -> list[Row]:
    """The heuristic of equation 3 against one that knows costs (TAC)."""
    given = GIVEN["simple"]
    most, rows = 100 * given["within"], []
    for model in given["models"]:
        ours, complete = (_forward(model).steps(name, STEPS).mean_s for name in ("simple", "tac"))
        what = f"{model}: equation 3 is slower than an order that knows costs by"
        slower = round(100 * (ours / complete - 1), 2)
        rows.append(row.at_most(most, slower, most, unit="%", **_about("simple", model, what)))
    return rows


def extremes() -> list[Row]:
    """Of a sequence only the order of consumption is best; of parallel layers every order is."""
    given = GIVEN["extremes"]

    def efficiencies(model: str) -> tuple[float, list[float], float]:
        """E of the best order, E of random ones, and how far their steps are from the best at most."""
        forward = _forward(model)
        best = forward.steps("tac", STEPS)
        others = [forward.steps("random", 30, seed=s) for s in range(given["random_orders"])]
        apart = max(abs(other.mean_s / best.mean_s - 1) for other in others)
        return forward.efficiency(best), [forward.efficiency(other) for other in others], apart

    best, others, _ = efficiencies(given["sequence"])
    all_best, all_others, apart = efficiencies(given["parallel"])
    against = "the order of consumption against 20 random ones"

    def words(first: float, rest: list[float]) -> str:
        return f"E {first:.2f}; random orders {min(rest):.2f} to {max(rest):.2f}"

    return [
        row.stated(
            "one order is the best",
            words(best, others),
            best >= BEST and max(others) < BEST,
            f"E above {BEST:g}, others below",
            **_about("extremes", "seq32", f"Seq-32: {against}"),
        ),
        row.stated(
            "all orders are the best",
            words(all_best, all_others),
            apart <= ALIKE and min(all_others) >= BEST,
            "steps alike to 1%",
            **_about("extremes", "par32", f"Par-32: {against}"),
        ),
    ]


CHECKS = {"step_time": step_time, "speedup": speedup, "simple": simple, "extremes": extremes}
