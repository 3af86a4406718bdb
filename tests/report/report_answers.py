"""Small real answers for the tests of reports, and one large one that is made up."""

import atexit
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from planner.answers.questions import compare, recommend, saturation, simulation_for
from planner.search.request import Request
from planner.search.scored import ScoredPlan
from planner.servers.order_request import OrderRequest, compare_requested_orders
from planner.servers.synthesis import profile_for

HOSTILE = "<img src=x onerror=alert(1)>"
NOTE = "</script><script>alert(2)</script><b>bold</b> & $5"
SMALL = """
description = '''{note}'''
source = '''{note}'''
input = [28, 28, 1]
default_batch = 40
samples_per_epoch = 60_000
layers = [
  {{ conv = 24, kernel = 5 }}, {{ max_pool = 2 }}, {{ conv = 16, kernel = 5 }}, {{ max_pool = 2 }},
  {{ fc = 120, then = ["bias", "relu"] }}, {{ fc = 10, then = ["bias"] }}, {{ softmax = true }},
]
[defaults]
conv = {{ then = ["bias", "relu"] }}
"""


@cache
def hostile_model() -> str:
    """The path of a model whose name, description and source are markup."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    path = folder / f"{HOSTILE}.toml"
    path.write_text(SMALL.format(note=NOTE))
    return str(path)


ABOUT = {"hardware": "p3.2xlarge,c4.8xlarge", "workers": "1,2,4", "servers": "1,2", "interval_width": 0.1}


@cache
def recommended():
    return recommend(hostile_model(), budget=40.0, jobs=1, **ABOUT)


@cache
def compared():
    return compare(hostile_model(), jobs=1, **ABOUT)


@cache
def saturated():
    return saturation("alexnet", batch="64", hardware="p3.2xlarge", interval_width=0.1, jobs=1)


@cache
def simulated():
    return simulation_for(
        Request(model="alexnet", hardware=("p3.2xlarge",), workers=(2,), servers=(2,), interval_width=0.1)
    )


@cache
def ordered():
    return compare_requested_orders(
        OrderRequest(model=hostile_model(), hardware="p3.2xlarge", strategies="fifo,tac", workers=2)
    )


@cache
def swept():
    """Every plan of a small grid, as a sweep gives it."""
    from planner.answers.sweep import SweepResult

    result = recommended()
    rows = list({scored.plan.key: scored for scored in [*result.everything, *result.screened]}.values())
    return SweepResult(rows, {}, len(rows), {}, False, result.request)


@cache
def partitioned():
    """The tables of a small partition."""
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model
    from planner.servers.partition.page import partition_tables
    from planner.servers.partition.search import PartitionRequest, partition

    model, machine = load_model(hostile_model()), load_hardware("c4.8xlarge")
    request = PartitionRequest(4)
    return partition_tables(partition(model, machine, request))


@cache
def profiled():
    from planner.hardware.catalog import load_hardware
    from planner.model.catalog import load_model

    return profile_for(load_model(hostile_model()), 32, load_hardware("p3.2xlarge"), 2)


def many_plans(count: int):
    """A recommendation with `count` plans: the small one's, over and over, a little different each time."""
    result = recommended()
    every = [result.chosen]
    for index in range(count - 1):
        scored = result.everything[index % len(result.everything)]
        factor = 1 + index / count
        plan = replace(scored.plan, workers=1000 + index)
        prediction = replace(scored.prediction, samples_per_s=scored.samples_per_s * factor)
        every.append(ScoredPlan(plan, scored.costs, 1e5, prediction, scored.device))
    return replace(result, everything=every, plans=every[:20], screened=[], bounded=[])


def twenty_machines():
    """A recommendation over twenty kinds of machine with long names, three of them marked."""
    result = recommended()
    own = result.request.market.find_machine(result.chosen.plan.machine)
    every = []
    for index in range(20):
        name = f"Standard_NC{index}ads_A100_v4"
        plan = replace(result.chosen.plan, machine=name)
        prediction = replace(result.chosen.prediction, samples_per_s=900.0 * (1 + index / 4))
        marks = {18: ("cheapest",), 19: ("fastest",), 17: ("best value",)}.get(index, ())
        costs = [replace(cost, machine=name) for cost in result.chosen.costs]
        every.append(
            replace(result.chosen, plan=plan, prediction=prediction, marks=marks, costs=tuple(costs))
        )
    request = replace(result.request)
    kinds = [replace(own, name=entry.plan.machine) for entry in every]
    request.__dict__["market"] = replace(request.market, own=(*request.market.own, *kinds))
    return replace(
        result,
        request=request,
        chosen=every[-1],
        plans=every,
        everything=every,
        screened=[],
        bounded=[],
        saturation=None,
        changes=[],
    )


def shown(answer, width=1000, **about):
    """What a terminal shows of an answer, with all assumptions."""
    from planner.report.page import page_of
    from planner.report.terminal import screen_lines

    return "\n".join(line.plain for line in screen_lines(page_of(answer, **about), width))
