"""What lanes, ports and joint ops make a step last at least, from the paths of its graph.

The period of joint ops. Let O be joint ops of one group on one lane. In step k the first of them begins when
it is ready at every member w, no earlier than the least head of O in the step that w has drawn; the last ends
a total of O later; and w's next step begins no earlier than the least tail of O after that. So

    period >= total(O) + E[max over members w of (tail_w(one step) + head_w(the next))],

and since steps are drawn independently, the slowest of many members decides. This holds for every O; those
that are looked at are the ops of a lane from each one on in the order of their heads, as for a machine whose
jobs have release times. Heads and tails of joint ops count all computation that must come before or after,
for a worker computes one op at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from planner.files.byte_cache import ByteCache
from planner.simulator.bounds.kinds import Floats, Ints, Kinds
from planner.simulator.bounds.paths import PathGraph, bit_rows, structure_of
from planner.simulator.bounds.step import Steps
from planner.simulator.step import WORKER, Profile

MOST_ROWS = 48  # of steps, when their sums are looked at; more are put together, each as its shortest
MOST_SETS = 3  # of joint ops of a lane, for which the slowest member is worked out


class Around:
    """Head + total + tail of everything that ops use: for each kind of worker in each step, a column."""

    def __init__(
        self, kinds: Kinds, use_of_op: Ints, paths: tuple[Floats, Floats, Floats], sizes: Floats
    ) -> None:
        self.kinds = kinds
        self.cost, self.heads, self.tails = cost, heads, tails = paths
        self.sizes = sizes  # bytes of each use
        self.steps = cost.shape[1] // len(kinds)
        by_use = [np.flatnonzero(use_of_op == at) for at in range(len(kinds.uses))]
        self.ops = by_use
        self.total = np.array([cost[ops].sum(axis=0) for ops in by_use])
        self.head = np.array([heads[ops].min(axis=0) for ops in by_use])
        self.tail = np.array([tails[ops].min(axis=0) for ops in by_use])

    def least_s(self) -> Floats:
        """The longest path, and the busiest lane and port."""
        least = np.asarray((self.heads + self.cost + self.tails).max(axis=0))
        for together, total in (*self._lanes(), *self._ports()):
            head = np.where(together, self.head, np.inf).min(axis=0)
            tail = np.where(together, self.tail, np.inf).min(axis=0)
            np.maximum(least, total + head + tail, out=least, where=together.any(axis=0))
        return least

    def _lanes(self) -> list[tuple[np.ndarray, Floats]]:
        """For each use: which uses share its lane, by column, and how long that is busy."""
        out, uses = [], self.kinds.uses
        for at, use in enumerate(uses):
            same = np.array([other[:2] == use[:2] for other in uses])
            here = same[:, None] & (self.kinds.lane == self.kinds.lane[:, at : at + 1]).T
            together = np.repeat(here, self.steps, axis=1)
            out.append((together, np.where(together, self.total, 0.0).sum(axis=0)))
        return out

    def _ports(self) -> list[tuple[np.ndarray, Floats]]:
        """For each port that several uses share: which do, by column, and how long that is busy."""
        out, port = [], self.kinds.port
        for at in range(len(self.kinds.uses)):
            for side in range(2):
                mine = port[:, at, side]
                here = ((port == mine[:, None, None]).any(axis=2) & (mine >= 0)[:, None]).T
                if (here.sum(axis=0) < 2).all():  # nobody shares it: its lane says as much
                    continue
                busy = self.sizes @ here * self.kinds.port_s_per_byte[:, at, side]
                out.append((np.repeat(here, self.steps, axis=1), np.repeat(busy, self.steps)))
        return out

    def of_ops(self, ops: Ints, kind: int) -> tuple[Floats, Floats, Floats]:
        """Costs, heads and tails of some ops for one kind of worker: ops x steps each."""
        columns = slice(kind * self.steps, (kind + 1) * self.steps)
        return self.cost[ops, columns], self.heads[ops, columns], self.tails[ops, columns]


def longest_period_s(profile: Profile, leaders: Ints, scope: int, around: Around, steps: Steps) -> Floats:
    """For each leader the least period of its group, by its joint ops; 0 for workers that lead none."""
    kinds = around.kinds
    table = np.zeros((len(leaders), len(kinds)))
    np.add.at(table, (leaders, kinds.of), 1.0)
    first = np.unique(leaders)
    groups, which = table[first], np.zeros(len(first), np.intp)
    if (groups != groups[0]).any():
        groups, which = np.unique(groups, axis=0, return_inverse=True)
    else:
        groups = groups[:1]
    lanes = [ops for use, ops in zip(kinds.uses, around.ops, strict=True) if use.scope == scope]
    out = np.zeros(len(leaders))
    least = [max(_period_s(profile, ops, group, around, steps) for ops in lanes) for group in groups]
    out[first] = np.array(least)[np.asarray(which).reshape(-1)]
    return out


def _period_s(profile: Profile, ops: Ints, members: Floats, around: Around, steps: Steps) -> float:
    """The longest of the bounds by some ops of a lane, for a group with so many members of each kind."""
    present = np.flatnonzero(members)
    tables = [around.of_ops(ops, int(kind)) for kind in present]
    order = np.argsort(tables[0][1].mean(axis=1), kind="stable")
    duration = profile.durations_s[:, ops].mean(axis=0) if steps == "mean" else None
    cost = tables[0][0].min(axis=1)  # the same for all members, but for durations
    if duration is not None:
        cost = np.where(profile.is_transfer[ops], cost, duration)
    total = cost[order][::-1].cumsum()[::-1]
    heads = [np.minimum.accumulate(head[order][::-1], axis=0)[::-1] for _, head, _ in tables]
    tails = [np.minimum.accumulate(tail[order][::-1], axis=0)[::-1] for _, _, tail in tables]
    if steps == "fastest":
        each = [head.min(axis=1) + tail.min(axis=1) for head, tail in zip(heads, tails, strict=True)]
        return float((total + np.max(each, axis=0)).max())
    each = [head.mean(axis=1) + tail.mean(axis=1) for head, tail in zip(heads, tails, strict=True)]
    simple = total + np.max(each, axis=0)
    best = float(simple.max())
    if around.steps == 1:
        return best
    spread = [head.max(axis=1) + tail.max(axis=1) for head, tail in zip(heads, tails, strict=True)]
    most = total + np.max(spread, axis=0)
    for at in np.argsort(-simple, kind="stable")[:MOST_SETS].tolist():
        if most[at] > best:
            rows = [(head[at], tail[at]) for head, tail in zip(heads, tails, strict=True)]
            best = max(best, float(total[at]) + mean_of_slowest_s(rows, members[present]))
    return best


def mean_of_slowest_s(rows: list[tuple[Floats, Floats]], members: Floats) -> float:
    """The mean of the longest tail + head among independent members, so many of each kind.

    Each kind draws a head and a tail from its rows; long lists are shortened to smaller values.
    """
    sums = [np.sort(np.add.outer(_fewer(head), _fewer(tail)).ravel()) for head, tail in rows]
    values = np.unique(np.concatenate(sums))
    below = np.ones(len(values))  # probability that no member takes longer
    for found, count in zip(sums, members, strict=True):
        below *= (np.searchsorted(found, values, side="right") / len(found)) ** count
    return float(values @ np.diff(below, prepend=0.0))


def _fewer(rows: Floats) -> Floats:
    """At most MOST_ROWS values, none greater than those that it stands for, each as likely as the others."""
    if len(rows) <= MOST_ROWS:
        return rows
    ordered = np.sort(rows)
    share = len(rows) / MOST_ROWS
    return np.asarray(ordered[(np.arange(MOST_ROWS) * share).astype(np.intp)])


def joint_work(profile: Profile) -> tuple[Floats, Floats]:
    """For each joint op the computation that must come before it and after it: joint ops x worker ops."""
    graph = structure_of(profile)
    joint = profile.scope >= 0
    key = (graph, profile.resource.tobytes(), joint.tobytes())
    return _JOINT_WORK.get(key, lambda: _joint_work(graph, profile.resource, joint))


_JOINT_WORK: ByteCache[tuple[Floats, Floats]] = ByteCache(
    8 << 20, lambda found: found[0].nbytes + found[1].nbytes
)


def _joint_work(
    graph: PathGraph, resource: npt.NDArray[np.uint8], joint: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    compute = np.flatnonzero(resource == WORKER)
    ops = np.flatnonzero(joint).tolist()
    own = {int(op): 1 << at for at, op in enumerate(compute)}
    if not len(compute):
        return np.zeros((len(ops), 0)), np.zeros((len(ops), 0))
    before, after = graph.before(own), graph.after(own)
    rows = (bit_rows([bits[op] for op in ops], len(compute)) for bits in (before, after))
    first, last = (row.astype(np.float64) for row in rows)
    return first, last
