"""The specification: Algorithm 3.1 of Li et al. (throughput prediction of asynchronous SGD).

Names of the paper: Q is `queue` with the links' next ends, scheduler[w, r] is `Lane.scheduler`, Share is in
`sharing.py`, waiting_for is `Worker.waiting`, StartRandomStep and GenerateTrace keep theirs in snake case.

Corrected misprints. StartRandomStep never counts in active[downlink]: here a link counts its running flows.
"scheduler empty" must count the chunk in flight: `Lane.chunk`. All ops without inputs start, not only
downlinks. Lines 23-31 can start two chunks on one resource: enqueue first, then start one on each idle lane.
Line 13's x is `chunk`, line 37's n is N. After its window a stream rejoins at the tail. Steps are per worker.

Where we go further: M servers (a lane for each), channels between any two nodes, NICs and weights (max-min),
policies, overheads and latencies, joins and joint ops, limited server cores, worker speeds, start offsets.
What is fixed beyond DESIGN:

- An event is the end of a chunk (or of its overhead, or the start of a worker). Events go one by one, by
  time, then resource (downlink, worker, uplink, ps, host), then worker, then server.
- Ops that one event makes ready queue by the step's order (then by name); without an order, transfers by
  the step's shuffle and other ops by name. Then the lane that ended its chunk starts its next, then other
  idle lanes in the order in which ops were queued on them. Then rates change, once.
- A step ends when all its ops have; the next begins in the same event.
- A joint op counts at which members of its group it is ready; the last one queues it on the lane of the
  group's leader, its lowest worker. It runs once, with the leader's durations and with an even share (weight
  1); its end is the end for every member, in ascending order of workers, in one event.
- A gated op waits until it is ready at every worker (a joint one: in every group); then each worker's (each
  leader's) runs on its own lane. An op that awaits a tensor waits, in step k, until the ops that publish it
  have ended k times each, wherever they run.
- Cores: a lane (of a server's updates, of a worker's host) that finds all cores of its pool taken waits in a
  first-come-first-served line; after each op it goes to the end of that line.
- A transfer over a channel whose ends are one node crosses no NIC and runs at local_bytes_per_s.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import chain
from typing import Literal

import numpy as np

from planner.simulator.inputs import Inputs
from planner.simulator.run import (
    TIMELINE_DTYPE,
    Generator,
    RunResult,
    integrals_by_resource,
    raise_if_stopped,
)
from planner.simulator.schedulers import SCHEDULERS, Chunk, FifoScheduler, Scheduler
from planner.simulator.sharing import EqualShares, Event, MaxMinShares
from planner.simulator.step import DOWNLINK, HOST, PS, UPLINK, WORKER


class Lane:
    """Queue of one worker's ops on one resource, which runs one chunk at a time."""

    def __init__(self, resource: int, worker: int, server: int, scheduler: Scheduler) -> None:
        self.resource = resource
        self.worker = worker
        self.server = server
        self.key = (resource, worker, server)
        self.scheduler = scheduler
        self.chunk: Chunk | None = None
        self.pool = -1  # where its ops take a core
        self.waits_for_core = False
        self.weight = 1.0  # of its flows, in this step
        self.used = 0.0  # bytes, or seconds, of chunks that ended


class Worker:
    """State of one worker: its lanes, and the step that it runs."""

    def __init__(self, index: int, inputs: Inputs, sizes: list[int]) -> None:
        channels = inputs.cluster.channels
        link = SCHEDULERS[inputs.policy.kind]
        latency_s = inputs.profile.latency_s.tolist()
        down, up = ([overhead + extra for extra in latency_s] for overhead in inputs.policy.overhead_s)
        self.index = index
        self.generator = Generator(inputs.options.seed, inputs.options.run, index)
        busy = FifoScheduler, [0] * len(sizes), [0.0] * len(sizes)  # no bytes, no delay
        self.lanes = {
            resource: [
                Lane(resource, index, server, kind(inputs.policy, bytes, delay_s)) for server in servers
            ]
            for resource, servers, (kind, bytes, delay_s) in (
                (DOWNLINK, range(channels), (link, sizes, down)),
                (WORKER, [-1], busy),
                (UPLINK, range(channels), (link, sizes, up)),
                (PS, range(channels), busy),
                (HOST, [-1], busy),
            )
        }
        for lane, pool in zip(self.lanes[PS], inputs.server_pool.tolist(), strict=True):
            lane.pool = pool
        self.lanes[HOST][0].pool = int(inputs.host_pool[index])
        self.shuffled: list[int] = inputs.transfers.tolist()
        self.order: list[int] = [0] * len(sizes)  # of ops that become ready together
        # Where flows of several senders meet: at the server, and at the worker if it has several channels.
        self.uneven = [*(self.lanes[DOWNLINK] if channels > 1 else []), *self.lanes[UPLINK]]
        self.step = -1  # now running
        self.row = 0  # of the durations table
        self.waiting: list[int] = []  # dependencies that each op still waits for
        self.unfinished = 0
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []
        self.staleness: list[int] = []
        self.steps_of_others = 0  # that had ended when this step began


