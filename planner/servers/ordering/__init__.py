"""Transfer ordering: strategies that rank, cut or hold the transfers of a step.

    plan = planner.servers.ordering.schedule(profile, "tac", bandwidth_bytes_per_s=1.25e9)

Simulate `plan.profile`, which strategies that cut or hold transfers rewrite (P3, ByteScheduler, Prophet),
under `plan.policy`. Imports the nouns and profiles; the simulator, which enforces the policies, imports
nothing from here.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from planner.errors import unknown_name
from planner.servers.ordering.prophet import plan_prophet
from planner.servers.ordering.strategies import (
    RANKINGS,
    Schedule,
    Setting,
    Strategy,
    plan_bytescheduler,
    plan_fifo,
    plan_p3,
)
from planner.simulator.step import Profile

STRATEGIES: dict[str, Strategy] = {
    "fifo": Strategy("no order: whole transfers as they arrive", plan_fifo),
    **RANKINGS,
    "p3": Strategy("slices spread over servers, one at a time, earliest layer first", plan_p3, cuts=True),
    "bytescheduler": Strategy(
        "partitions by layer, a credit of them under way", plan_bytescheduler, cuts=True
    ),
    "prophet": Strategy(
        "blocks of gradients that fit before the next step of backward propagation", plan_prophet, cuts=True
    ),
}

__all__ = ["STRATEGIES", "Schedule", "Setting", "Strategy", "schedule"]


def schedule(profile: Profile, name: str, **settings: Any) -> Schedule:
    """Applies a named ordering strategy to a profile; returns the rewritten profile and its transfer policy.

    Settings are those of `Setting` and of the strategy (`slice_bytes`, `credit_bytes`, ...).
    """
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES, hint="one of " + ", ".join(STRATEGIES))
    common = {entry.name for entry in fields(Setting)} & settings.keys()
    setting = Setting(**{key: settings.pop(key) for key in common})
    plan = STRATEGIES[name].plan(profile, setting, **settings)
    policy = replace(
        plan.policy, overhead_s=setting.overhead_s, download_overhead_s=setting.download_overhead_s
    )
    return replace(plan, policy=policy)
