"""Whether plans can be run: what each worker and each server must hold, and where a replica can be cut."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from planner.device.batch_memory import STATE_COPIES, Optimizer, memory_fit
from planner.errors import BadInput, Infeasible, PlannerError
from planner.hardware import Hardware
from planner.model import BYTES_PER_ELEMENT, Model
from planner.parallel.cut import Cut
from planner.parallel.cut.tensor import refusal
from planner.parallel.data import Site
from planner.parallel.groups import crowded
from planner.parallel.plan import Plan
from planner.search.device_memory import by_kind, fits, held_by, usable_bytes
from planner.search.remedies import Rates, misfit_words
from planner.search.request import Request
from planner.servers.partition.span import can_span


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a plan does not fit: in a few words that many plans share, and in a sentence with the remedy, which
    is empty where it takes long to find (`misfit_words`)."""

    short: str
    words: str


class Fitting:
    """The answers for one request and model, each found once. A profile says nothing of memory."""

    def __init__(self, request: Request, model: Model) -> None:
        self.request = request
        self.model = model
        self._misfits: dict[Hashable, Misfit | None] = {}
        self._cuts: dict[Hashable, bool] = {}
        self._sites: dict[Hashable, Site] = {}
        self._last: tuple[Plan | None, Misfit | None] = (None, None)

    def site(self, plan: Plan) -> Site:
        """The plan's machines on the terms of the request."""
        where = (plan.machine, plan.workers, plan.cut)
        if where not in self._sites:
            self._sites[where] = plan.site(self.request.market, seed=self.request.seed)
        return self._sites[where]

    @property
    def state_bytes(self) -> float:
        """What a checkpoint holds: the parameters and the optimizer's state, in four bytes each."""
        optimizer: Optimizer = "momentum" if self.model.sequence_length is None else "adam"
        return BYTES_PER_ELEMENT * float(self.model.parameters) * (1 + STATE_COPIES[optimizer])

    def misfit(self, plan: Plan) -> Misfit | None:
        """Why the plan's workers or servers cannot hold what they must; None if they can."""
        if self.request.profile is not None:
            return None
        if self._by_kinds(plan):  # quicker found than looked up, but for the one that was just asked for
            last, found = self._last
            if last is not plan:
                self._last = plan, (found := self._misfit(plan))
            return found
        if plan not in self._misfits:
            self._misfits[plan] = self._misfit(plan)
        return self._misfits[plan]

    def _misfit(self, plan: Plan) -> Misfit | None:
        site = self.site(plan)
        one = plan.cut.workers == 1 or plan.cut.kind == "layers"
        if one and (found := self._worker_misfit(plan, site)) is not None:
            return found
        words = plan.exchange.misfit(self.model, plan.precision, site)
        return Misfit("for which servers lack memory", words) if words else None

    def _worker_misfit(self, plan: Plan, site: Site) -> Misfit | None:
        hardware = site.hardware
        if self._by_kinds(plan):
            if fits(plan, self.model, site):
                return None
            return Misfit(f"that do not fit in the memory of {hardware.device.name}", "")
        held = plan.exchange.held(self.model, plan.precision, site)
        where = (plan.batch, plan.machine, held, plan.precision)
        if where not in self._misfits:
            fit = memory_fit(self.model, plan.batch, hardware, held=held, precision=plan.precision)
            short = f"batch {plan.batch} does not fit in the memory of {hardware.device.name}"
            self._misfits[where] = None if fit.fits else Misfit(short, fit.reason)
        return self._misfits[where]

    def memory(self, plan: Plan) -> tuple[dict[str, float], float] | None:
        """What a device of the plan holds, by kind, and what it has to give; None where nobody knows."""
        if self.request.profile is not None or (plan.cut.kind == "features" and plan.cut.workers > 1):
            return None
        site = self.site(plan)
        if self._by_kinds(plan):
            gathers = plan.exchange.held(self.model, plan.precision, site).parameters < 1
            return by_kind(held_by(plan, self.model, site), gathers=gathers), usable_bytes(site)
        held = plan.exchange.held(self.model, plan.precision, site)
        fit = memory_fit(self.model, plan.batch, site.hardware, held=held, precision=plan.precision)
        need = fit.need
        parts = {
            "parameters": need.parameters_bytes,
            "gradients": need.gradients_bytes,
            "optimizer": need.optimizer_bytes,
            "activations": need.activations_bytes,
            "gradients of activations": need.working_bytes,
            "framework": need.runtime_bytes,
        }
        return {name: size for name, size in parts.items() if size}, fit.usable_bytes

    def _by_kinds(self, plan: Plan) -> bool:
        """Whether memory is counted kind of layer by kind of layer (`planner.device.memory`)."""
        return self.model.sequence_length is not None or plan.cut.kind == "layers"

    def can_cut(self, batch: int, worker: Hardware, cut: Cut) -> bool:
        """Whether a replica can be spread like this, and whether it is worth it."""
        where = (batch, worker.name, cut)
        if where not in self._cuts:
            if cut.kind == "layers":
                self._cuts[where] = not crowded(self.model, cut.tensor, worker)
            else:
                self._cuts[where] = cut.workers == 1 or can_span(self.model, batch, worker, cut.workers)
        return self._cuts[where]

    def check(self, plan: Plan, rates: Rates = lambda plans: [0.0] * len(plans)) -> None:
        """Refuse a plan that cannot be run, in a sentence with the remedy; `rates` say which is cheapest."""
        site = self.site(plan)
        if plan.cut.workers > 1 and (words := self._no_cut(plan, site.hardware)):
            raise BadInput(words) if plan.cut.kind == "layers" else Infeasible(words)
        if words := plan.exchange.refusal(site):
            raise BadInput(words)
        if found := self.misfit(plan):
            free = self.request.global_batch is None
            words = found.words or misfit_words(plan, self.model, self.site, rates, accumulates=free)
            raise Infeasible(words)

    def possible(self, plan: Plan) -> bool:
        """Whether the plan can be run."""
        try:
            self.check(plan)
        except PlannerError:
            return False
        return True

    def _no_cut(self, plan: Plan, worker: Hardware) -> str:
        many = plan.cut.workers
        flag = f"--workers-per-replica {many}"
        if plan.cut.kind not in plan.exchange.cuts:
            return f"{flag} is not possible with --exchange {plan.exchange.kind}; take 1"
        if plan.cut.kind != "features":
            return self._no_layers(plan, worker)
        if self.request.profile is not None:
            return f"{flag} contradicts --profile, which is that of one worker"
        if worker.device.kind != "cpu" or worker.device_count != 1:
            return f"{flag} is for CPU machines; {worker.name} has {worker.device.name}; take 1"
        if plan.workers % many:
            whole = -(-plan.workers // many) * many
            return f"{plan.workers} workers are no whole replicas of {many}; take --workers {whole}"
        if not self.can_cut(plan.batch, worker, plan.cut):
            return (
                f"{self.model.name} at batch {plan.batch} is not worth cutting over {many} {worker.name}: "
                "its fully connected layers hold too few of the weights, or a share of it does not fit in "
                "memory"
            )
        return ""

    def _no_layers(self, plan: Plan, worker: Hardware) -> str:
        """Why a replica cannot be cut by layers like this, with the nearest that works."""
        cut, many = plan.cut, plan.cut.workers
        if words := refusal(self.model, cut.tensor) or crowded(self.model, cut.tensor, worker):
            return words
        if plan.workers % many:
            few, more = plan.workers // many * many, -(-plan.workers // many) * many
            nearest = f"{few} or {more}" if few else f"{more}"
            return (
                f"{plan.workers} workers are no whole replicas of {many} (tensor {cut.tensor} x pipeline "
                f"{cut.pipeline}); the nearest that works is --workers {nearest}"
            )
        return ""
