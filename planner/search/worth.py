"""What plans are worth beside others that give as much.

Gradients of asynchronous training are stale, and what that costs in epochs is not simulated. Synchronous
training converges in fewer epochs and to better accuracies (Chen et al. 2016, Revisiting Distributed
Synchronous SGD, arXiv:1604.00981). So where a request leaves open how to train, an asynchronous plan counts
for a little less than it gives, and is chosen only where it is ahead of every synchronous one by more. So
does a batch above the model's own, where the request names none (`planner.search.usual_batches`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from planner.parallel.data import Exchange
from planner.parallel.plan import Plan
from planner.search.front import Floats
from planner.search.request import Request, model_of
from planner.search.space import kinds
from planner.search.usual_batches import batch_discount, open_batch

AHEAD = 0.10  # of a synchronous plan, which an asynchronous one must be


def staleness_discount(exchange: Exchange, replicas: int, request: Request) -> float:
    """By what the throughput of a plan is multiplied before it is compared with others."""
    open_mode = request.mode is None and len(kinds(request)) > 1
    return 1 / (1 + AHEAD) if open_mode and exchange.is_asynchronous and replicas > 1 else 1.0


def discounts(plans: Iterable[Plan], request: Request) -> Floats:
    """Of each plan, by what it is multiplied before it is compared."""
    model = model_of(request)
    chosen, free = open_batch(request, model), request.accumulate is None
    return np.array(
        [
            staleness_discount(plan.exchange, plan.replicas, request)
            * (batch_discount(plan.batch * (plan.accumulate if free else 1), model) if chosen else 1.0)
            for plan in plans
        ]
    )
