"""Forward passes of one worker at a balance of communication and computation, as files 001 and 004 study."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.hardware import Hardware
from planner.hardware.catalog import load_hardware
from planner.model import Model
from planner.model.catalog import load_model
from planner.servers.ordering import measures, order
from planner.servers.synthesis import NO_PARSING, NO_VARIATION, profile_for
from planner.simulator.cluster import Cluster
from planner.simulator.policy import Policy
from planner.simulator.run import RunOptions, run
from planner.simulator.step import WORKER, Profile

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
        once = _forward(model, batch, hardware, steps=1)
        return float(once.durations_s[0, once.resource == WORKER].sum())

    @cached_property
    def communication_s(self) -> float:
        return load_model(self.model).bytes / self.bandwidth_bytes_per_s

    @cached_property
    def profile(self) -> Profile:
        return _forward(load_model(self.model), self.batch, load_hardware(self.hardware), STEPS_OF_PROFILE)

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


def _forward(model: Model, batch: int, hardware: Hardware, steps: int) -> Profile:
    if steps == 1:
        return profile_for(
            model, batch, hardware, training=False, steps=1, parsing=NO_PARSING, variation=NO_VARIATION
        )
    return profile_for(model, batch, hardware, training=False, steps=steps, parsing=NO_PARSING)
