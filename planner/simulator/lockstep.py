"""All workers in lockstep without the engine: each op is one vector over the workers.

Where every worker computes the same ops one after the other, and everything else is joint among all of them,
as in DDP and FSDP, a joint op begins when the last worker is ready, and nobody sees when any other is. So the
end of an op is one event, that of the last worker (of several at one instant the highest, as workers go in
order): the reference simulates the lanes of the first worker, and times of computation are vectors.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from planner.simulator.inputs import Inputs
from planner.simulator.reference import Lane, ReferenceSimulation, Worker
from planner.simulator.run import Generator, RunResult
from planner.simulator.step import WORKER

Floats = npt.NDArray[np.float64]


def run(inputs: Inputs) -> RunResult | None:
    """Simulates synchronous workers as vectors; returns None unless the case has a single compute order."""
    options, profile = inputs.options, inputs.profile
    limited = options.timeline or options.max_events is not None or math.isfinite(options.max_time_s)
    if inputs.cluster.workers < 2 or options.until != "all" or len(inputs.pool_cores) or limited:
        return None
    own = profile.resource == WORKER
    scopes = set(profile.scope[~own].tolist())
    if inputs.gated.any() or (inputs.awaits >= 0).any() or not scopes or min(scopes) < 0:
        return None
    if any(inputs.leaders[scope].any() for scope in scopes):
        return None
    order = compute_order(inputs)
    return LockstepSimulation(inputs, order).run() if order else None


def compute_order(inputs: Inputs) -> list[int]:
    """Computation ops in the only order that dependencies allow; empty if there are several."""
    start, index = inputs.dependent_start.tolist(), inputs.dependent_index.tolist()
    computes, waiting = (inputs.profile.resource == WORKER).tolist(), inputs.waiting.tolist()
    order: list[int] = []
    ready: tuple[list[int], list[int]] = ([], [])  # other ops, computation
    for op in inputs.roots.tolist():
        ready[computes[op]].append(op)
    while ready[0] or ready[1]:
        if not ready[0]:
            if len(ready[1]) > 1:
                return []
            order.append(ready[1][0])
        op = ready[not ready[0]].pop()
        for dependent in index[start[op] : start[op + 1]]:
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                ready[computes[dependent]].append(dependent)
    return order


def inputs_of_first_worker(inputs: Inputs) -> Inputs:
    """Inputs reduced to worker 0, whose lanes run the ops that all workers share."""
    cluster = inputs.cluster
    alone = replace(
        cluster,
        worker_nodes=cluster.worker_nodes[:1],
        worker_speeds=cluster.worker_speeds[:1],
        links=cluster.links[:1],
        leaders=((0,),) * len(cluster.leaders),
    )
    arrays = {name: getattr(inputs, name)[:1] for name in ("near", "far", "local", "host_pool", "speeds")}
    begin_s = (max(inputs.start_offsets_s),)
    return replace(inputs, cluster=alone, leaders=inputs.leaders[:, :1], start_offsets_s=begin_s, **arrays)


class LockstepSimulation(ReferenceSimulation):
    """The reference on worker 0's lanes, with one vector entry per worker for computation."""

    def __init__(self, inputs: Inputs, order: list[int]) -> None:
        super().__init__(inputs_of_first_worker(inputs))
        options, self.count = inputs.options, inputs.cluster.workers
        self.order = order
        self.generators = [Generator(options.seed, options.run, w) for w in range(self.count)]
        self.shuffles = [inputs.transfers.tolist() for _ in self.generators]
        self.speeds: Floats = np.array(inputs.speeds)[:, None]
        self.start_s: Floats = np.array(inputs.start_offsets_s)  # of the op that workers are at
        self.end_s = self.start_s.copy()
        self.busy_s = np.zeros(self.count)  # in the ops before it
        self.last = self._last_worker_to_finish()  # the worker at which the last event was
        self.rows = np.zeros(self.count, np.intp)
        self.compute_s = np.zeros((self.count, 0))  # workers x ops, in this step
        self.joined_s = [0.0] * len(self.sizes)  # when the last joint op ended that an op waits for
        self.joint_s = 0.0  # when the last joint op of all ended
        self.joint = np.bincount(
            [d for op in np.flatnonzero(inputs.profile.scope >= 0) for d in self.dependents[op]],
            minlength=len(self.sizes),
        )
        self.waiting_for_joint = self.joint.copy()
        self.next_place = 0  # in the order of computation, of the op after the one that workers are at
        self.begun_s: list[Floats] = []
        self.ended_s: list[Floats] = []

    def run(self) -> RunResult:
        """Simulates the run; returns times of all workers."""
        result = super().run()
        starts, ends = np.array(self.begun_s[: len(self.ended_s)]).T, np.array(self.ended_s).T
        none_stale = np.zeros(len(self.ended_s), np.int32)
        return replace(
            result,
            step_starts_s=tuple(starts),
            step_ends_s=tuple(ends),
            staleness=(none_stale,) * self.count,
            path="lockstep",
        )

    def _last_worker_to_finish(self) -> int:
        """Index of the worker whose current op ends last; the highest index on ties."""
        return self.count - 1 - int(np.argmax(self.end_s[::-1]))

    def start_random_step(self, worker: Worker, now: float) -> None:
        """Draws a recorded step for each worker and queues the ops without dependencies."""
        self.begun_s.append(self.end_s.copy())
        worker.step += 1
        steps = len(self.durations)
        for w, generator in enumerate(self.generators):
            self.rows[w] = generator.below(steps)
            if self.orders is None:
                generator.shuffle(self.shuffles[w])
        worker.row = int(self.rows[0])
        self.compute_s = self.inputs.profile.durations_s[self.rows] / self.speeds
        self.waiting_for_joint, self.next_place = self.joint.copy(), 0
        worker.waiting = self.dependencies.copy()
        worker.unfinished = len(self.dependencies)
        self._copy_order_to(worker)
        for op in sorted(self.roots, key=worker.order.__getitem__):
            self.queue_ready_op(worker, op)

    def _copy_order_to(self, worker: Worker) -> None:
        """Gives `worker` the op order drawn by the worker that had the last event."""
        if self.orders is not None:
            worker.order = self.orders[self.rows[self.last]]
            return
        for place, op in enumerate(self.shuffles[self.last]):
            worker.order[op] = place

    def start_chunk(self, lane: Lane, now: float) -> None:
        """Starts the next chunk of a lane; computation takes each worker its own time."""
        if lane.resource != WORKER:
            super().start_chunk(lane, now)
            return
        lane.chunk = chunk = lane.scheduler.take(now)
        if chunk is None:
            return
        self.next_place += 1
        self._advance_workers(self.joined_s[chunk.op])
        self.end_s = self.start_s + self.compute_s[:, chunk.op]
        chunk.start_s, chunk.flowing = now, True
        heapq.heappush(self.queue, (float(self.end_s.max()), *lane.key))

    def _advance_workers(self, from_s: float) -> None:
        """Runs the current op on every worker, which starts it no earlier than `from_s`."""
        self.busy_s += self.end_s - self.start_s
        self.start_s = self.end_s = np.maximum(self.end_s, from_s)

    def finish_op(self, worker: Worker, op: int, now: float) -> None:
        """Ends an op at all workers and queues its dependents."""
        if self.scope[op] < 0:
            self.events += self.count - 1
            self.last = self._last_worker_to_finish()
        else:
            self.joint_s, self.last = now, self.count - 1  # it ends at all workers, one after the other
            for dependent in self.dependents[op]:
                self.joined_s[dependent] = now
                self.waiting_for_joint[dependent] -= 1
        if self.several[op]:
            self._copy_order_to(worker)
        super().finish_op(worker, op, now)

    def finish_step(self, worker: Worker, now: float) -> None:
        """Ends the step of all workers and starts the next."""
        self._advance_workers(self.joint_s)
        self.ended_s.append(self.end_s.copy())
        worker.ends_s.append(now)
        self.step_ended = True
        if len(worker.ends_s) < self.inputs.options.steps:
            self.start_random_step(worker, now)

    def use_by_lane(self, now: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Bytes or busy seconds of each lane so far; one row per worker."""
        first = super().use_by_lane(now)
        used = np.zeros((self.count, first.shape[1]))
        used[0] = first[0]
        used[:, self.inputs.cluster.channels] = self._computed_s(now)
        return used

    def _computed_s(self, now: float) -> Floats:
        """Seconds of computation that each worker has completed by now, ops that it started early
        included."""
        start_s, end_s = self.start_s, self.end_s
        busy_s = self.busy_s + np.maximum(np.minimum(now, end_s) - start_s, 0.0)
        computing = self.workers[0].lanes[WORKER][0].chunk is not None
        for op in self.order[self.next_place :] if computing else ():
            ahead = end_s < now
            if not ahead.any() or self.waiting_for_joint[op]:
                break
            start_s = np.where(ahead, np.maximum(end_s, self.joined_s[op]), end_s)
            end_s = np.where(ahead, start_s + self.compute_s[:, op], end_s)
            busy_s += np.where(ahead, np.maximum(np.minimum(now, end_s) - start_s, 0.0), 0.0)
        return busy_s
