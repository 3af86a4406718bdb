"""Exact minimisation of a sum of costs over a graph of choices: dynamic programming without a chain.

Each variable takes one of a few states; factors are cost tables over one or more variables. Eliminating a
variable replaces the factors it stands in by one over its neighbours: the least cost over its states. On a
chain this is the recurrence of Yan et al. (KDD 2015), section 5.2; on a model with branches a fork and its
join stay in the tables until the branches between them are gone. Variables go in the order of fewest
neighbours, so networks built of blocks (Inception, ResNet) never need a table of more than three variables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.errors import BadInput

Table = npt.NDArray[np.float64]
Factor = tuple[tuple[int, ...], Table]
_MAX_CELLS = 50_000_000


def elimination_order(variables: int, scopes: Sequence[tuple[int, ...]]) -> list[int]:
    """Variables by fewest neighbours, the lowest index first among equals."""
    neighbours: list[set[int]] = [set() for _ in range(variables)]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(u for u in scope if u != v)
    left = set(range(variables))
    order = []
    while left:
        v = min(left, key=lambda u: (len(neighbours[u]), u))
        for u in neighbours[v]:
            neighbours[u] |= neighbours[v] - {u}
            neighbours[u].discard(v)
        left.discard(v)
        order.append(v)
    return order


def minimise(order: Sequence[int], factors: Sequence[Factor]) -> tuple[float, list[int]]:
    """Least sum of all factors, and the states that reach it (lowest index on ties)."""
    where: dict[int, list[Factor]] = {v: [] for v in order}
    rank = {v: at for at, v in enumerate(order)}
    constant = 0.0

    def put(scope: tuple[int, ...], table: Table) -> None:
        nonlocal constant
        if scope:
            where[min(scope, key=rank.__getitem__)].append((scope, table))
        else:
            constant += float(table)

    for scope, table in factors:
        put(scope, table)
    choices: list[tuple[int, tuple[int, ...], npt.NDArray[np.intp]]] = []
    for v in order:
        others = tuple(sorted({u for scope, _ in where[v] for u in scope if u != v}))
        axes = {u: at for at, u in enumerate((v, *others))}
        sizes = {u: n for scope, table in where[v] for u, n in zip(scope, table.shape, strict=True)}
        if math.prod(sizes.values()) > _MAX_CELLS:
            raise BadInput("the model's branches are too entangled to partition exactly; use fewer machines")
        total: Table | None = None
        for scope, table in where[v]:
            spread = _spread(scope, table, axes)
            total = spread if total is None else total + spread
        if total is None:
            choices.append((v, (), np.zeros((), np.intp)))
            continue
        best = total.argmin(axis=0)
        choices.append((v, others, best))
        put(others, total.min(axis=0))
    states: dict[int, int] = {}
    for v, others, best in reversed(choices):
        states[v] = int(best[tuple(states[u] for u in others)])
    return constant, [states[v] for v in range(len(order))]


def _spread(scope: tuple[int, ...], table: Table, axes: dict[int, int]) -> Table:
    """Transpose a table to the order of `axes`, with length one where it does not depend."""
    by_axis = sorted(range(len(scope)), key=lambda i: axes[scope[i]])
    shape = [1] * len(axes)
    for i in by_axis:
        shape[axes[scope[i]]] = table.shape[i]
    return table.transpose(by_axis).reshape(shape)
