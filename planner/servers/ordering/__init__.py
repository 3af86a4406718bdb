"""Transfer ordering: strategies behind one small interface, and the measures of an order.

    policy = planner.servers.ordering.order(profile, "tac", bandwidth_bytes_per_s=1.25e9)
    plan = planner.servers.ordering.schedule(profile, "prophet", bandwidth_bytes_per_s=1.25e9)

`order` ranks the transfers of a profile as they are. `schedule` also rewrites the profile for strategies that
cut or hold transfers (P3, ByteScheduler, Prophet): simulate `plan.profile` under `plan.policy`.
Imports the nouns and profiles; the simulator imports nothing from here and enforces the policies.
Settings are those of `Setting` and of the strategy; `download_overhead_s` None means as `overhead_s`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from planner.errors import unknown_name
from planner.servers.ordering.prophet import Prophet
from planner.servers.ordering.strategies import (
    P3,
    RANKINGS,
    ByteScheduler,
    NoOrder,
    Schedule,
    Setting,
    Strategy,
)
from planner.simulator.policy import Policy
from planner.simulator.step import Profile

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        NoOrder("fifo", "no order: whole transfers as they arrive"),
        *RANKINGS,
        P3("p3", "slices spread over servers, one at a time, earliest layer first"),
        ByteScheduler("bytescheduler", "partitions by layer, a credit of them under way"),
        Prophet("prophet", "blocks of gradients that fit before the next step of backward propagation"),
    )
}

__all__ = ["STRATEGIES", "Schedule", "Setting", "Strategy", "order", "schedule", "strategy"]


def strategy(name: str, **options: Any) -> Strategy:
    """Looks up an ordering strategy and applies its own settings (`slice_bytes`, `credit_bytes`, ...)."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES, hint="one of " + ", ".join(STRATEGIES))
    return replace(STRATEGIES[name], **options)


def order(profile: Profile, name: str, **settings: Any) -> Policy:
    """Policy by which a named strategy orders the transfers of a profile, without cutting them."""
    chosen, setting = _strategy_and_setting(name, settings)
    return setting.add_overhead(chosen.policy(profile, setting))


def schedule(profile: Profile, name: str, **settings: Any) -> Schedule:
    """Applies a named strategy to a profile: the rewritten profile (transfers cut or held) and its policy."""
    chosen, setting = _strategy_and_setting(name, settings)
    return chosen.schedule(profile, setting)


def _strategy_and_setting(name: str, settings: dict[str, Any]) -> tuple[Strategy, Setting]:
    """Separates a strategy's own settings, which it is given, from those that all strategies share."""
    common = {entry.name for entry in fields(Setting)} & settings.keys()
    own = {key: value for key, value in settings.items() if key not in common}
    return strategy(name, **own), Setting(**{key: settings[key] for key in common})
