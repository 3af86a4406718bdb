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

from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.memoize import memoize
from planner.model import Model
from planner.model.catalog import load_model
from planner.servers.ordering import measures, order
from planner.servers.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.step import WORKER, Profile
from planner.units import GBIT_BYTES_PER_S
from planner.validation import row
from planner.validation.row import Row, figures

STEPS_OF_PROFILE = 50
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass of a model on a machine and its network, at the batch that balances the two."""

    model: str
    hardware: str
    bandwidth_bytes_per_s: float

    @cached_property
    def batch(self) -> int:
        """Where downloads take as long as computation: rho is 1."""
        model, hardware = load_model(self.model), load_hardware(self.hardware)
        # A step is affine in the batch up to rounding, so that two batches tell.
        small, large = (self._computation_s(model, hardware, batch) for batch in (8, 64))
        slope = (large - small) / 56
        wanted = (self.communication_s - small) / slope + 8
        return max(1, round(wanted))

    def _computation_s(self, model: Model, hardware: Hardware, batch: int) -> float:
        once = _forward_profile(model, batch, hardware, steps=1)
        return float(once.durations_s[0, once.resource == WORKER].sum())

    @cached_property
    def communication_s(self) -> float:
        return load_model(self.model).bytes / self.bandwidth_bytes_per_s

    @cached_property
    def profile(self) -> Profile:
        return _forward_profile(
            load_model(self.model), self.batch, load_hardware(self.hardware), STEPS_OF_PROFILE
        )

    @cached_property
    def bounds(self) -> measures.Bounds:
        return measures.bounds(self.profile, self.bandwidth_bytes_per_s)

    def steps(self, strategy: str, count: int, *, seed: int = 0) -> ForwardSteps:
        """Steps under a strategy, or without order (`fifo`)."""
        policy = order(self.profile, strategy, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, seed=seed)
        return self.steps_under(policy, count)

    def steps_under(self, policy: Policy, count: int) -> ForwardSteps:
        result = run(
            self.profile,
            Cluster.uniform(1, 1, self.bandwidth_bytes_per_s),
            policy,
            "async",
            RunOptions(steps=count, timeline=True),
        )
        assert result.timeline is not None
        step_s = result.step_ends_s[0] - result.step_starts_s[0]
        return ForwardSteps(step_s, step_s - measures.idle_s(result.timeline), result.timeline)


@dataclass(frozen=True, eq=False)
class ForwardSteps:
    """Steps of a run: how long each took and how long its worker computed."""

    step_s: Floats
    computation_s: Floats
    timeline: measures.Timeline

    def overlap(self, communication_s: float) -> Floats:
        """Alpha of every step."""
        pairs = zip(self.computation_s, self.step_s, strict=True)
        return np.array([measures.overlap(communication_s, c, t) for c, t in pairs])


def _forward_profile(model: Model, batch: int, hardware: Hardware, steps: int) -> Profile:
    if steps == 1:
        return profile_for(
            model, batch, hardware, training=False, steps=1, parsing=NO_PARSING, variation=NO_VARIATION
        )
    return profile_for(model, batch, hardware, training=False, steps=steps, parsing=NO_PARSING)


GIVEN: dict[str, Any] = figures("ordering_abstract")
BEST = 0.95  # of E: 1 is the bound, which a step misses by its first transfer and last op
ALIKE = 0.01
STEPS = 200  # where only the mean counts
HOW = "simulated forward passes on private-32core-1gbe, 1 Gbit/s, one worker, at the batch where N = C"
_about = row.of_paper("ordering_abstract", HOW)


@memoize
def _forward(model: str) -> ForwardPass:
    return ForwardPass(model, GIVEN["hardware"], GIVEN["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S)


def _efficiency(forward: ForwardPass, steps: ForwardSteps) -> float:
    return measures.ordering_efficiency(float(steps.step_s.mean()), forward.bounds)


def step_time() -> list[Row]:
    """Inception-v2 with and without an order."""
    given = GIVEN["step_time"]
    forward = _forward(given["model"])
    none, ordered = (forward.steps(name, GIVEN["steps"]).step_s for name in ("fifo", "simple"))
    return [
        row.close(
            100 * given["reduction"],
            100 * (1 - float(ordered.mean() / none.mean())),
            5,
            unit="%",
            **_about("step_time", "reduction", "Inception-v2: an order shortens the step by"),
        ),
        row.at_least(
            given["deviation_ratio"],
            float(none.std() / ordered.std()),
            given["deviation_ratio"],
            unit="times",
            **_about(
                "step_time", "deviation", "Inception-v2: an order narrows the standard deviation of steps"
            ),
        ),
    ]


def speedup() -> list[Row]:
    """ResNet-152's gain in efficiency and throughput; the other models gain too."""
    given = GIVEN["speedup"]
    forward = _forward(given["model"])
    none, ordered = (forward.steps(name, STEPS) for name in ("fifo", "simple"))
    rows = [
        row.close(
            100 * given["efficiency_gain"],
            100 * (_efficiency(forward, ordered) - _efficiency(forward, none)),
            20,
            unit="points",
            **_about("speedup", "efficiency", "ResNet-152: ordering efficiency E rises by"),
        ),
        row.near(
            given["speedup"],
            float(none.step_s.mean() / ordered.step_s.mean()),
            0.20,
            unit="times",
            **_about("speedup", "throughput", "ResNet-152: throughput with an order"),
        ),
    ]
    for model in given["others"]:
        other = _forward(model)
        ratio = float(other.steps("fifo", STEPS).step_s.mean() / other.steps("simple", STEPS).step_s.mean())
        rows.append(
            row.stated(
                "an order is faster",
                f"{ratio:.2f} times",
                ratio > 1.1,
                "above 1.1 times",
                **_about("speedup", model, f"{model}: throughput with an order"),
            )
        )
    return rows


