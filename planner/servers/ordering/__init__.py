"""Transfer ordering: one strategy a file behind one small interface, and the measures of an order.

    policy = planner.servers.ordering.order(profile, "tac", bandwidth_bytes_per_s=1.25e9)
    plan = planner.servers.ordering.schedule(profile, "prophet", bandwidth_bytes_per_s=1.25e9)

`order` ranks the transfers of a profile as they are. `schedule` also rewrites the profile for strategies that
cut or hold transfers (P3, ByteScheduler, Prophet): simulate `plan.profile` under `plan.policy`.
Imports the nouns and profiles; the simulator imports nothing from here and enforces the policies.
`download_overhead_s` None means the same as `overhead_s`.
"""

from __future__ import annotations

from typing import Any

from planner.errors import unknown_name
from planner.servers.ordering.prophet import Prophet
from planner.servers.ordering.strategies import (
    P3,
    ByteScheduler,
    LayerOrder,
    NoOrder,
    Reverse,
    Schedule,
    Setting,
    Shuffled,
    Simple,
    Strategy,
    Tac,
    Tic,
)
from planner.simulator.policy import Policy
from planner.simulator.step import Profile

STRATEGIES: dict[str, type[Strategy]] = {
    cls.name: cls
    for cls in (NoOrder, Tic, Tac, Simple, LayerOrder, Shuffled, Reverse, P3, ByteScheduler, Prophet)
}

__all__ = ["STRATEGIES", "Schedule", "Setting", "Strategy", "order", "schedule", "strategy"]


def strategy(name: str, **options: Any) -> Strategy:
    """The strategy of this name, with its own options (`slice_bytes`, `credit_bytes`, ...)."""
    if name not in STRATEGIES:
        raise unknown_name("strategy", name, STRATEGIES, hint="one of " + ", ".join(STRATEGIES))
    return STRATEGIES[name](**options)


def order(
    profile: Profile,
    name: str,
    *,
    bandwidth_bytes_per_s: float,
    overhead_s: float = 0.0,
    download_overhead_s: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Policy:
    """The policy of a strategy for the transfers of this profile as they are."""
    setting = Setting(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        overhead_s=overhead_s,
        download_overhead_s=download_overhead_s,
        seed=seed,
    )
    return setting.priced(strategy(name, **options).policy(profile, setting))


def schedule(
    profile: Profile,
    name: str,
    *,
    bandwidth_bytes_per_s: float,
    overhead_s: float = 0.0,
    download_overhead_s: float | None = None,
    seed: int = 0,
    **options: Any,
) -> Schedule:
    """The profile as a strategy would run it (cut, held) and the policy that goes with it."""
    setting = Setting(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        overhead_s=overhead_s,
        download_overhead_s=download_overhead_s,
        seed=seed,
    )
    return strategy(name, **options).schedule(profile, setting)
