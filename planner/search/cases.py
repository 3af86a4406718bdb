"""Cases: the computation of a plan, and what it is simulated as and bounded by, for one request.

Transformers and sharded networks are computed in units (`planner.parallel.replica`). Other networks are
computed layer by layer: by the kernel rates of the hardware file where these were fitted to published
throughputs in single precision (and for CPUs), else by the rates of the device in the plan's number format.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from math import hypot, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.device.activations import Recompute
from planner.device.computation import Computation, repeat_passes
from planner.device.memory import WHOLE, Shares
from planner.device.precision import FP32, Precision
from planner.device.rates import constants, model_error, network_class
from planner.device.rates.times import DEFAULT_FRAMEWORK, computation_s
from planner.files.regular_file import shipped_folder
from planner.hardware import Hardware
from planner.hardware.prices.cost import RentalCost, energy_per_hour, rental_cost
from planner.model import Floats, Model
from planner.note import Progress, ignore_progress
from planner.parallel.data import EXCHANGES, Job, Site
from planner.parallel.mesh import data_parallel_group, placement_key
from planner.parallel.plan import Plan
from planner.parallel.replica import replica_computation
from planner.search.feasibility import Feasibility
from planner.search.request import Request
from planner.search.scored import RANGE_SIGMAS, Candidate, Cost, ScoredPlan

if TYPE_CHECKING:
    from planner.device.rates import Error
    from planner.search.measured import Factor, Measured
    from planner.simulator.simulate import Case
    from planner.simulator.statistics import Prediction


LOADER_PROCESSES = 8  # that the published rate of JPEG files was measured with, one per vCPU
LEAST_PIXELS = 64  # height of images that are read as JPEG files; smaller ones fit in memory decoded
OFFLOAD_Q90 = 0.35  # of steps that wait for host memory: few runs are published, and hosts differ


class _InlineExecutor(Executor):
    """Executor that runs each call in this thread and reports progress."""

    def __init__(self, progress: Progress, done: int) -> None:
        self.progress = progress
        self.done = self.of = done

    def map(self, fn: Any, *iterables: Any, **_: Any) -> Iterator[Any]:
        """Yields the result of each call, and reports progress after it."""
        calls = list(zip(*iterables, strict=True))
        self.of += len(calls)
        for arguments in calls:
            result = fn(*arguments)
            self.done += 1
            self.progress("simulating", self.done, self.of)
            yield result


class Cases:
    """Lowers the plans of one request to simulator cases, and computes their bounds and prices.
    Thread-safe."""

    def __init__(self, request: Request, model: Model, runs: Sequence[Measured] = ()) -> None:
        """Prepares the caches. The measured `runs` correct predictions; recorded profiles ignore them."""
        self.request = request
        self.runs = () if request.profile is not None else tuple(runs)
        self.model = model
        self.market = request.market
        self.feasibility = Feasibility(request, model)
        self._computations: dict[Hashable, Computation] = {}
        self._bounds: dict[Plan, float] = {}

    def site(self, plan: Plan) -> Site:
        """Site of a plan: its machines, mesh and network; cached."""
        return self.feasibility.site(plan)

    def computation(self, plan: Plan) -> Computation:
        """Computation of one worker's step: its ops and durations, recorded or synthesized."""
        key = (*self._computation_key(plan), plan.accumulate)
        if key not in self._computations:
            self._computations[key] = repeat_passes(self._micro_batch(plan), plan.accumulate)
        return self._computations[key]

    def _computation_key(self, plan: Plan) -> tuple[Hashable, ...]:
        """Cache key shared by plans whose micro-batches have the same computation."""
        site = self.site(plan)
        return (
            *(plan.batch, plan.precision, plan.recompute),
            self._device_key(plan.machine),
            placement_key(site),
            self._offload_shares(plan),
        )

    def _offload_shares(self, plan: Plan) -> Shares | None:
        """Share of each kind of training state that a device holds; None if nothing is offloaded."""
        method = self.model.training
        if method is None or not method.offload:
            return None
        return plan.exchange.memory_shares(self.model, plan.precision, data_parallel_group(self.site(plan)))

    def _device_key(self, machine: str) -> Hashable:
        """Cache key of a machine's device and kernels."""
        hardware = self.market.find_machine(machine)
        return self.market.get_or_make(("device", machine), lambda: repr((hardware.device, hardware.kernels)))

    def _micro_batch(self, plan: Plan, *, brief: bool = False) -> Computation:
        """Computation of one micro-batch; `brief` synthesizes one step without variation, for bounds."""
        if self.request.recordings is not None:
            device = self.market.find_machine(plan.machine).device
            return self.request.recordings.computation(plan.batch, device)
        return device_computation(
            self.model,
            plan.batch,
            self.site(plan),
            plan.precision,
            recompute=plan.recompute,
            framework=self.request.framework,
            brief=brief,
            shares=self._offload_shares(plan) or WHOLE,
        )

    def case(self, plan: Plan) -> Case:
        """Simulator case of a plan, which can be pickled."""
        return plan.exchange.lower(self.computation(plan), data_parallel_group(self.site(plan)))

    def check(self, plan: Plan) -> None:
        """Raises an error if a plan is infeasible or one of its machines has no price."""
        for entry in plan.rented(self.market):
            self.market.check_prices([self.market.find_machine(entry.machine)])
        self.feasibility.check(plan, lambda plans: self.bounds(plans).tolist())

    def bounds(self, plans: Sequence[Plan]) -> Floats:
        """Upper bounds on throughput in samples per second, with a margin for the simulation's interval."""
        known = self._bounds
        if new := [plan for plan in plans if plan not in known]:
            known.update(zip(new, self._compute_bounds(new).tolist(), strict=True))
        return np.array([known[plan] for plan in plans])

    def _compute_bounds(self, plans: Sequence[Plan]) -> Floats:
        """Upper bounds with margin, computed anew for all plans of a strategy at once."""
        out = np.zeros(len(plans))
        micro_batches: dict[Hashable, Computation] = {}
        by_kind: dict[str, list[int]] = {}
        for index, plan in enumerate(plans):
            by_kind.setdefault(plan.exchange.kind, []).append(index)
        for kind, rows in by_kind.items():
            out[rows] = EXCHANGES[kind].bounds([self._job(plans[row], micro_batches) for row in rows])
        if decode_rate_per_vcpu(self.request, self.model) < inf and not self.runs:
            out = np.minimum(out, [self.input_samples_per_s(plan) for plan in plans])
        out *= 1 + self.request.interval_width
        if self.runs:
            out *= [result.value if (result := self.correction_factor(plan)) else 1.0 for plan in plans]
        return out

    def _job(self, plan: Plan, micro_batches: dict[Hashable, Computation]) -> Job:
        """Input of a strategy's throughput bound for a plan; `micro_batches` caches computations."""
        site, kind = data_parallel_group(self.site(plan)), self._computation_key(plan)
        if self.request.profile is not None:
            return Job(plan.exchange, self.computation(plan), site)
        if kind not in micro_batches:
            micro_batches[kind] = self._micro_batch(plan, brief=True)
        whole = partial(self.computation, plan)
        return Job(plan.exchange, micro_batches[kind], site, plan.accumulate, whole)

    def correction_factor(self, plan: Plan) -> Factor | None:
        """Correction factor from measured runs on the plan's device; None if there are none."""
        from planner.search.measured import factor_for, reach_of

        if not self.runs:
            return None
        device = self.market.find_machine(plan.machine).device.name
        return factor_for(self.runs, device, reach_of(plan.workers, plan.machines))

    def predict(self, plan: Plan, progress: Progress = ignore_progress) -> Prediction:
        """Simulates one plan in full in this thread and reports each run as progress."""
        from planner.simulator.simulate import Effort, begin_simulation

        request = self.request
        effort = Effort(
            seed=plan.simulation_seed(request.seed),
            precision=request.interval_width,
            max_steps=request.max_steps,
        )
        progress("simulating", 0, effort.first_runs)
        begun = begin_simulation(self.case(plan), effort, runs=1)
        progress("simulating", 1, effort.first_runs)
        return self.correct_prediction(plan, begun.finish(_InlineExecutor(progress, done=1)))

    def correct_prediction(self, plan: Plan, prediction: Prediction) -> Prediction:
        """Prediction times the correction from measured runs; without runs, capped at the input's rate."""
        result = self.correction_factor(plan)
        if result is None:
            return prediction.limit_by_input(self.input_samples_per_s(plan))
        times = result.value
        return replace(
            prediction,
            samples_per_s=prediction.samples_per_s * times,
            samples_per_s_low=prediction.samples_per_s_low * times,
            samples_per_s_high=prediction.samples_per_s_high * times,
            step_s=prediction.step_s / times,
            step_s_quantiles={name: value / times for name, value in prediction.step_s_quantiles.items()},
            worker_samples_per_s=tuple(value * times for value in prediction.worker_samples_per_s),
        )

    def input_samples_per_s(self, plan: Plan) -> float:
        """Maximum samples per second that the vCPUs of a plan's machines can decode."""
        return input_samples_per_s(plan, self.request, self.model)

    def bound(self, plan: Plan) -> float:
        """Upper bound on the throughput of one plan, as `bounds` gives it."""
        return float(self.bounds([plan])[0])

    def rental_cost(self, plan: Plan) -> RentalCost:
        """Prices of a plan's machines by role, workers first."""
        return rental_cost(
            plan.rented(self.market), self.market, self.request.spot_terms, self.feasibility.state_bytes
        )

    def usd_per_hour(self, plans: Sequence[Plan]) -> Floats:
        """Total price of each plan in USD per hour."""
        return np.array([sum(self.rental_cost(plan).usd_per_hour) for plan in plans])

    def usd_per_useful_hour(self, plan: Plan) -> float:
        """Price of one hour of training progress in USD, with time lost to spot interruptions."""
        return self.rental_cost(plan).usd_per_useful_hour

    def score_plan(self, plan: Plan, prediction: Prediction) -> ScoredPlan:
        """Combines a plan with its prediction, prices, upper bound and error."""
        fits = None if self.request.profile is not None else self.feasibility.out_of_memory(plan) is None
        paid, rented = self.rental_cost(plan), plan.rented(self.market)
        each = zip(rented, paid.usd_per_hour, strict=True)
        return ScoredPlan(
            plan,
            tuple(Cost(rental.role, rental.machine, rental.count, usd) for rental, usd in each),
            self.bound(plan),
            prediction,
            self.market.find_machine(plan.machine).device.name,
            fits,
            error=self.error(plan),
            measured=self.correction_factor(plan),
            spot=paid.spot,
            draw=self.market.get_or_make(("draw", rented), lambda: energy_per_hour(rented, self.market)),
            sample_tokens=self.model.sample_tokens,
            most_samples_per_s=inf if self.runs else self.input_samples_per_s(plan),
        )

    def sigma(self, plan: Plan) -> float:
        """Standard deviation of the logarithm of a plan's speed, without the simulation's error."""
        error = self.error(plan)
        return 0.0 if error is None else error.q90 / RANGE_SIGMAS

    def candidate(self, plan: Plan, samples_per_s: float) -> Candidate:
        """Input of the decision rule for a plan that runs at `samples_per_s`."""
        paid, device = self.rental_cost(plan), self.market.find_machine(plan.machine).device.name
        machines = sum(part.count for part in plan.rented(self.market))
        return Candidate(device, samples_per_s, paid.usd_per_useful_hour, self.sigma(plan), machines=machines)

    def error(self, plan: Plan) -> Error | None:
        """Error of a plan's predicted compute time; None for CPUs and user-defined rates."""
        if self.request.recordings is not None:
            return self.request.recordings.error(plan.batch, self.market.find_machine(plan.machine).device)
        machine = self.market.find_machine(plan.machine)
        error = computation_error(self.model, machine, plan.precision, self.request.framework)
        method = self.model.training
        if error is not None and method is not None and method.offload:
            error = replace(error, q90=hypot(error.q90, OFFLOAD_Q90))
        if error is None or is_computed_in_units(self.model, self.site(plan)):
            return error  # of networks in units whole steps were compared, exchanges included
        return error.add_scaling_error(plan.machines, plan.workers)


