"""Values of flags: how strategies, networks and recordings are written, defaults and ranges of the others,
and flags that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from planner import flags
from planner.errors import BadInput, unknown_name
from planner.flags import Flag, FlagType, flags_of, option_name, read_flags
from planner.parallel.mesh import reject_settings_without_degree

if TYPE_CHECKING:
    from planner.model import Model
    from planner.search.request import Request
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
            raise unknown_name("exchange", kind, known, hint=f"one of {STRATEGIES.help_text} or all")
        choices = fixed | dict(choice.partition("=")[::2] for choice in given)
        known = [field.name for field in fields(STRATEGIES[kind])]  # type: ignore[arg-type]
        for name in choices:
            if name not in known:
                raise unknown_name(f"choice of {kind}", name, known, hint="one of " + ", ".join(known))
        chosen.append((kind, choices))
    return tuple(chosen)


def _read_placements(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    """Parses names of placement rules for parameters on servers."""
    from planner.servers.placement import RULES

    return _check_names("placement", flags.parse_names(value), RULES, every=tuple(RULES))


def _read_policies(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    """Parses names of transfer policies for links to servers."""
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
FLAG_TYPES = {
    name.lower(): kind for name, kind in {**vars(flags), **globals()}.items() if isinstance(kind, FlagType)
}


def request_flags() -> tuple[Flag, ...]:
    """The flags of `flags.toml`, with help on mesh axes and strategies from their registries."""
    from planner.parallel.data import EXCHANGES
    from planner.parallel.mesh import axis_help

    helps = {name: axis_help(name) for name in ("tensor", "pipeline", "interleave")}
    helps["exchange"] = (
        f"Data parallelism: {EXCHANGES.help_text} or all; with options: ddp:bucket_bytes=4194304."
    )
    return read_flags(files("planner.search").joinpath("flags.toml").read_text("utf-8"), FLAG_TYPES, helps)


Objective = Literal["balanced", "cheapest", "fastest"]

CONFIDENCE = 0.90  # with which deadline and spend are met
MIN_MARGINAL_EFFICIENCY = 0.5  # extra samples cost at most twice the cheapest ones
MOST_WORKERS = 4096  # a minute of CPU for a ResNet-50
MOST_SERVERS = 512
MOST_PAIRS = 2**17  # of a worker and a server: each has links of its own


def check_size(workers: int, servers: int = 1) -> None:
    """Raises an error for more workers, servers or links than the simulator supports."""
    for flag, count, most in (("--workers", workers, MOST_WORKERS), ("--servers", servers, MOST_SERVERS)):
        if count > most:
            raise BadInput(f"{flag} is {count:,}; at most {most:,} are simulated")
    if workers * servers > MOST_PAIRS:
        raise BadInput(
            f"--workers {workers:,} with --servers {servers:,} have {workers * servers:,} links; at most "
            f"{MOST_PAIRS:,} are simulated: take at most {MOST_PAIRS // workers:,} servers"
        )


LEAST_SHARE = 1e-9  # interruptions so rare give checkpoint intervals beyond any run


def check_ranges(request: Request) -> None:
    """Raises an error for values out of range and unknown names."""
    if not 0.5 <= request.confidence < 1:
        raise BadInput(f"--confidence is {request.confidence:g}; it lies between 50% and 100%, as 90%")
    efficiency = request.min_marginal_efficiency
    if not 0 < efficiency <= 1:
        raise BadInput(f"--min-marginal-efficiency is {efficiency:g}; it lies above 0 and is at most 100%")
    if not 1e-6 <= request.interval_width < 0.5:
        raise BadInput(
            f"--interval-width is {request.interval_width:g}; it must lie between 0.000001 and 0.5"
        )
    share = request.interruptions
    if share is not None and share != 0 and not LEAST_SHARE <= share < 1:
        raise BadInput(
            f"--interruptions is {share:g}; it is the share of machines interrupted per month, 0 or "
            f"{LEAST_SHARE:g} to 1, as 10%"
        )
    for name in ("workers", "servers", "workers_per_replica", "batches"):
        values = getattr(request, name)
        if values not in (None, "auto") and not (values and all(value >= 1 for value in values)):
            raise BadInput(f"{flag_of(name)} must hold whole numbers from 1 on")
    check_size(max(request.workers or (1,)), max(request.servers or (1,)))
    if request.formats is not None:
        _check_precisions(request.formats)
    if request.recompute is not None:
        from planner.device.activations import find_recompute_mode

        modes = tuple(find_recompute_mode(name, request.framework) for name in request.recompute)
        object.__setattr__(request, "recompute", modes)  # `selective` depends on the framework
    if request.framework is not None:
        from planner.device.rates.times import find_framework

        find_framework(request.framework)


def job_samples(request: Request, epochs: float | None, tokens: float | None) -> float | None:
    """Length of the job in samples. Raises an error if unknown although a deadline or spend is given."""
    given = {"--epochs": epochs, "--samples": request.samples, "--tokens": tokens}
    several = [option for option, value in given.items() if value is not None]
    if len(several) > 1:
        raise BadInput(f"{' and '.join(several)} contradict each other; give one of them")
    samples, limited = request.samples, not (request.deadline_s is None and request.spend_usd is None)
    if epochs is not None or tokens is not None or (limited and samples is None and request.profile is None):
        from planner.search.request import model_of

        samples = _convert_to_samples(model_of(request), epochs, tokens)
    if limited and samples is None:
        limit = "--spend" if request.deadline_s is None else "--deadline"
        raise BadInput(f"{limit} needs the length of the job; add --epochs or --samples")
    return samples


def check_contradictions(request: Request) -> None:
    """Raises an error for flags that exclude or require another flag."""
    if request.bandwidth_bytes_per_s is not None and request.network is not None:
        raise BadInput(f"--bandwidth and --network {request.network} contradict each other; give one of them")
    if request.framework is not None and request.profile is not None:
        raise BadInput("--framework contradicts --profile, whose steps have their own software")
    if request.accumulate is not None and request.global_batch is not None:
        raise BadInput("--accumulate and --global-batch contradict each other; give one of them")
    reject_settings_without_degree(request.axis_settings)
    for name in ("interruptions", "checkpoint_every_s", "restart_s"):
        if getattr(request, name) is not None and not request.spot:
            raise BadInput(f"{flag_of(name)} is about spot machines; add --spot")
    if request.profile is not None:
        check_profile(request, request.profile)
    if request.exchanges is None:
        return
    from planner.parallel.data import EXCHANGES

    named = [kind for kind, _ in request.exchanges]
    for kind in EXCHANGES:
        given = [name for name in EXCHANGES.entry(kind).fields if getattr(request, name) is not None]
        if given and kind not in named:
            words = f"{flag_of(given[0])} is a choice of --exchange {kind}"
            raise BadInput(f"{words}, and --exchange names {', '.join(named)}; leave one of them out")


def check_profile(request: Request, profile: Profile) -> None:
    """Raises an error for flags that contradict a recorded profile."""
    if request.model != profile.model and _model_name(request.model) != profile.model:
        raise BadInput(
            f"--model {request.model} contradicts --profile, whose steps are those of {profile.model}; "
            "leave --model out, or import the trace again with the right --model"
        )
    if request.batches == "auto":
        raise BadInput(
            f"--batch auto contradicts --profile, which was recorded at batch {profile.batch} and does "
            "not tell what fits in memory; name the batches"
        )
    assert request.recordings is not None
    for batch in request.batches or ():
        request.recordings.check_batch(batch)
    known = profile.recorded
    if request.formats is not None and known is not None and request.formats != (known.facts.precision,):
        raise BadInput(
            f"--precision {','.join(request.formats)} contradicts --profile, which was recorded in "
            f"{known.facts.precision}; record one in that precision, or leave --precision out"
        )


def _check_precisions(names: Sequence[str]) -> None:
    """Raises BadInput for unknown number formats."""
    from planner.device.precision import PRECISIONS, find_precision

    for name in names:
        if name.replace(".", "", 1).isdecimal():
            raise BadInput(
                f"--precision is {name}; it names number formats ({', '.join(PRECISIONS)}), and "
                f"--interval-width {name} is the width of the simulation's interval"
            )
        find_precision(name)


def _convert_to_samples(model: Model, epochs: float | None, tokens: float | None) -> float | None:
    """Converts epochs or tokens to samples; without either, returns the model's default job."""
    if tokens is not None:
        if model.sequence_length is None:
            raise BadInput(f"{model.name} reads no sequence of tokens; give --samples or --epochs")
        return tokens / (model.sample_tokens or 1)
    if epochs is not None:
        if model.samples_per_epoch is None:
            raise BadInput(f"{model.name} has no samples_per_epoch; give --samples instead of --epochs")
        return epochs * model.samples_per_epoch
    return model.default_job_samples


def _model_name(model: str) -> str:
    """Name of the model; read from the file if a path is given."""
    from planner.files.regular_file import is_path_like
    from planner.model.catalog import load_model

    return load_model(model).name if is_path_like(model) else model


def flag_of(name: str) -> str:
    """Command-line option that sets a field of `Request`."""
    from planner.search.request import Request

    declared = (flag_ for flag_ in flags_of(Request) if name in flag_.fields)
    return next((flag_.option for flag_ in declared), option_name(name))
