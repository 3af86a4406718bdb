"""The four questions as functions of a request, and as the Python API (`planner.recommend("vgg11", ...)`).

Options are flags or keys of a scenario file (`--config`); together they make a request. A flag wins over an
environment variable (`PLANNER_BUDGET`), which wins over the file given with `--config`, which wins over the
defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from planner.answers.assumptions import assumptions
from planner.answers.parts import (
    VERSION,
    RenderableAnswer,
    StepDetails,
    assumption_sentences,
    single_device_plan,
    step_details,
)
from planner.errors import BadInput, Infeasible, PlannerError, unknown_name
from planner.flags import flags_of, option_name, parse_names
from planner.hardware import Hardware
from planner.model import Model
from planner.note import Fact, Note, Progress, fact, ignore_progress
from planner.parallel.data import EXCHANGES, Site, collective
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.feasibility import Feasibility
from planner.search.flag_values import profile_paths
from planner.search.measured import load_runs
from planner.search.request import Request, model_of
from planner.search.scored import ScoredPlan, with_job
from planner.search.sizes import (
    LARGE_PARAMETERS,
    allowed_strategies,
    batches,
    can_share_global_batch,
    dividing_batches,
    named_mesh,
    plan_of,
    precisions,
    smaller_batches,
    strategy_settings,
)

if TYPE_CHECKING:
    from planner.answers.options import Options
    from planner.answers.results import Comparison, Recommendation, Saturation
    from planner.files.tomlfile import TomlSource


def read_scenario(path: Path) -> dict[str, Any]:
    """Reads the options of a TOML file; errors name file, line and key."""
    from planner.files.tomlfile import read_toml

    source = read_toml(path)
    return check_options(source, source.data)


def check_options(source: TomlSource, values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the values of a TOML file and returns them as options, with paths relative to the file."""
    import msgspec

    from planner.files.regular_file import expand_path, is_path_like
    from planner.files.tomlfile import LONGEST_OP_NAME, decode, find_faulty_name
    from planner.model.catalog import is_hub_name

    if faulty := find_faulty_name(values, frozenset(("description",)), LONGEST_OP_NAME):
        raise source.error(faulty[1], faulty[0])

    def from_file(path: str) -> str:
        """Path that is relative to the scenario file's folder, made relative to the current one."""
        return os.path.join(source.path.parent, expand_path(path))

    keys = [(flag.name, flag.kind.written | None, None) for flag in flags_of(Request)]
    kind = msgspec.defstruct("Scenario", [("description", str, ""), *keys], forbid_unknown_fields=True)
    options = msgspec.structs.asdict(decode(source, values, kind))
    del options["description"]  # for its reader
    options = {name: value for name, value in options.items() if value is not None}
    if "profile" in options:
        paths = [from_file(path) for path in profile_paths(options["profile"])]
        options["profile"] = paths if len(paths) > 1 else paths[0]
    if is_path_like(model := options.get("model", "")):
        here = from_file(model)
        options["model"] = here if os.path.exists(here) or not is_hub_name(model) else model
    for name in {"hardware", "server_hardware"} & options.keys():
        options[name] = [
            from_file(word) if is_path_like(word) else word for word in parse_names(options[name])
        ]
    return options


