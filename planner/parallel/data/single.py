"""Alone: one device, which computes, updates its own parameters and exchanges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from planner.device.computation import Computation
from planner.device.memory import Shares
from planner.device.precision import Precision
from planner.errors import BadInput, PlannerError
from planner.model import Model
from planner.note import Note, Topic
from planner.parallel.data import Exchange, Job, Labels, RequestedSettings
from planner.parallel.plan import Site
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Fifo
from planner.simulator.step import WORKER, Op, OpRole, Profile

if TYPE_CHECKING:
    from planner.parallel.data import Floats
    from planner.simulator.simulate import Case


@dataclass(frozen=True, slots=True)
class Alone(Exchange):
    """The baseline of every other strategy: one device with the whole model."""

    kind: ClassVar[str] = "alone"

    @classmethod
    def candidates(cls, asked: RequestedSettings, site: Site, model: Model) -> Iterator[Self]:
        """Yields the strategy on sites with a single worker."""
        if site.workers == 1:
            yield cls()

    def infeasibility(
        self, site: Site | None, model: Model | None = None, batch: int = 1
    ) -> PlannerError | None:
        """Error if a site has several workers; None if it has one."""
        if site is None or site.workers == 1:
            return None
        return BadInput(f"{site.workers} workers do not train alone; take --workers 1 or another --exchange")

    def memory_shares(self, model: Model, precision: Precision, site: Site) -> Shares:
        """Shares of the only worker: everything."""
        return Shares()

    def lower(self, computation: Computation, site: Site) -> Case:
        """Lowers a step: computation, then the optimizer."""
        from planner.simulator.simulate import Case

        ops = [
            Op(name, WORKER, deps=computation.deps[op], role=role)
            for op, (name, role) in enumerate(
                zip(computation.names, computation.op_roles.tolist(), strict=True)
            )
        ]
        durations_s = computation.durations_s
        if computation.optimizer_s:
            made = {parameter.ready for parameter in computation.parameters if parameter.ready is not None}
            ops.append(Op("optimizer", WORKER, deps=tuple(sorted(made)), role=OpRole.OPTIMIZER))
            spent_s = np.full((computation.steps, 1), computation.optimizer_s)
            durations_s = np.hstack([durations_s, spent_s])
        profile = Profile.build(
            ops,
            durations_s,
            model=computation.model,
            batch=computation.batch,
            servers=0,
            hardware=computation.hardware,
            basis=computation.basis,
            source=computation.source,
            notes=computation.notes,
        )
        nowhere = Node(1.0, 1.0, site.hardware.name)  # nothing crosses its NIC
        cluster = Cluster(nodes=(nowhere,), worker_nodes=(0,), server_nodes=())
        return Case(profile=profile, cluster=cluster, policy=Fifo())

    @classmethod
    def bounds(cls, jobs: Sequence[Job]) -> Floats:
        """Samples per step divided by the mean step time, as ops run one after another."""
        steps = [job.step for job in jobs]
        steps_s = [float(step.durations_s.sum(axis=1).mean()) + step.optimizer_s for step in steps]
        return np.array([step.batch for step in steps], np.float64) / np.array(steps_s, np.float64)

    def labels(self, site: Site | None = None) -> Labels:
        """Texts on a single device."""
        return Labels(
            cell="alone",
            run="{} alone",
            aside=" alone",
            plan="one device, which updates its parameters itself",
            assumptions=(Note(Topic.TRAINING, "on one device, without any exchange of gradients."),),
        )
