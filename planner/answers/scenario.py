"""Scenarios: the words of flags and of `configs/*.toml` made into a request.

A scenario has one field for each flag, as people write it. A flag wins over an environment variable
(`PLANNER_BUDGET`), which wins over the file given with `--config`, which wins over the defaults.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from planner.device.precision import PRECISIONS
from planner.errors import BadInput, PlannerWarning, unknown_name
from planner.model import Model
from planner.search.request import Request, model_of
from planner.units import bandwidth_bytes_per_s

if TYPE_CHECKING:
    from planner.files.tomlfile import TomlSource
    from planner.simulator.step import Profile

_THOUSANDS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_DURATION_S = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_COUNT = 4096
Words = str | int | list[int | str]


class Scenario(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A question as written. Every field may stand in a config file; `description` is for its reader."""

    description: str = ""
    model: str | None = None
    hardware: str | list[str] | None = None
    gpu: str | list[str] | None = None
    provider: str | list[str] | None = None
    sold: bool | None = None
    server_hardware: str | list[str] | None = None
    workers: Words | None = None
    servers: Words | None = None
    workers_per_replica: Words | None = None
    batch: Words | None = None
    placement: str | list[str] | None = None
    policy: str | list[str] | None = None
    mode: str | None = None
    exchange: str | list[str] | None = None
    objective: str | None = None
    budget: float | None = None
    spend: float | None = None
    deadline: str | float | None = None
    epochs: float | None = None
    samples: float | None = None
    machines: int | None = None
    min_throughput: float | None = None
    region: str | None = None
    spot: bool | None = None
    interruptions: str | float | None = None
    checkpoint_every: str | float | None = None
    restart: str | float | None = None
    network: str | None = None
    bandwidth: str | None = None
    profile: str | list[str] | None = None
    threshold: float | None = None
    max_workers: int | None = None
    seed: int | None = None
    precision: str | float | list[str] | None = None
    interval_width: float | None = None
    recompute: str | list[str] | None = None
    accumulate: int | None = None
    global_batch: int | None = None
    seq_length: int | None = None
    framework: str | None = None
    tokens: str | float | None = None
    tensor: Words | None = None
    pipeline: Words | None = None
    interleave: Words | None = None
    max_steps: int | None = None


def read_scenario(path: Path) -> Scenario:
    """A scenario from a TOML file; what is wrong is said with file, line and key."""
    from planner.files.tomlfile import read

    source = read(path)
    return scenario_of(source, source.data)


def scenario_of(source: TomlSource, values: Mapping[str, Any]) -> Scenario:
    """A scenario of these values of a file; the paths in it are relative to the file."""
    from planner.files.folders import looks_like_path
    from planner.files.regular_file import expanded
    from planner.files.tomlfile import decode

    def beside(path: str) -> str:
        return os.path.join(source.path.parent, expanded(path))

    out = decode(source, values, Scenario)
    if out.profile is not None:
        paths = [beside(path) for path in profile_paths(out.profile)]
        out.profile = paths if len(paths) > 1 else paths[0]
    if out.model is not None and looks_like_path(out.model):
        out.model = beside(out.model)
    for name in ("hardware", "server_hardware"):
        if (words := _words(getattr(out, name))) is not None:
            setattr(out, name, [beside(word) if looks_like_path(word) else word for word in words])
    return out


def merged(flags: Mapping[str, Any], config: Path | None) -> Scenario:
    """The flags that were given over the file."""
    scenario = read_scenario(config) if config is not None else Scenario()
    given = {name: value for name, value in flags.items() if value is not None}
    return msgspec.structs.replace(scenario, **given)


