"""Whether plans can be run: what each worker and each server must hold, and where a replica can be cut."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from planner.device.batch_memory import STATE_COPIES, Optimizer, memory_fit
from planner.errors import BadInput, Infeasible, PlannerError
from planner.flags import option_of
from planner.hardware import Hardware
from planner.model import BYTES_PER_ELEMENT, Model
from planner.parallel.data import Site
from planner.parallel.mesh import Mesh
from planner.parallel.plan import Plan
from planner.search.device_memory import by_kind, fits, held_by, usable_bytes
from planner.search.remedies import Rates, misfit_words
from planner.search.request import Request


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
        self._meshes: dict[Hashable, PlannerError | None] = {}
        self._sites: dict[Hashable, Site] = {}
        self._last: tuple[Plan | None, Misfit | None] = (None, None)

    def site(self, plan: Plan) -> Site:
        """The plan's machines on the terms of the request."""
        where = (plan.machine, plan.workers, plan.mesh)
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
        if not plan.mesh.lowered_by and (found := self._worker_misfit(plan, site)) is not None:
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
        if self.request.profile is not None or plan.mesh.lowered_by:
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
        return self.model.sequence_length is not None or plan.mesh.is_sharded

    def infeasible_mesh(self, mesh: Mesh, batch: int, worker: Hardware) -> PlannerError | None:
        """Why a replica cannot be spread like this on machines of a kind; None if it can."""
        where = (batch if mesh.lowered_by else 0, worker.name, mesh)
        if where not in self._meshes:
            self._meshes[where] = mesh.infeasibility(self.model, worker, batch)
        return self._meshes[where]

    def check(self, plan: Plan, rates: Rates = lambda plans: [0.0] * len(plans)) -> None:
        """Refuse a plan that cannot be run, in a sentence with the remedy; `rates` say which is cheapest."""
        site = self.site(plan)
        self._check_mesh(plan, site.hardware)
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

    def _check_mesh(self, plan: Plan, worker: Hardware) -> None:
        mesh = plan.mesh
        if mesh.size == 1:
            return
        flags = " ".join(f"{option_of(name)} {value}" for name, value in mesh.changed.items())
        if not mesh.composes_with(plan.exchange):
            raise Infeasible(f"{flags} is not possible with --exchange {plan.exchange.kind}; take 1")
        if self.request.profile is not None:
            raise Infeasible(f"{flags} contradicts --profile, which is that of one worker")
        if words := mesh.partial_replicas(plan.workers):
            raise BadInput(words)
        if (error := self.infeasible_mesh(mesh, plan.batch, worker)) is not None:
            raise error
