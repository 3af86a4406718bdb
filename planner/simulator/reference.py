"""The specification: Algorithm 3.1 of file 000 (Li et al., throughput prediction of asynchronous SGD).

Names of the paper: Q is `queue` with the links' next ends, scheduler[w, r] is `Lane.scheduler`, Share is in
`sharing.py`, waiting_for is `Worker.waiting`, StartRandomStep and GenerateTrace keep theirs in snake case.

Mended misprints. StartRandomStep never counts in active[downlink]: here a link counts its running flows.
"scheduler empty" must count the chunk in flight: `Lane.chunk`. Ops without inputs that are no downlinks would
never start: all ops without inputs do. Lines 23-31 can start two chunks on one resource: enqueue first, then
start one on each idle lane. Line 13's x is `chunk`, line 37's n is N. After its window a stream rejoins at
the tail. Steps are counted per worker.

Where we go further: M servers (a lane for each), NICs and weights (max-min), policies, overheads,
synchronous mode, limited server cores, worker speeds, start offsets. What is fixed beyond DESIGN:

- An event is the end of a chunk (or of its overhead, or the start of a worker). Events go one by one, by
  time, then resource (downlink, worker, uplink, ps), then worker, then server.
- Ops that one event makes ready queue by the step's order (then by name); without an order, transfers by
  the step's shuffle and other ops by name. Then the lane that ended its chunk starts its next, then other
  idle lanes in the order in which ops were queued on them. Then rates change, once.
- A step ends when all its ops have; the next begins in the same event.
- sync: the server ops that update a tensor wait until the same op is ready at every worker; then each
  worker's share of the update runs on its own lane. The tensor's next download waits until all of them end.
- server_cores: a lane that finds all cores of its server taken waits in a first-come-first-served line; after
  each op it goes to the end of that line.
- A transfer between a worker and a server on one node crosses no NIC and runs at local_bytes_per_s.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Literal

import numpy as np

from planner.profile import DOWNLINK, PS, UPLINK, WORKER
from planner.simulator.generator import Generator
from planner.simulator.inputs import Inputs
from planner.simulator.run import TIMELINE_DTYPE, RunResult
from planner.simulator.schedulers import SCHEDULERS, Chunk, Fifo, Scheduler
from planner.simulator.sharing import EqualShares, Event, MaxMinShares


class Lane:
    """What one worker runs on one resource: a queue and at most one chunk."""

    def __init__(self, resource: int, worker: int, server: int, scheduler: Scheduler) -> None:
        self.resource = resource
        self.worker = worker
        self.server = server
        self.key = (resource, worker, server)
        self.scheduler = scheduler
        self.chunk: Chunk | None = None
        self.waits_for_core = False
        self.weight = 1.0  # of its flows, in this step
        self.used = 0.0  # bytes, or seconds, of chunks that ended


class Worker:
    """The step a worker is in."""

    def __init__(self, index: int, inputs: Inputs, sizes: list[int]) -> None:
        servers = inputs.cluster.servers
        link = SCHEDULERS[inputs.policy.kind]
        down_s, up_s = inputs.policy.overhead_s
        no_sizes = [0] * len(sizes)
        self.index = index
        self.generator = Generator(inputs.options.seed, inputs.options.run, index)
        self.compute = Lane(WORKER, index, -1, Fifo(inputs.policy, no_sizes, 0.0))
        self.lanes = {
            DOWNLINK: [Lane(DOWNLINK, index, s, link(inputs.policy, sizes, down_s)) for s in range(servers)],
            UPLINK: [Lane(UPLINK, index, s, link(inputs.policy, sizes, up_s)) for s in range(servers)],
            PS: [Lane(PS, index, s, Fifo(inputs.policy, no_sizes, 0.0)) for s in range(servers)],
        }
        self.shuffled: list[int] = inputs.transfers.tolist()
        self.order: list[int] = [0] * len(sizes)  # of ops that become ready together
        # Where flows of several senders meet: at the server, and at the worker if it has several servers.
        self.uneven = [*(self.lanes[DOWNLINK] if servers > 1 else []), *self.lanes[UPLINK]]
        self.step = -1  # now running
        self.row = 0  # of the durations table
        self.waiting: list[int] = []  # dependencies that each op still waits for
        self.unfinished = 0
        self.starts_s: list[float] = []
        self.ends_s: list[float] = []
        self.staleness: list[int] = []
        self.steps_of_others = 0  # that had ended when this step began

    def all_lanes(self) -> list[Lane]:
        return [self.compute, *self.lanes[DOWNLINK], *self.lanes[UPLINK], *self.lanes[PS]]


class Simulation:
    """GenerateTrace."""

    def __init__(self, inputs: Inputs) -> None:
        profile, cluster, options = inputs.profile, inputs.cluster, inputs.options
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

        self.workers = [Worker(w, inputs, self.sizes) for w in range(cluster.workers)]
        self.queue: list[Event] = []  # ends that are known for good
        self.links = self.make_links()
        self.arrived: dict[int, list[int]] = {}  # sync: workers at which a gated op is ready
        self.published = [0] * len(inputs.publishers)  # sync: updates of a tensor that ended, ever
        self.held: dict[int, list[tuple[int, int]]] = {}  # sync: downloads (worker, op) of a tensor that wait
        cores = options.server_cores
        self.free_cores = [math.inf if cores is None else cores] * cluster.servers
        self.core_lines: list[deque[Lane]] = [deque() for _ in range(cluster.servers)]
        self.idle: list[Lane] = []  # lanes that may start a chunk at the end of this event
        self.completed_steps = 0
        self.step_ended = False  # in this event
        self.events = 0
        self.trace: list[tuple[float | int, ...]] = []

    def make_links(self) -> dict[int, EqualShares | MaxMinShares]:
        """The sharing of each direction. They are one only if some node holds both a worker and a server."""
        shares, cluster = self.inputs.equal_shares, self.inputs.cluster
        if shares:
            return {
                resource: EqualShares(resource, share.capacity_bytes_per_s, share.flow_bytes_per_s)
                for resource, share in zip((DOWNLINK, UPLINK), shares, strict=True)
            }
        down = MaxMinShares(cluster, self.inputs.flow_bytes_per_s)
        mixed = set(cluster.worker_nodes) & set(cluster.server_nodes)
        return {
            DOWNLINK: down,
            UPLINK: down if mixed else MaxMinShares(cluster, self.inputs.flow_bytes_per_s),
        }

    def run(self) -> RunResult:
        options = self.inputs.options
        for worker in self.workers:
            heapq.heappush(self.queue, (self.inputs.start_offsets_s[worker.index], -1, worker.index, -1))
        now = measured_from_s = 0.0
        before = self.used(0.0)
        warm = options.warmup_steps == 0
        stopped: Literal["steps", "time", "events"] = "steps"
        links = list(dict.fromkeys(self.links.values()))
        while True:
            next_events = [event for link in links if (event := link.next())] + self.queue[:1]
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
                lane = worker.compute if resource == WORKER else worker.lanes[resource][server]
                self.end_of_chunk(worker, lane, now)
            for lane in self.idle:
                if lane.chunk is None:
                    self.start_chunk(lane, now)
            self.idle.clear()
            for link in links:
                link.commit(now)
            if self.step_ended:
                self.step_ended = False
                done = [len(worker.ends_s) for worker in self.workers]
                if not warm and min(done) >= options.warmup_steps:
                    warm, measured_from_s, before = True, now, self.used(now)
                if (max(done) if options.until == "first" else min(done)) >= options.steps:
                    break
            if options.max_events is not None and self.events >= options.max_events:
                stopped = "events"
                break
        used = self.used(now) - before
        servers = self.inputs.cluster.servers
        return RunResult(
            step_starts_s=tuple(np.array(worker.starts_s[: len(worker.ends_s)]) for worker in self.workers),
            step_ends_s=tuple(np.array(worker.ends_s) for worker in self.workers),
            staleness=tuple(np.array(worker.staleness, np.int32) for worker in self.workers),
            end_s=now,
            measured_from_s=measured_from_s,
            worker_busy_s=used[:, 0],
            ps_busy_s=used[:, 1 + 2 * servers :],
            link_bytes=np.stack([used[:, 1 : 1 + servers], used[:, 1 + servers : 1 + 2 * servers]]),
            events=self.events,
            stopped=stopped,
            path="reference",
            timeline=np.array(self.trace, TIMELINE_DTYPE) if options.timeline else None,
        )

    def start_random_step(self, worker: Worker, now: float) -> None:
        """StartRandomStep: sample a step with replacement and queue all ops without dependencies."""
        worker.step += 1
        worker.row = worker.generator.below(len(self.durations))
        if self.orders is None:
            worker.generator.shuffle(worker.shuffled)
            for place, op in enumerate(worker.shuffled):
                worker.order[op] = place
        else:
            worker.order = self.orders[worker.row]
        sigma = self.inputs.options.fairness_sigma
        if sigma > 0:
            for lane in worker.uneven:
                lane.weight = worker.generator.weight(sigma)
        worker.waiting = self.dependencies.copy()
        worker.unfinished = len(self.dependencies)
        worker.starts_s.append(now)
        worker.steps_of_others = self.completed_steps - len(worker.ends_s)
        for op in sorted(self.roots, key=worker.order.__getitem__):
            self.ready(worker, op)

    def ready(self, worker: Worker, op: int) -> None:
        """An op has all it depends on; in sync mode it may have to wait for other workers."""
        if self.gated[op]:
            arrived = self.arrived.setdefault(op, [])
            arrived.append(worker.index)
            if len(arrived) == len(self.workers):
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
        resource = self.resource[op]
        lane = worker.compute if resource == WORKER else worker.lanes[resource][self.server[op]]
        lane.scheduler.add(op)
        if lane.chunk is None:
            self.idle.append(lane)

    def start_chunk(self, lane: Lane, now: float) -> None:
        """Let a lane without a chunk run its next one, if it has one."""
        if lane.resource == PS and not (lane.scheduler.waiting() and self.take_core(lane)):
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

    def take_core(self, lane: Lane) -> bool:
        """Reserve a core of the lane's server, or stand in line for one."""
        if lane.waits_for_core:
            return False
        if self.free_cores[lane.server] < 1:
            lane.waits_for_core = True
            self.core_lines[lane.server].append(lane)
            return False
        self.free_cores[lane.server] -= 1
        return True

    def release_core(self, server: int) -> None:
        """Free a core; the first lane in line may start."""
        self.free_cores[server] += 1
        if self.core_lines[server]:
            lane = self.core_lines[server].popleft()
            lane.waits_for_core = False
            self.idle.insert(0, lane)

    def start_flow(self, lane: Lane, chunk: Chunk, now: float) -> None:
        chunk.flow_s = now
        chunk.flowing = True
        if self.local[lane.worker][lane.server]:
            end = now + chunk.size / self.inputs.options.local_bytes_per_s
            heapq.heappush(self.queue, (end, *lane.key))
        else:
            self.links[lane.resource].start(now, lane.key, chunk.size, lane.weight)

    def end_of_chunk(self, worker: Worker, lane: Lane, now: float) -> None:
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
        lane.scheduler.done(chunk, now)
        self.idle.append(lane)
        if lane.resource == PS:
            self.release_core(lane.server)
        if not chunk.last:
            return
        self.publish(chunk.op)
        dependents = self.dependents[chunk.op]
        if self.several[chunk.op]:
            dependents = sorted(dependents, key=worker.order.__getitem__)
        for dependent in dependents:
            worker.waiting[dependent] -= 1
            if worker.waiting[dependent] == 0:
                self.ready(worker, dependent)
        worker.unfinished -= 1
        if worker.unfinished == 0:
            self.end_of_step(worker, now)

    def publish(self, op: int) -> None:
        """sync: an update has ended; if it was the last of its tensor, downloads that wait for it may go."""
        tensor = self.publishes[op]
        if tensor < 0:
            return
        self.published[tensor] += 1
        if self.published[tensor] % self.inputs.publishers[tensor] == 0:
            for w, held in sorted(self.held.pop(tensor, []), key=lambda pair: pair[0]):
                self.enqueue(self.workers[w], held)

    def end_of_step(self, worker: Worker, now: float) -> None:
        worker.ends_s.append(now)
        others = self.completed_steps - (len(worker.ends_s) - 1)
        worker.staleness.append(0 if self.inputs.sync else others - worker.steps_of_others)
        self.completed_steps += 1
        self.step_ended = True
        if len(worker.ends_s) < self.inputs.options.steps:
            self.start_random_step(worker, now)

    def used(self, now: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """What each lane has used so far, chunks in flight included; a row for each worker."""
        return np.array([[self.lane_used(lane, now) for lane in w.all_lanes()] for w in self.workers])

    def lane_used(self, lane: Lane, now: float) -> float:
        chunk = lane.chunk
        if chunk is None or not chunk.flowing:
            return lane.used
        if lane.resource in (WORKER, PS):
            return lane.used + (now - chunk.start_s)
        if self.local[lane.worker][lane.server]:
            return lane.used
        return lane.used + self.links[lane.resource].delivered(now, lane.key)


def run(inputs: Inputs) -> RunResult:
    """GenerateTrace for prepared inputs."""
    return Simulation(inputs).run()