def request_from(scenario: Scenario) -> tuple[Request, Model]:
    """The request that a scenario means, and its model."""
    scenario = _renamed(scenario)
    profiles: tuple[Profile, ...] = ()
    if scenario.profile is not None:
        from planner.device.recorded.loader import open_step

        profiles = tuple(open_step(path) for path in profile_paths(scenario.profile))
    profile = profiles[0] if profiles else None
    name = scenario.model or (profile.model if profile is not None else None)
    if not name:
        raise BadInput("no model is given; add --model NAME (see `planner models`) or --profile FILE")
    model = model_of(Request(model=name, profile=profile, sequence_length=scenario.seq_length))
    named = ("epochs", "samples", "tokens")
    asked = [f"--{word}" for word in named if getattr(scenario, word) is not None]
    if len(asked) > 1:
        raise BadInput(f"{' and '.join(asked)} contradict each other; give one of them")
    samples = scenario.samples
    if scenario.tokens is not None:
        if model.sequence_length is None:
            raise BadInput(f"{model.name} reads no sequence of tokens; give --samples or --epochs")
        samples = token_count(scenario.tokens) / model.sequence_length
    if scenario.epochs is not None:
        if model.samples_per_epoch is None:
            raise BadInput(f"{model.name} has no samples_per_epoch; give --samples instead of --epochs")
        if not (math.isfinite(scenario.epochs) and scenario.epochs > 0):
            raise BadInput(f"--epochs is {scenario.epochs:g}; it must be a number above zero")
        samples = scenario.epochs * model.samples_per_epoch
    if samples is None and not (scenario.deadline is None and scenario.spend is None) and profile is None:
        samples = model.usual_samples  # the job that every answer is about, where nothing else is said
    network, rdma = _network(scenario.network)
    if scenario.bandwidth is not None and network is not None:
        raise BadInput(f"--bandwidth and --network {network} contradict each other; give one of them")
    given: dict[str, Any] = {
        "hardware": _words(scenario.hardware),
        "gpu": None if scenario.gpu is None else ",".join(_words(scenario.gpu) or ()),
        "providers": _words(scenario.provider),
        "sold": scenario.sold,
        "exchanges": _exchanges(scenario.exchange),
        "server_hardware": _words(scenario.server_hardware),
        "workers": counts(scenario.workers, "--workers"),
        "servers": counts(scenario.servers, "--servers"),
        "workers_per_replica": counts(scenario.workers_per_replica, "--workers-per-replica"),
        "batches": "auto" if scenario.batch == "auto" else counts(scenario.batch, "--batch"),
        "placements": _placements(scenario.placement),
        "policies": _policies(scenario.policy),
        "mode": scenario.mode,
        "objective": scenario.objective,
        "budget_usd_per_hour": scenario.budget,
        "spend_usd": scenario.spend,
        "deadline_s": _duration(scenario.deadline, "--deadline"),
        "samples": samples,
        "machines": scenario.machines,
        "min_samples_per_s": scenario.min_throughput,
        "region": scenario.region,
        "spot": scenario.spot,
        "interruptions": None if scenario.interruptions is None else share(scenario.interruptions),
        "checkpoint_every_s": _duration(scenario.checkpoint_every, "--checkpoint-every"),
        "restart_s": _duration(scenario.restart, "--restart"),
        "network": network,
        "rdma": rdma,
        "bandwidth_bytes_per_s": (
            None if scenario.bandwidth is None else bandwidth_bytes_per_s(scenario.bandwidth)
        ),
        "profile": profile,
        "more_profiles": profiles[1:],
        "seed": scenario.seed,
        "interval_width": scenario.interval_width,
        "formats": _words(scenario.precision),  # type: ignore[arg-type]  # no number any more
        "recompute": _words(scenario.recompute),
        "accumulate": scenario.accumulate,
        "global_batch": scenario.global_batch,
        "sequence_length": scenario.seq_length,
        "framework": scenario.framework,
        "tensor": counts(scenario.tensor, "--tensor"),
        "pipeline": counts(scenario.pipeline, "--pipeline"),
        "interleave": counts(scenario.interleave, "--interleave"),
        "max_steps": scenario.max_steps,
    }
    given = {key: value for key, value in given.items() if value is not None}
    return Request(model=name, **given), model


def profile_paths(words: str | list[str]) -> list[str]:
    """The files of `--profile`: one, or recordings at several batches with commas between them."""
    if isinstance(words, list):
        return words
    return [words] if os.path.exists(words) else [part.strip() for part in words.split(",") if part.strip()]