def has_jpeg_samples(model: Model) -> bool:
    """Whether samples are images large enough to be stored as JPEG files."""
    if not model.layers or model.sequence_length is not None:
        return False
    shape = model.layers[0].output_shape
    return len(shape) == 3 and shape[0] >= LEAST_PIXELS


def decode_rate_per_vcpu(request: Request, model: Model) -> float:
    """Samples per second that one vCPU decodes; infinite if the host decodes nothing. The rate is fitted to
    published runs that read JPEG files. Decoding overlaps computing, so a step takes the longer of both."""
    if request.input in ("dali", "none") or request.profile is not None or not has_jpeg_samples(model):
        return inf
    return (
        request.input
        if isinstance(request.input, float)
        else constants().loader_images_per_s / LOADER_PROCESSES
    )


def input_samples_per_s(plan: Plan, request: Request, model: Model) -> float:
    """Maximum samples per second that a plan's vCPUs can decode; infinite if nothing is decoded."""
    per_vcpu = decode_rate_per_vcpu(request, model)
    machine = request.market.find_machine(plan.machine)
    if per_vcpu == inf or machine.device.kind != "gpu" or machine.vcpus is None:
        return inf
    return plan.workers * machine.vcpus / machine.device_count * per_vcpu


def device_computation(
    model: Model,
    batch: int,
    site: Site,
    precision: Precision,
    *,
    recompute: Recompute = "none",
    framework: str | None = None,
    brief: bool = False,
    shares: Shares = WHOLE,
) -> Computation:
    """Computation of one micro-batch on one device of a site. `framework` is one of `planner.device.rates`
    (None: the usual one; CPUs and user-defined rates have none). `brief` gives one step without variation,
    for bounds. `shares` are those of the plan's memory, for offload."""
    if is_computed_in_units(model, site):
        how = framework or DEFAULT_FRAMEWORK
        made = replica_computation(
            model, batch, site, precision, recompute=recompute, framework=how, brief=brief
        )
    else:
        from planner.device.computation.synthesis import calibrated_computation, synthesize_computation

        if uses_kernel_rates(site.hardware, precision, fitted=framework is None):
            made = synthesize_computation(model, batch, site.hardware, precision, recompute=recompute)
        else:
            made = calibrated_computation(
                model, batch, site.hardware, precision, framework, recompute=recompute
            )
    if model.training is None:
        return made
    from planner.device.offload import add_offload_times

    return add_offload_times(
        made,
        site.mesh.inner_mesh.shard(model).model if site.mesh.is_sharded else model,
        site.hardware,
        batch=batch,
        workers=site.workers,
        recompute=recompute,
        shares=shares,
    )