class ReferenceSimulation:
    """One run, event by event: GenerateTrace of the paper."""

    def __init__(self, inputs: Inputs) -> None:
        profile, cluster = inputs.profile, inputs.cluster
        self.inputs = inputs
        self.sizes: list[int] = profile.bytes.tolist()
        self.resource: list[int] = profile.resource.tolist()
        self.server: list[int] = profile.server.tolist()
        self.durations: list[list[float]] = profile.durations_s.tolist()
        self.orders = None if profile.order is None else profile.order.tolist()
        start, index = inputs.dependent_start.tolist(), inputs.dependent_index.tolist()
        self.dependents = [index[start[op] : start[op + 1]] for op in range(profile.ops)]
        self.several = [len(dependents) > 1 for dependents in self.dependents]
        self.dependencies: list[int] = inputs.waiting.tolist()
        self.roots: list[int] = inputs.roots.tolist()
        self.gated: list[bool] = inputs.gated.tolist()
        self.publishes: list[int] = inputs.publishes.tolist()
        self.awaits: list[int] = inputs.awaits.tolist()
        self.local: list[list[bool]] = inputs.local.tolist()
        self.scope: list[int] = profile.scope.tolist()
        self.leaders: list[list[int]] = inputs.leaders.tolist()
        self.members: list[dict[int, list[int]]] = []  # by scope, then by leader; ascending
        for leaders in self.leaders:
            self.members.append({})
            for w, leader in enumerate(leaders):
                self.members[-1].setdefault(leader, []).append(w)

        self.workers = [Worker(w, inputs, self.sizes) for w in range(cluster.workers)]
        self.queue: list[Event] = []  # ends that are known for good
        self.links = self.make_links()
        self.joining: dict[tuple[int, int], int] = {}  # (op, leader): members at which a joint op is ready
        self.arrived: dict[int, list[int]] = {}  # workers, or leaders, at which a gated op is ready
        self.published = [0] * len(inputs.publishers)  # ops that publish a tensor and ended, ever
        self.held: dict[int, list[tuple[int, int]]] = {}  # ops (worker, op) that await a tensor
        self.free_cores: list[int] = inputs.pool_cores.tolist()
        self.core_lines: list[deque[Lane]] = [deque() for _ in self.free_cores]
        self.idle: list[Lane] = []  # lanes that may start a chunk at the end of this event
        self.completed_steps = 0
        self.step_ended = False  # in this event
        self.events = 0
        self.trace: list[tuple[float | int, ...]] = []

    def make_links(self) -> dict[int, EqualShares | MaxMinShares]:
        """Bandwidth sharing by direction; one object serves both if a node is both a near and a far end."""
        shares, near, far = self.inputs.equal_shares, self.inputs.near, self.inputs.far
        if shares:
            return {
                resource: EqualShares(resource, share.capacity_bytes_per_s, share.flow_bytes_per_s)
                for resource, share in zip((DOWNLINK, UPLINK), shares, strict=True)
            }
        down = MaxMinShares(self.inputs)
        mixed = set(near.ravel().tolist()) & set(far.ravel().tolist())
        return {DOWNLINK: down, UPLINK: down if mixed else MaxMinShares(self.inputs)}

    def run(self) -> RunResult:
        """Simulates the run to its end (GenerateTrace)."""
        options = self.inputs.options
        for worker in self.workers:
            heapq.heappush(self.queue, (self.inputs.start_offsets_s[worker.index], -1, worker.index, -1))
        now = measured_from_s = 0.0
        before = self.use_by_lane(0.0)
        warm = options.warmup_steps == 0
        stopped: Literal["steps", "time", "events"] = "steps"
        links = list(dict.fromkeys(self.links.values()))
        while True:
            next_events = [event for link in links if (event := link.next_end())] + self.queue[:1]
            assert next_events, "nothing can happen, yet workers have steps to do"
            event = min(next_events)
            if event[0] > options.max_time_s:
                now, stopped = options.max_time_s, "time"
                break
            if self.queue and event == self.queue[0]:
                heapq.heappop(self.queue)
            now, resource, w, server = event
            worker = self.workers[w]
            if resource < 0:
                self.start_random_step(worker, now)
            else:
                self.finish_chunk(worker, worker.lanes[resource][server], now)
            for lane in self.idle:
                if lane.chunk is None:
                    self.start_chunk(lane, now)
            self.idle.clear()
            for link in links:
                link.commit(now)
            if self.step_ended:
                self.step_ended = False
                raise_if_stopped()
                done = [len(worker.ends_s) for worker in self.workers]
                if not warm and min(done) >= options.warmup_steps:
                    warm, measured_from_s, before = True, now, self.use_by_lane(now)
                if (max(done) if options.until == "first" else min(done)) >= options.steps:
                    break
            if options.max_events is not None and self.events >= options.max_events:
                stopped = "events"
                break
        return RunResult(
            step_starts_s=tuple(np.array(worker.starts_s[: len(worker.ends_s)]) for worker in self.workers),
            step_ends_s=tuple(np.array(worker.ends_s) for worker in self.workers),
            staleness=tuple(np.array(worker.staleness, np.int32) for worker in self.workers),
            end_s=now,
            measured_from_s=measured_from_s,
            **integrals_by_resource(self.use_by_lane(now) - before),
            events=self.events,
            stopped=stopped,
            path="reference",
            timeline=np.array(self.trace, TIMELINE_DTYPE) if options.timeline else None,
        )

    def start_random_step(self, worker: Worker, now: float) -> None:
        """Draws a recorded step for the worker and queues its ops without dependencies (StartRandomStep)."""
        worker.step += 1
        worker.row = worker.generator.below(len(self.durations))
        if self.orders is None:
            worker.generator.shuffle(worker.shuffled)
            for place, op in enumerate(worker.shuffled):
                worker.order[op] = place
        else:
            worker.order = self.orders[worker.row]
        sigma = self.inputs.fairness_sigma
        if sigma > 0:
            for lane in worker.uneven:
                lane.weight = worker.generator.weight(sigma)
        worker.waiting = self.dependencies.copy()
        worker.unfinished = len(self.dependencies)
        worker.starts_s.append(now)
        worker.steps_of_others = self.completed_steps - len(worker.ends_s)
        for op in sorted(self.roots, key=worker.order.__getitem__):
            self.queue_ready_op(worker, op)

    def queue_ready_op(self, worker: Worker, op: int) -> None:
        """Queues an op whose dependencies are met; holds it back while it has to wait for other workers."""
        scope = self.scope[op]
        if scope >= 0:
            leader = self.leaders[scope][worker.index]
            joining = self.joining.get((op, leader), 0) + 1
            everybody = joining == len(self.members[scope][leader])
            self.joining[op, leader] = 0 if everybody else joining
            if not everybody:
                return
            worker = self.workers[leader]
        if self.gated[op]:
            arrived = self.arrived.setdefault(op, [])
            arrived.append(worker.index)
            if len(arrived) == (len(self.workers) if scope < 0 else len(self.members[scope])):
                del self.arrived[op]
                for w in sorted(arrived):
                    self.enqueue(self.workers[w], op)
            return
        tensor = self.awaits[op]
        if tensor >= 0 and self.published[tensor] < worker.step * self.inputs.publishers[tensor]:
            self.held.setdefault(tensor, []).append((worker.index, op))
            return
        self.enqueue(worker, op)

    def enqueue(self, worker: Worker, op: int) -> None:
        lane = worker.lanes[self.resource[op]][self.server[op]]
        lane.scheduler.add(op)
        if lane.chunk is None:
            self.idle.append(lane)

    def start_chunk(self, lane: Lane, now: float) -> None:
        """Starts the next chunk of an idle lane, if one is queued."""
        if lane.pool >= 0 and not (lane.scheduler.has_queued_ops() and self.reserve_core(lane)):
            return
        lane.chunk = chunk = lane.scheduler.take(now)
        if chunk is None:
            return
        chunk.start_s = now
        if lane.resource in (DOWNLINK, UPLINK):
            if chunk.ready_s > now:
                heapq.heappush(self.queue, (chunk.ready_s, *lane.key))
            else:
                self.start_flow(lane, chunk, now)
            return
        worker = self.workers[lane.worker]
        duration = self.durations[worker.row][chunk.op]
        if lane.resource == WORKER:
            duration /= self.inputs.speeds[lane.worker]
        chunk.flow_s = now
        chunk.flowing = True
        heapq.heappush(self.queue, (now + duration, *lane.key))

    def reserve_core(self, lane: Lane) -> bool:
        """Reserves a core for a lane; False if none is free and the lane has to wait."""
        if lane.waits_for_core:
            return False
        if self.free_cores[lane.pool] < 1:
            lane.waits_for_core = True
            self.core_lines[lane.pool].append(lane)
            return False
        self.free_cores[lane.pool] -= 1
        return True

    def release_core(self, pool: int) -> None:
        """Frees a core; the first waiting lane may start."""
        self.free_cores[pool] += 1
        if self.core_lines[pool]:
            lane = self.core_lines[pool].popleft()
            lane.waits_for_core = False
            self.idle.insert(0, lane)

    def start_flow(self, lane: Lane, chunk: Chunk, now: float) -> None:
        chunk.flow_s = now
        chunk.flowing = True
        if self.local[lane.worker][lane.server]:
            end = now + chunk.size / self.inputs.options.local_bytes_per_s
            heapq.heappush(self.queue, (end, *lane.key))
        else:
            weight = lane.weight if self.scope[chunk.op] < 0 else 1.0
            self.links[lane.resource].start(now, lane.key, chunk.size, weight)

    def finish_chunk(self, worker: Worker, lane: Lane, now: float) -> None:
        chunk = lane.chunk
        assert chunk is not None
        if not chunk.flowing:  # only its overhead is over
            self.start_flow(lane, chunk, now)
            return
        self.events += 1
        on_link = lane.resource in (DOWNLINK, UPLINK)
        if on_link and not self.local[lane.worker][lane.server]:
            self.links[lane.resource].finish(now, lane.key)
        lane.used += chunk.size if on_link else now - chunk.start_s
        if self.inputs.options.timeline:
            size = chunk.size if on_link else 0
            times = (chunk.start_s, chunk.flow_s, now)
            self.trace.append((lane.worker, lane.resource, lane.server, chunk.op, worker.step, size, *times))
        lane.chunk = None
        lane.scheduler.end_chunk(chunk, now)
        self.idle.append(lane)
        if lane.pool >= 0:
            self.release_core(lane.pool)
        if not chunk.last:
            return
        self.publish_tensor(chunk.op)
        scope = self.scope[chunk.op]
        for member in [worker.index] if scope < 0 else self.members[scope][worker.index]:
            self.finish_op(self.workers[member], chunk.op, now)

    def finish_op(self, worker: Worker, op: int, now: float) -> None:
        dependents = self.dependents[op]
        if self.several[op]:
            dependents = sorted(dependents, key=worker.order.__getitem__)
        for dependent in dependents:
            worker.waiting[dependent] -= 1
            if worker.waiting[dependent] == 0:
                self.queue_ready_op(worker, dependent)
        worker.unfinished -= 1
        if worker.unfinished == 0:
            self.finish_step(worker, now)

    def publish_tensor(self, op: int) -> None:
        """Queues the ops that await a tensor once all its updates are in."""
        tensor = self.publishes[op]
        if tensor < 0:
            return
        self.published[tensor] += 1
        if self.published[tensor] % self.inputs.publishers[tensor] == 0:
            for w, held in sorted(self.held.pop(tensor, []), key=lambda pair: pair[0]):
                self.enqueue(self.workers[w], held)

    def finish_step(self, worker: Worker, now: float) -> None:
        worker.ends_s.append(now)
        others = self.completed_steps - (len(worker.ends_s) - 1)
        worker.staleness.append(0 if self.inputs.lockstep else others - worker.steps_of_others)
        self.completed_steps += 1
        self.step_ended = True
        if len(worker.ends_s) < self.inputs.options.steps:
            self.start_random_step(worker, now)

    def use_by_lane(self, now: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Bytes or busy seconds of each lane so far, including running chunks; one row per worker."""
        lanes = [chain.from_iterable(worker.lanes.values()) for worker in self.workers]
        return np.array([[self.lane_use(lane, now) for lane in own] for own in lanes])

    def lane_use(self, lane: Lane, now: float) -> float:
        """Bytes or busy seconds of a lane so far, including its running chunk."""
        chunk = lane.chunk
        if chunk is None or not chunk.flowing:
            return lane.used
        if lane.resource not in (DOWNLINK, UPLINK):
            return lane.used + (now - chunk.start_s)
        if self.local[lane.worker][lane.server]:
            return lane.used
        return lane.used + self.links[lane.resource].delivered_bytes(now, lane.key)


def run(inputs: Inputs) -> RunResult:
    """Runs the reference simulation on prepared inputs."""
    return ReferenceSimulation(inputs).run()