def token_count(words: str | float) -> float:
    """`15B`, `300M`, `2T` or a number as tokens."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKMBTG]?)\s*", str(words))
    try:
        value = float(match[1]) * _THOUSANDS[match[2].upper()] if match else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"--tokens is {words!r}; write a number above zero, as 15B, 300M or 2T")
    return value


def _network(words: str | None) -> tuple[str | None, bool | None]:
    """`burst`, `tcp` or `burst,tcp`: which figure of the NIC, and whether RDMA is used."""
    known = {"baseline": 0, "burst": 0, "tcp": 1, "rdma": 1}
    found: list[str | None] = [None, None]
    for word in _words(words) or ():
        if word not in known:
            raise BadInput(f"--network is {words!r}; it is baseline or burst, and tcp or rdma, as burst,tcp")
        if found[known[word]] not in (None, word):
            raise BadInput(
                f"--network {found[known[word]]} and {word} contradict each other; give one of them"
            )
        found[known[word]] = word
    return found[0], None if found[1] is None else found[1] == "rdma"


def _renamed(scenario: Scenario) -> Scenario:
    """Words of the release before: `precision = 0.01` was the half-width of the interval."""
    try:
        number = float(str(scenario.precision))
    except ValueError:
        return scenario
    if scenario.interval_width is not None:
        raise BadInput(
            f"--precision is {number:g}; it names number formats ({', '.join(PRECISIONS)}), and the "
            "half-width of the interval is given already (--interval-width)"
        )
    import warnings

    words = (
        f"--precision {number:g} is --interval-width {number:g} now, as which it is taken until the next "
        f"release; --precision names number formats ({', '.join(PRECISIONS)})"
    )
    warnings.warn(words, PlannerWarning, stacklevel=2)
    return msgspec.structs.replace(scenario, precision=None, interval_width=number)


def counts(words: Words | None, flag: str) -> tuple[int, ...] | None:
    """`1,2,4`, `1-8` or a list as whole numbers in ascending order."""
    if words is None:
        return None
    parts = words if isinstance(words, list) else str(words).split(",")
    out: set[int] = set()
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,7})\s*(?:(?:-|\.\.)\s*(\d{1,7}))?\s*", str(part))
        if not match:
            raise BadInput(f"{flag} is {words!r}; write whole numbers as 8 or 1,2,4 or 1-8")
        low, high = int(match[1]), int(match[2] or match[1])
        if not 1 <= low <= high or high - low > MAX_COUNT:
            raise BadInput(f"{flag} is {words!r}; counts start at 1 and a range goes upwards")
        out.update(range(low, high + 1))
        if len(out) > MAX_COUNT:
            raise BadInput(f"{flag} holds more than {MAX_COUNT} numbers; give fewer")
    return tuple(sorted(out))


def duration_s(words: str | float, flag: str = "--deadline") -> float:
    """`36h`, `90min`, `2d` as seconds; a bare number is hours."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(words).lower())
    if not match or (match[2] or "h") not in _DURATION_S:
        raise BadInput(f"{flag} {words!r} is not understood; write it as 36h, 90min or 2d")
    value = float(match[1]) * _DURATION_S[match[2] or "h"]
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"{flag} {words!r} must be above zero")
    return value


def _duration(words: str | float | None, flag: str) -> float | None:
    return None if words is None else duration_s(words, flag)


def share(words: str | float) -> float:
    """`10%` or 0.1 as a share."""
    text = str(words).strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise BadInput(f"--interruptions is {words!r}; write a share of machines a month, as 10%") from None


def _words(value: str | list[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    parts = value if isinstance(value, list) else value.split(",")
    return tuple(part.strip() for part in parts if part.strip())


def _exchanges(value: str | list[str] | None) -> tuple[tuple[str, dict[str, str]], ...] | None:
    """`servers,alone` or `allreduce:bucket_bytes=1048576` as kinds with the choices that they fix."""
    from planner.parallel.data import EXCHANGES

    words = _words(value)
    if words in (None, ("all",)):
        return None
    out = []
    for word in words or ():
        kind, *given = word.split(":")
        if kind not in EXCHANGES:
            raise unknown_name("exchange", kind, EXCHANGES, hint="one of all, " + ", ".join(EXCHANGES))
        choices = dict(one.partition("=")[::2] for one in given)
        names = [one.name for one in dataclass_fields(EXCHANGES[kind])]  # type: ignore[arg-type]
        for name in choices:
            if name not in names:
                raise unknown_name(f"choice of {kind}", name, names, hint="one of " + ", ".join(names))
        out.append((kind, choices))
    return tuple(out)


def _placements(value: str | list[str] | None) -> tuple[str, ...] | None:
    from planner.servers.placement import RULES

    words = _words(value)
    if words == ("all",):
        return tuple(RULES)
    for word in words or ():
        if word not in RULES:
            raise unknown_name("placement", word, RULES, hint="one of " + ", ".join(RULES))
    return words


def _policies(value: str | list[str] | None) -> tuple[str, ...] | None:
    from planner.servers.ordering import STRATEGIES

    known = ("multiplexed", "fifo", *(name for name in STRATEGIES if name != "fifo"))
    words = _words(value)
    if words == ("all",):
        return ("multiplexed", "tic", "tac", "p3", "bytescheduler", "prophet")
    for word in words or ():
        if word not in known:
            raise unknown_name("policy", word, known, hint="one of " + ", ".join(known))
    return words