def is_computed_in_units(model: Model, site: Site) -> bool:
    """Whether times are estimated per unit. They are for sharded models, and for sequence models on devices
    without fp32 kernel rates of a CPU or of a user's own file."""
    return site.mesh.is_sharded or (
        model.sequence_length is not None and not uses_kernel_rates(site.hardware, FP32, fitted=False)
    )


def uses_kernel_rates(hardware: Hardware, precision: Precision, *, fitted: bool = True) -> bool:
    """Whether the hardware file's kernel rates give the computation time; always False except in fp32.
    They do for CPUs, a user's own file and, with `fitted`, catalog rates fitted to published throughputs."""
    known = hardware.kernels
    if known is None or precision != FP32:
        return False
    if hardware.device.kind == "cpu" or Path(hardware.path).parent != shipped_folder("hardware"):
        return True
    return fitted and known.basis != "estimated"


def computation_error(
    model: Model, hardware: Hardware, precision: Precision, framework: str | None = None
) -> Error | None:
    """Error of computation times whose rates have the same basis; None for CPUs and user-defined rates."""
    if uses_kernel_rates(hardware, precision, fitted=False):
        return None  # a CPU, or rates of the user's own
    if uses_kernel_rates(hardware, precision, fitted=framework is None):
        return model_error("fitted", network_class(model), experts=model.has_experts)
    return computation_s(model, 1, hardware.device, precision).error
