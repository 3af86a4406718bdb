"""How the flags are written that speak of strategies, networks and recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from planner import flags
from planner.errors import BadInput, unknown_name
from planner.flags import FlagType

if TYPE_CHECKING:
    from planner.simulator.step import Profile


def _read_network(value: str, option: str) -> tuple[str | None, bool | None]:
    """Parses `burst`, `tcp` or `burst,tcp` into NIC bandwidth and use of RDMA."""
    known = {"baseline": 0, "burst": 0, "tcp": 1, "rdma": 1}
    chosen: list[str | None] = [None, None]
    for word in flags.parse_names(value):
        if word not in known:
            raise BadInput(f"{option} is {value!r}; it is baseline or burst, and tcp or rdma, as burst,tcp")
        if chosen[known[word]] not in (None, word):
            raise BadInput(
                f"{option} {chosen[known[word]]} and {word} contradict each other; give one of them"
            )
        chosen[known[word]] = word
    return chosen[0], None if chosen[1] is None else chosen[1] == "rdma"


def _read_exchanges(value: str | Sequence[str], option: str) -> tuple[tuple[str, dict[str, str]], ...] | None:
    """Parses `ddp,zero2` or `allreduce:bucket_bytes=1048576` into strategies; None for `all`."""
    from planner.parallel.data import ALIASES
    from planner.parallel.data import EXCHANGES as STRATEGIES

    words = flags.parse_names(value)
    if words == ("all",):
        return None
    chosen = []
    for word in words:
        name, *given = word.split(":")
        kind, fixed = ALIASES.get(name, (name, {}))
        if kind not in STRATEGIES:
            known = [*STRATEGIES, *ALIASES]
            raise unknown_name("exchange", kind, known, hint=f"one of {STRATEGIES.words} or all")
        choices = fixed | dict(choice.partition("=")[::2] for choice in given)
        known = [field.name for field in fields(STRATEGIES[kind])]  # type: ignore[arg-type]
        for name in choices:
            if name not in known:
                raise unknown_name(f"choice of {kind}", name, known, hint="one of " + ", ".join(known))
        chosen.append((kind, choices))
    return tuple(chosen)


def _read_placements(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    from planner.servers.placement import RULES

    return _check_names("placement", flags.parse_names(value), RULES, every=tuple(RULES))


def _read_policies(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    from planner.servers.ordering import STRATEGIES

    known = ("multiplexed", "fifo", *(name for name in STRATEGIES if name != "fifo"))
    every = ("multiplexed", "tic", "tac", "p3", "bytescheduler", "prophet")
    return _check_names("policy", flags.parse_names(value), known, every=every)


def _check_names(kind: str, words: tuple[str, ...], known: Any, every: tuple[str, ...]) -> tuple[str, ...]:
    """Checks that each name is known and returns the names; `all` is replaced by `every`."""
    if words == ("all",):
        return every
    for word in words:
        if word not in known:
            raise unknown_name(kind, word, known, hint="one of " + ", ".join(known))
    return words


def _open_profiles(value: Any, option: str) -> tuple[Profile, tuple[Profile, ...]]:
    """Opens the profiles; returns the first one and the others, recorded at other batches."""
    from planner.device.recorded import open_step

    given = profile_paths(value) if isinstance(value, str | list | tuple) else [value]
    first, *more = (open_step(profile) if isinstance(profile, str) else profile for profile in given)
    return first, tuple(more)


def profile_paths(value: str | Sequence[Any]) -> list[Any]:
    """Splits --profile at commas, unless the whole text is the name of an existing file."""
    from os.path import exists

    if isinstance(value, str):
        return [value] if exists(value) else list(flags.parse_names(value))
    return list(value)


def _read_input(value: str | float, option: str) -> str | float:
    """Parses the image input: `jpeg`, `dali`, `none` or images per second per vCPU."""
    if value in ("jpeg", "dali", "none"):
        return value
    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0.001 <= rate <= 1e9:
        raise BadInput(
            f"{option} is {value!r:.40}; it is jpeg, dali, none or images per second per vCPU, as 150"
        )
    return rate


_NAMES = str | Sequence[str]
JOINED = FlagType(_NAMES, lambda value, option: ",".join(flags.parse_names(value)), metavar="NAMES")
BATCHES = FlagType(
    int | str | Sequence[int | str],
    lambda value, option: value if value == "auto" else flags.parse_counts(value, option),
    metavar="N,...",
)
PROFILES = FlagType(_NAMES, _open_profiles, python="str | Sequence[str] | Profile")
NETWORK = FlagType(str, _read_network)
EXCHANGES = FlagType(_NAMES, _read_exchanges, metavar="NAMES")
PLACEMENTS = FlagType(_NAMES, _read_placements, metavar="NAMES")
POLICIES = FlagType(_NAMES, _read_policies, metavar="NAMES")
INPUT = FlagType(str | float, _read_input, metavar="NAME|RATE")