def merge_options(overrides: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """Options of a scenario file, overridden by the given ones."""
    scenario = read_scenario(config) if config is not None else {}
    return scenario | {name: value for name, value in overrides.items() if value is not None}


def parse_request(model: str | None = None, **options: Unpack[Options]) -> Request:
    """Builds the request for these options: `parse_request("vgg11", budget=20, workers="1-8")`."""
    known = {flag.name: flag for flag in flags_of(Request)}
    values: dict[str, Any] = {} if model is None else {"model": model}
    for name, value in options.items():
        if name not in known:
            renamed = [flag.name for flag in known.values() if name in flag.fields]
            raise unknown_name("option", name, known, hint="".join(f"write {option}=" for option in renamed))
        if value is None:
            continue
        for key, parsed in known[name].parse_fields(value).items():
            values[key] = values.get(key, {}) | parsed if key == "extra" else parsed
    if not values.get("model") and "profile" in values:
        values["model"] = values["profile"].model
    if not values.get("model"):
        raise BadInput("no model is given; add --model NAME (see `planner models`) or --profile FILE")
    request = Request(**values)
    model_of(request)  # which is refused here if it does not exist
    return request


NEIGHBOURS = 4  # global batches tried on either side of one that replicas cannot share
FULL = 8  # devices of a machine
DEFAULT_MACHINE, LARGE_MACHINE = "g5.xlarge", "p5.48xlarge"  # of models that one device trains, of others


@dataclass(frozen=True)
class Simulation(RenderableAnswer):
    """Answer to `simulate`: one plan with all the figures of its prediction."""

    page_maker = "planner.report.simulate.simulation_page"
    request: Request
    scored: ScoredPlan
    samples_per_epoch: int | None
    assumptions: Sequence[Note | Fact] = field(default_factory=list)
    baseline: ScoredPlan | None = None  # one device alone
    details: StepDetails | None = None

    def as_dict(self) -> dict[str, Any]:
        """Figures under their JSON keys."""
        prediction = self.scored.prediction
        return {
            "version": VERSION,
            "request": self.request.as_dict(),
            "plan": with_job(self.scored, self.request),
            "baseline": None if self.baseline is None else with_job(self.baseline, self.request),
            "prediction": {
                name: value
                for name, value in prediction.record().items()
                if name not in ("timeline", "notes")
            },
            **({} if self.details is None else self.details.as_dict()),
            "notes": list(prediction.notes),
            "assumptions": assumption_sentences(self.assumptions),
        }


def single_plan(request: Request, *, joined: bool = False) -> Plan:
    """The only plan that a request allows; raises an error for several values.

    `joined`: other worker counts follow, so devices are connected even for one worker.
    """
    model = model_of(request)
    kind = requested_machine(request)
    if request.recordings is not None and (words := request.recordings.mismatch_reason(kind)):
        raise BadInput(words)
    if words := request.market.missing_rdma_reason(kind):
        raise BadInput(words)
    request = _limit_unknown_network(request, kind, joined=joined)
    for flag, values in (
        ("--workers", request.workers),
        ("--batch", None if request.batches == "auto" else request.batches),
        ("--workers-per-replica", request.workers_per_replica),
        ("--precision", request.formats),
        ("--recompute", request.recompute),
        *((option_name(name), values) for name, values in request.axis_settings.items()),
        ("--exchange", request.exchanges and [name for name, _ in request.exchanges]),
    ):
        if values is not None and len(values) > 1:
            raise BadInput(f"{flag} names {len(values)} ({', '.join(map(str, values))}); this needs one")
    mesh = named_mesh(request, kind, model)
    workers = (request.workers or (mesh.size,))[0]
    site = Site(kind, workers, request.market, mesh, seed=request.seed)
    chosen = request.exchanges[0][0] if request.exchanges else default_exchange(request, site, joined=joined)
    of_strategy = strategy_settings(request, chosen, single=True)
    exchange = next(EXCHANGES[chosen].candidates(of_strategy, site, model), None)
    if exchange is None and joined and request.workers is None:  # it may need several machines
        several = replace(request, workers=(2 * max(kind.device_count, mesh.size),))
        return single_plan(several, joined=joined)
    if exchange is None:
        choices = "".join(f":{name}={value}" for name, value in of_strategy.choices.items())
        usual = f"--exchange {chosen}{choices} is not possible with {workers} x {kind.name}"
        meant = EXCHANGES[chosen]()
        if all(getattr(meant, name, None) is not None for name in of_strategy.choices):
            meant = collective.build_strategy(EXCHANGES[chosen], tuple(of_strategy.choices.items()))
        raise meant.infeasibility(site) or BadInput(usual)
    possible = _allowed_micro_batches(request, model, site)
    if not possible:
        raise Infeasible(f"not even a batch of 8 of {model.name} fits in the memory of {kind.device.name}")
    if not can_share_global_batch(request, possible[-1], site):
        raise BadInput(_indivisible_batch_message(request, possible[-1], site))
    supported = precisions(request, model, kind)
    if not supported:
        has = ", ".join(kind.device.formats)
        asked = ", ".join(request.formats or ())
        raise BadInput(f"{kind.device.name} does not compute in {asked}; it has {has}")
    recompute = (request.recompute or ("none",))[0]
    plan = plan_of(model, possible[-1], site, exchange, request, precision=supported[0], recompute=recompute)
    return _with_fitting_batch(plan, request, model)


def _allowed_micro_batches(request: Request, model: Model, site: Site) -> list[int]:
    """Micro-batches that a request allows on a site; with a global batch, divisors of a replica's share."""
    allowed = list(batches(request, model, site.hardware))
    free = request.global_batch is not None and request.batches is None and request.profile is None
    if free and request.global_batch and request.global_batch % max(site.replicas, 1) == 0:
        return dividing_batches(request.global_batch // max(site.replicas, 1), allowed)
    return allowed


def _indivisible_batch_message(request: Request, batch: int, site: Site) -> str:
    """Explains why replicas cannot share the global batch, and names the nearest one that works."""
    asked, replicas = request.global_batch or 0, max(site.replicas, 1)
    named = request.batches is not None or request.profile is not None
    why = f"--global-batch {asked} is no multiple of {replicas} replicas" + f" x micro-batch {batch}" * named
    nearest = [str(size) for size in _nearest_batches(request, replicas * (batch if named else 1))]
    smaller = replace(request, batches=(1,))
    if not nearest and named and request.profile is None:
        nearest = [f"{size} with --batch 1" for size in _nearest_batches(smaller, replicas)]
    return f"{why}; the nearest that works is {' or '.join(nearest)}" if nearest else why


def _nearest_batches(request: Request, step: int) -> list[int]:
    """Multiples of `step` nearest below and above the global batch that can be run."""
    asked = request.global_batch or 0
    below, above = asked // step * step, -(-asked // step) * step
    sizes = (range(first, first + NEIGHBOURS * by, by) for first, by in ((below, -step), (above, step)))
    possible = (
        next((size for size in some if size > 0 and is_possible(replace(request, global_batch=size))), None)
        for some in sizes
    )
    return [size for size in possible if size is not None]


def is_possible(request: Request) -> bool:
    """Whether the single plan that a request names is feasible."""
    try:
        Cases(request, model_of(request)).check(single_plan(request))
    except PlannerError:
        return False
    return True


def _with_fitting_batch(plan: Plan, request: Request, model: Model) -> Plan:
    """Returns the plan with the largest batch that fits if its own does not and the request names none."""
    feasibility = Feasibility(request, model)
    smaller = smaller_batches(request, model)
    if not smaller or feasibility.out_of_memory(plan) is None:
        return plan
    tried = (replace(plan, batch=batch) for batch in smaller)
    return next((smaller for smaller in tried if feasibility.out_of_memory(smaller) is None), plan)


def default_exchange(request: Request, site: Site, *, joined: bool = False) -> str:
    """Name of the default strategy: one device alone, several by all-reduce.

    Servers are used if the request sets them, a recording has them, or the fabric is unknown. `joined`: see
    `single_plan`.
    """
    meant = allowed_strategies(request)
    recorded = False
    if request.profile is not None:
        from planner.device.recorded.recordings import has_servers

        recorded = has_servers(request.profile)
    if recorded or meant != tuple(EXCHANGES) or not site.mesh.can_combine_with("allreduce"):
        return "servers" if "servers" in meant else meant[0]
    if site.workers == 1 and not joined:
        return "alone"
    return "allreduce" if EXCHANGES["allreduce"]().infeasibility(site) is None else "servers"


def _limit_unknown_network(request: Request, kind: Hardware, *, joined: bool) -> Request:
    """Limits a request to one worker if its recording's network is unknown; raises BadInput for more."""
    if request.profile is None or request.market.nic_bytes_per_s(kind) is not None:
        return request
    if request.exchanges is None and request.workers in (None, (1,)) and not joined:
        return replace(request, workers=(1,), exchanges=(("alone", {}),))
    if request.exchanges is not None and request.exchanges[0][0] == "alone":
        return request
    raise BadInput(
        f"the profile was recorded on {request.profile.hardware or 'unnamed hardware'}, whose network is "
        "not in the catalog; add --bandwidth, or --hardware with the machine that is meant"
    )


def requested_machine(request: Request) -> Hardware:
    """The machine that a request names, or the default one."""
    by_device = request.hardware is None and request.gpu is not None
    asked = request.hardware or request.profile or by_device
    large = request.profile is None and model_of(request).parameters >= LARGE_PARAMETERS
    words = request.hardware_words if asked else (LARGE_MACHINE if large else DEFAULT_MACHINE,)
    kinds = request.market.select_machines(words)
    recordings = request.recordings
    if recordings is not None and request.hardware is None and request.may_use_any_device and not by_device:
        kinds = tuple(kind for kind in kinds if recordings.is_recorded_on(kind.device)) or kinds
        by_device = True
    if by_device:  # the cheapest machine that has the device
        market = request.market
        priced = [kind for kind in kinds if market.usd_per_hour(kind) and market.nic_bytes_per_s(kind)]
        if large:  # a machine full of them, the cheapest per device
            full = [kind for kind in priced if kind.device_count >= FULL] or priced or kinds
            per_device = {kind.name: (market.usd_per_hour(kind) or 0.0) / kind.device_count for kind in full}
            return min(full, key=lambda kind: (per_device[kind.name], kind.name))
        return min(priced or kinds, key=lambda kind: (market.usd_per_hour(kind) or 0.0, kind.name))
    if len(kinds) > 1:
        names = ", ".join(kind.name for kind in kinds)
        raise BadInput(f"--hardware names {len(kinds)} ({names}); this needs one")
    return kinds[0]


def simulation_for(request: Request, *, progress: Progress = ignore_progress) -> Simulation:
    """Predicts one plan, with its baseline, step breakdown and assumptions."""
    plan = single_plan(request)
    cases = Cases(request, model_of(request), load_runs())
    cases.check(plan)
    scored = cases.score_plan(plan, cases.predict(plan, progress))
    alone = single_device_plan(plan, cases)
    baseline = scored if alone == plan else None
    if alone is not None and baseline is None:
        baseline = cases.score_plan(alone, cases.predict(alone))
    notes = [*default_machine_facts(request, plan), *assumptions([plan], cases)]
    details = step_details(scored, cases)
    return Simulation(request, scored, cases.model.samples_per_epoch, notes, baseline, details)


def default_machine_facts(request: Request, plan: Plan) -> list[Fact]:
    """The default machine; empty if the request names one."""
    if request.hardware is not None or request.gpu is not None or request.profile is not None:
        return []
    return [fact("default-machine", machine=plan.machine)]


def recommend(model: str, *, jobs: int | None = None, **options: Unpack[Options]) -> Recommendation:
    """Ranks what to rent: `planner.recommend("vgg11", budget=20)`."""
    from planner.answers.recommend import recommend_for

    return recommend_for(parse_request(model, **options), jobs=jobs)


def compare(model: str, *, jobs: int | None = None, **options: Unpack[Options]) -> Comparison:
    """Compares machines by their best plans: `planner.compare("resnet50", workers=(1, 2, 4, 8))`."""
    from planner.answers.compare import compare_for

    return compare_for(parse_request(model, **options), jobs=jobs)


def saturation(model: str, *, jobs: int | None = None, **options: Unpack[Options]) -> Saturation:
    """Predicts throughput by worker count: `planner.saturation("inception3", hardware="p3.2xlarge")`."""
    from planner.answers.saturation import saturation_for

    return saturation_for(parse_request(model, **options), jobs=jobs)


def simulate(model: str, **options: Unpack[Options]) -> Simulation:
    """Predicts one plan: `planner.simulate("resnet50", hardware="p3.2xlarge", workers=4)`."""
    return simulation_for(parse_request(model, **options))