def simple() -> list[Row]:
    """The heuristic of equation 3 against one that knows costs (TAC)."""
    given = GIVEN["simple"]
    rows = []
    for model in given["models"]:
        forward = _forward(model)
        ours, complete = (forward.steps(name, STEPS).step_s.mean() for name in ("simple", "tac"))
        rows.append(
            row.at_most(
                100 * given["within"],
                round(100 * (float(ours / complete) - 1), 2),
                100 * given["within"],
                unit="%",
                **_about("simple", model, f"{model}: equation 3 is slower than an order that knows costs by"),
            )
        )
    return rows


def extremes() -> list[Row]:
    """Of a sequence only the order of consumption is best; of parallel layers every order is."""
    given = GIVEN["extremes"]

    def found(model: str) -> tuple[float, list[float], list[float]]:
        """E of the best order, E of random ones, and their steps relative to the best."""
        forward = _forward(model)
        best = forward.steps("tac", STEPS)
        some = [forward.steps("random", 30, seed=s) for s in range(given["random_orders"])]
        relative = [float(entry.step_s.mean() / best.step_s.mean()) for entry in some]
        return _efficiency(forward, best), [_efficiency(forward, entry) for entry in some], relative

    best, others, _ = found(given["sequence"])
    parallel_best, parallel, relative = found(given["parallel"])
    spread = float(np.max(np.abs(np.array(relative) - 1)))
    return [
        row.stated(
            "one order is the best",
            f"E {best:.2f}; random orders {min(others):.2f} to {max(others):.2f}",
            best >= BEST and max(others) < BEST,
            f"E above {BEST:g}, others below",
            **_about("extremes", "seq32", "Seq-32: the order of consumption against 20 random ones"),
        ),
        row.stated(
            "all orders are the best",
            f"E {parallel_best:.2f}; random orders {min(parallel):.2f} to {max(parallel):.2f}",
            spread <= ALIKE and min(parallel) >= BEST,
            "steps alike to 1%",
            **_about("extremes", "par32", "Par-32: the order of consumption against 20 random ones"),
        ),
    ]


CHECKS = {"step_time": step_time, "speedup": speedup, "simple": simple, "extremes": extremes}
