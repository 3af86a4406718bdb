"""Plans that are not made because something known beats them: no answer changes by it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from planner.answers.recommend import recommend_for
from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.parallel.data import EXCHANGES, Exchange, Job, Site, Tier
from planner.parallel.data.single import Alone
from planner.parallel.mesh import data_parallel_group
from planner.search.cases import Cases
from planner.search.request import Request
from planner.search.screening import ABOVE, screened_space
from planner.search.simulations import Simulations, executor_of
from planner.search.space import enumerate_plans, worker_machines
from planner.servers.bounds import throughput_ceiling

ASKED = Request(
    model="alexnet",
    batches=(64,),
    hardware=("p3.2xlarge", "p3.8xlarge", "g4dn.12xlarge"),
    workers=(1, 2, 4, 8),
    interval_width=0.02,
)


SERVED = replace(ASKED, exchanges=(("servers", {}),))
ON_CPUS = replace(
    ASKED, hardware=("p3.2xlarge", "c5.9xlarge", "c5n.18xlarge")
)  # where servers are considered


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(ASKED, load_model("alexnet"))


def test_no_bound_is_above_the_ceiling(cases: Cases) -> None:
    plans = enumerate_plans(SERVED, cases.model).plans
    bounds = cases.bounds(plans) / (1 + ASKED.interval_width)
    ceilings = np.array(
        [
            throughput_ceiling(plan.exchange, cases.computation(plan), data_parallel_group(cases.site(plan)))
            for plan in plans
        ]
    )
    assert len(plans) > 300
    assert (bounds <= ceilings * ABOVE).all()
    assert np.median(ceilings / bounds) < 2.5  # near enough to rule something out
    for plan, ceiling in zip(plans, ceilings, strict=True):
        site = data_parallel_group(cases.site(plan))
        assert ceiling <= throughput_ceiling(plan.exchange, cases.computation(plan), site, links=False)


@pytest.mark.parametrize(
    "asked",
    [
        replace(ASKED, hardware=("p3.2xlarge", "g4dn.12xlarge"), workers=(1, 2, 4)),
        replace(ASKED, hardware=("c5.4xlarge",), workers=(1, 2)),
        replace(ASKED, model="efficientnet-b0", hardware=("g4dn.xlarge",), workers=(1, 2)),
    ],
)
def test_pruned_plans_could_not_win(asked: Request) -> None:
    screened, everything = (
        recommend_for(asked, advice=False, refine=False),
        recommend_for(asked, exhaustive=True, advice=False),
    )
    assert screened.considered == screened.simulated + sum(screened.pruned.values())
    assert screened.considered <= everything.considered  # a site that is pruned as a whole counts once
    assert screened.chosen.plan == everything.chosen.plan
    best = [
        [(plan.plan, plan.marks) for plan in found.plans if plan.marks] for found in (screened, everything)
    ]
    assert best[0] == best[1]


def test_most_plans_with_servers_are_never_made() -> None:
    cases = Cases(ON_CPUS, load_model("alexnet"))
    told: list[int] = []
    with executor_of(None, 2) as pool:
        space = screened_space(
            Simulations(cases, pool), worker_machines(ON_CPUS), lambda scored: told.append(len(scored))
        )
    whole = enumerate_plans(ON_CPUS, cases.model)
    assert 0 < len(space.plans) < len(whole.plans) / 3
    assert 0 < space.pruned <= whole.considered - len(space.plans) - sum(space.dropped.values())
    assert told  # what looks best is known before the race


def test_where_servers_are_named_all_their_plans_are_made(cases: Cases) -> None:
    asked = replace(ASKED, exchanges=(("servers", {}),))
    with executor_of(None, 1) as pool:
        space = screened_space(Simulations(Cases(asked, cases.model), pool), worker_machines(asked))
    assert space.pruned == 0
    assert {plan.exchange.kind for plan in space.plans} == {"servers"}


def test_contenders_know_a_ceiling() -> None:
    contenders = [kind for kind in EXCHANGES if EXCHANGES.entry(kind).tier is Tier.CONTENDER]
    assert contenders == ["servers"]
    assert all(EXCHANGES.ceiling(EXCHANGES[kind]()) for kind in contenders)
    assert EXCHANGES.ceiling(Alone()) is None


@pytest.mark.parametrize(
    ("model", "machine", "workers", "considered"),
    [
        ("resnet50", "c5.9xlarge", 2, True),
        ("resnet50", "c5.9xlarge", 1, False),
        ("resnet50", "c5.9xlarge", 32, True),
        ("resnet50", "c5.9xlarge", 33, False),
        ("llama3-8b", "c5.9xlarge", 2, False),
        ("resnet50", "p3.8xlarge", 8, False),
        ("efficientnet-b0", "g4dn.xlarge", 8, True),
        ("llama3-8b", "p4d.24xlarge", 8, False),
    ],
)
def test_servers_are_considered_where_they_may_win(
    model: str, machine: str, workers: int, considered: bool
) -> None:
    site, parameters = Site(load_hardware(machine), workers), load_model(model).parameters
    assert EXCHANGES.entry("servers").considered(parameters, site) is considered


def test_servers_are_considered_where_no_collective_can_run() -> None:
    unknown = replace(load_hardware("p3.8xlarge"), fabric=None)
    assert EXCHANGES.entry("servers").considered(25_000_000, Site(unknown, 8))


@pytest.mark.parametrize(
    "command",
    [
        "recommend --model resnet50 --budget 20",
        "simulate --model resnet50 --exchange sharded --hardware p3.8xlarge --workers 8",
    ],
)
def test_servers_are_not_imported_where_they_cannot_win(command: str) -> None:
    script = (
        f"import sys\nsys.argv = ['planner', *{command.split()!r}]\nfrom planner.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('planner.servers')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_one_device_is_bounded_by_the_mean_of_its_steps(cases: Cases) -> None:
    plans = enumerate_plans(ASKED, cases.model, only=("alone",)).plans
    jobs = [Job(plan.exchange, cases.computation(plan), cases.site(plan)) for plan in plans]
    alone = EXCHANGES["alone"]
    np.testing.assert_allclose(alone.bounds(jobs), Exchange.bounds.__func__(alone, jobs), rtol=1e-12)  # type: ignore[attr-defined]
