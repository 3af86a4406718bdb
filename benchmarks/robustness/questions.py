"""Random questions over all exchanges, precisions and kinds of machines, for soak and metamorphic runs.

A question is a request for one plan, or for the best of a small space. What cannot be asked (a precision that
the device lacks, a model that does not fit) is drawn again: `planned` gives the plan or None.
"""

from __future__ import annotations

import random
from typing import Any

from planner.answers.questions import one_plan
from planner.device.precision import PRECISIONS
from planner.errors import PlannerError
from planner.parallel.data import EXCHANGES
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.request import Request, model_of

NETWORKS = ("mnist-adam", "alexnet", "vgg11", "googlenet", "resnet18", "resnet50", "efficientnet-b0")
TRANSFORMERS = ("gpt2", "bert-base", "vit-b16", "mpt-125m", "t5-base")
MACHINES = {  # by name, the devices of one
    **{"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "g4dn.xlarge": 1, "g4dn.12xlarge": 4},
    **{"g5.xlarge": 1, "g5.12xlarge": 4, "g6.xlarge": 1, "p4d.24xlarge": 8, "p5.48xlarge": 8},
    **{"c4.8xlarge": 1, "c5.9xlarge": 1, "private-opteron": 1},
}
POLICIES = ("multiplexed", "fifo", "tic", "tac", "layer", "shuffled", "p3", "bytescheduler", "prophet")
LITTLE = {"interval_width": 0.05, "max_steps": 120}


def question(chance: random.Random, exchange: str | None = None) -> Request:
    """A request for one plan; it may be one that cannot be run."""
    machine = chance.choice(list(MACHINES))
    kind = exchange or chance.choice(list(EXCHANGES))
    devices = MACHINES[machine]
    many = devices * chance.choice((1, 1, 2, 3, 4)) if devices > 1 else chance.choice((1, 2, 3, 4, 6, 8, 12))
    given: dict[str, object] = {"exchanges": ((kind, {}),), "workers": (1 if kind == "alone" else many,)}
    if kind == "servers":
        given |= {
            "servers": (chance.choice((1, 1, 2, 4)),),
            "server_hardware": (chance.choice(("own", "colocated", "c5n.large")),),
            "policies": (chance.choice(POLICIES),),
            "mode": chance.choice(("async", "sync")),
            "placements": (chance.choice(("greedy", "round-robin")),),
        }
    return Request(
        model=chance.choice(NETWORKS if chance.random() < 0.6 else TRANSFORMERS),
        hardware=(machine,),
        batches=(chance.choice((1, 2, 4, 8, 16, 32)),),
        formats=(chance.choice(list(PRECISIONS)),),
        bandwidth_bytes_per_s=chance.choice((None, None, 2.5e7, 1.25e8, 1.25e9, 1.25e10)),
        seed=chance.randrange(4),
        **LITTLE,
        **given,  # type: ignore[arg-type]
    )


def planned(request: Request) -> tuple[Plan, Cases] | None:
    """The plan that a request means, checked; None if it cannot be run."""
    try:
        plan, cases = one_plan(request), Cases(request, model_of(request))
        cases.check(plan)
        cases.case(plan)
    except PlannerError:
        return None
    return plan, cases


def numbered(seed: int, number: int) -> Request:
    """The question of this number, one that can be run; the exchanges by turns."""
    chance = random.Random(f"{seed}/{number}")
    kinds = list(EXCHANGES)
    while True:
        request = question(chance, kinds[number % len(kinds)])
        if planned(request) is not None:
            return request


def small_space(chance: random.Random) -> Request:
    """A request whose space holds tens of plans: a few machines, counts and exchanges."""
    budget = chance.choice((None, 5.0, 20.0, 60.0))
    kinds = chance.sample(list(EXCHANGES), chance.choice((2, 3, 4)))
    served: dict[str, Any] = {
        "servers": (1, 2),
        "server_hardware": ("own",),
        "policies": ("multiplexed",),
        "placements": ("greedy",),
        "mode": chance.choice(("async", "sync")),
    }
    return Request(
        model=chance.choice(NETWORKS if chance.random() < 0.7 else TRANSFORMERS),
        hardware=tuple(chance.sample(list(MACHINES)[:-1], chance.choice((1, 2, 2)))),
        workers=(1, 2, 4, 8),
        **(served if "servers" in kinds else {}),
        exchanges=tuple((kind, {}) for kind in kinds),
        batches=(chance.choice((4, 16, 32)),),
        formats=(chance.choice(("fp32", "fp32", "fp16", "bf16")),),
        bandwidth_bytes_per_s=chance.choice((None, 1.25e8, 1.25e9)),
        budget_usd_per_hour=budget,
        objective="fastest" if budget is not None else chance.choice(("fastest", "cheapest")),
        seed=chance.randrange(4),
        **LITTLE,  # type: ignore[arg-type]
    )
