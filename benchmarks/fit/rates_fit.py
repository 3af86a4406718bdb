"""Fits the figures of planner/device/rates/data/rates.toml to published runs.

Symbols. A run r asks for kernels k with flops f, bytes b and launches n. Its device d reaches A[d] in large
matrix products and moves W[d] bytes a second; kind i of kernels reaches the share s[i] of A, traffic m of W:

    F = f (1 + A / A0) / (A s[i] s[d,i] g),  B = b t[w] (1 + W / W0) / (W m m[d])
    T = max(F, B) + overlap min(F, B) + n c c[w] c[d]
    step = |(sum T, sum n h h[w])|_8 + the same of the update     (planner.device.rates.times)

with one factor g for all graphics boards (products in fewer than 32 bits; 1 for other devices), one for each
device d (by class of formats and kind, memory, cost of a kernel) and framework w (traffic t, cost of a kernel
c, of its launch h; products and attention of TransformerEngine, which brings kernels of its own), nothing for
a network and nothing for a source. All are logarithms z with a prior N(mean, sigma), so that a device or
framework with few rows stays near the mean of all, and one with none is at it:

    minimise  sum_r w[r] rho((log predicted - log published) / sigma[r])  +  sum rho'((z - mean) / sigma)

rho is soft: an error of sigma[r] is squared, ten times as much is not; rho' is so for devices, as one that
never reaches its published peaks must not move all others, and the square for all else. sigma[r] is 5% for
networks over images and 15% for transformers, whose settings are seldom all stated. Runs of one series share
a weight. Devices of other vendors have wide priors: they say nothing of the mean of NVIDIA's.

The parameters of least cost are found by Gauss and Newton's steps, damped as Levenberg and Marquardt do, each
run's and each device's square weighted so that it counts as the soft function does.

All runs are laid out once; a fit without some of them gives those no weight. So leaving out every source in
turn takes seconds, which is what lets a change of the formula be judged by runs that no fit has seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from fit_runs import FitRun as Run

from planner.device.activations import recompute_flags
from planner.device.rates import (
    CLASS,
    CONVOLUTIONS,
    MATMUL,
    MEMORY,
    MOST_FITTED,
    ON_BOARDS,
    RateConstants,
    device_family,
    is_graphics_board,
    is_pre_volta,
    matmul_flops,
    model_kernels,
    network_class,
    share_kind,
)
from planner.device.rates.times import has_layout_conversion, kernel_s, smooth_max, update_bytes
from planner.model.layers.base import KERNEL_KINDS

Array = npt.NDArray[np.float64]

# Shares of what large products reach: near 1, twice that where Winograd's algorithm saves multiplications,
# half of it for tensor cores, which convolutions do not feed as well. With a stride of 2, the gradient by the
# input is computed on four times as many places: twice the work of the three passes together.
SHARES = {
    "fp32": {
        "matmul": 0.9,
        "attention": 0.5,
        "conv1x1": 0.9,
        "conv3x3": 1.9,
        "conv_long": 1.0,
        "conv": 0.7,
        "grouped": 0.5,
    },
    "tf32": {"matmul": 0.7, "attention": 0.4, "conv1x1": 0.5, "conv3x3": 0.5, "conv": 0.25, "grouped": 0.25},
    "fp8": {"matmul": 0.75},
    "half": {"matmul": 0.8, "attention": 0.4, "conv1x1": 0.6, "conv3x3": 0.6, "conv": 0.3, "grouped": 0.25},
}
DEPTHWISE = 0.03
SHARED = (
    "memory",
    "old_memory",
    "fast_memory",
    "fast_products",
    "board",
    "traffic",
    "fixed",
    "floor",
    "layout",
    "rows",
    "sides",
)
FRAMEWORKS = (
    *("tensorflow", "tensorflow-1.1", "mxnet", "torch7", "pytorch", "ngc", "megatron", "xla", "fused"),
    *("mlperf", "transformer-engine", "megatron-deepspeed", "pytorch-reentrant"),
)
APART = ("mlperf",)  # tuned for one benchmark: they say nothing of the mean of frameworks
# Whose figure a framework has where its own runs cannot tell it from a relative's. Those of 2017 and 2018
# launch a kernel for every op. Hand-fused code pays for as few kernels in one place as in another; one fork
# of Megatron has the kernels of the other. Relatives of PyTorch without a compiler launch as it does (their
# models are too large to show it).
_OF_2017 = {"tensorflow-1.1": "mxnet", "torch7": "mxnet"}
_SAME = {"pytorch-reentrant": "pytorch"}
AS = {
    "traffic": _SAME | _OF_2017 | {"megatron-deepspeed": "megatron"},
    "fixed": _SAME
    | _OF_2017
    | dict.fromkeys(("megatron", "megatron-deepspeed", "transformer-engine", "mlperf"), "fused"),
    "floor": _SAME
    | {"megatron": "pytorch", "megatron-deepspeed": "pytorch", "transformer-engine": "pytorch"},
}
SHARE_SIGMA, DEVICE_SIGMA, MEMORY_SIGMA, FRAMEWORK_SIGMA, LAUNCH_SIGMA = 0.3, 0.25, 0.35, 0.3, 0.5
OTHER_VENDOR_SIGMA = 1.0
# Attention: FlashAttention-2 alone reaches 0.66 of what products reach on A100, and so much less on Hopper
# (`attention` in rates_settings.toml), which its kernels were not written for; TransformerEngine's were.
ATTENTION_SIGMA, ENGINE, ENGINE_ATTENTION_SIGMA, ENGINE_MATMUL_SIGMA = 0.1, "transformer-engine", 0.5, 0.2


@dataclass(frozen=True)
class Prior:
    """Names of all parameters, and the mean and sigma of their logarithms."""

    names: tuple[str, ...]
    mean: Array
    sigma: Array

    @cached_property
    def at(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.names)}


def prior(
    runs: Iterable[Run],
    figures: RateConstants,
    attention: Mapping[str, float],
    floors: Mapping[str, float],
) -> Prior:
    """`attention`: by family, what its kernels reach beside those of A100, of what products do; `floors`: by
    framework, the usual share of the time to launch a kernel."""
    known: dict[str, tuple[float, float]] = {}
    for kind_class, shares in SHARES.items():
        for kind, share in (shares | ({"depthwise": DEPTHWISE} if len(shares) > 1 else {})).items():
            known[f"share/{kind_class}/{kind}"] = (math.log(share), SHARE_SIGMA)
    known["memory"] = (math.log(0.95), 0.15)
    known["old_memory"] = (0.0, 0.3)
    known["fast_memory"] = (math.log(5e12), 0.7)
    known["fast_products"] = (math.log(1e16), 0.5)
    known["board"] = (0.0, 0.3)
    known["traffic"] = (0.0, 0.3)
    known["fixed"] = (math.log(30e-6), 0.7)
    known["floor"] = (math.log(40e-6), 1.0)
    known["layout"] = (0.0, 0.5)
    known["rows"] = known["sides"] = (math.log(100.0), 0.7)
    for name in FRAMEWORKS:
        for what, others in AS.items():
            if name not in others:
                usual = math.log(floors.get(name, 1.0)) if what == "floor" else 0.0
                sigma = FRAMEWORK_SIGMA if what == "traffic" else LAUNCH_SIGMA
                known[f"{what}/{name}"] = (usual, OTHER_VENDOR_SIGMA if name in APART else sigma)
    newer = math.log(min(attention.values()))
    known[f"attention/{ENGINE}"] = (-newer, ENGINE_ATTENTION_SIGMA)
    known[f"matmul/{ENGINE}"] = (0.0, ENGINE_MATMUL_SIGMA)
    known["share/half/attention"] = (math.log(SHARES["half"]["attention"]), ATTENTION_SIGMA)
    for run in runs:
        family, kind_class = device_family(run.device, figures), CLASS[run.precision.compute]
        other = run.device.vendor not in MOST_FITTED
        for entry in ("fp8", "half") if kind_class == "fp8" else (kind_class,):
            for kind in SHARES[entry]:
                known[f"device/{family}/{entry}/{kind}"] = (
                    0.0,
                    OTHER_VENDOR_SIGMA if other else DEVICE_SIGMA,
                )
        known[f"device/{family}/memory"] = (0.0, OTHER_VENDOR_SIGMA if other else MEMORY_SIGMA)
        known[f"device/{family}/fixed"] = (0.0, OTHER_VENDOR_SIGMA if other else DEVICE_SIGMA)
    for family, reached in attention.items():
        if f"device/{family}/half/attention" in known:
            known[f"device/{family}/half/attention"] = (math.log(reached), ATTENTION_SIGMA)
    mean, sigma = np.array(list(known.values())).T
    return Prior(tuple(known), mean, sigma)


class Problem:
    """Runs as flat arrays of kernels, each with the places of its parameters."""

    def __init__(self, runs: Sequence[Run], prior: Prior, figures: RateConstants) -> None:
        self.runs, self.overlap = runs, figures.overlap
        self.log_step_s = np.log([run.step_s for run in runs])
        self.bandwidth = np.array([run.device.memory_bytes_per_s or 1.0 for run in runs])
        self.old = np.array([is_pre_volta(run.device) for run in runs]).astype(float)
        self.communication_s = np.array([run.communication_s for run in runs])
        self.taken = np.array([run.taken for run in runs])
        self.repeated = np.array([run.repeated for run in runs])
        self.exposed_s = np.array([run.exposed_s for run in runs])
        self.slower = np.array([run.slower for run in runs])
        last = len(prior.names)  # a parameter that is not there is one
        where = prior.at
        columns: list[list[Array]] = [[] for _ in range(11)]
        places: list[list[Array]] = [[] for _ in range(4)]
        starts, per_run, run_places = [], [], []
        at = 0
        for run in runs:
            unique, counts = _unique(run, figures)
            kind = unique[:, 0].astype(int)
            family = device_family(run.device, figures)
            class_of, reach = _classes(run, kind, figures)
            width = run.precision.activation_bytes
            bandwidth = run.device.memory_bytes_per_s or 1.0
            cache = figures.cache_bytes.get(run.device.name, figures.cache_bytes.get(family, 0.0))
            last_channels = figures.frameworks[run.framework].channels_last
            if run.channels_last is not None:
                last_channels = run.channels_last
            converts = has_layout_conversion(run.precision, last_channels) & np.isin(kind, CONVOLUTIONS)
            values = (
                unique[:, 1] * run.batch / reach,
                unique[:, 2] / reach,
                unique[:, 3] * run.batch / reach,
                (unique[:, 4] * run.batch + unique[:, 5]) * width / bandwidth,
                converts.astype(float),
                _on_board(run, kind),
                unique[:, 6],
                unique[:, 7],
                unique[:, 8],
                counts,
                reach,
            )
            for column, value in zip(columns, values, strict=True):
                column.append(value)
            kinds = [share_kind(one, KERNEL_KINDS[i]) for one, i in zip(class_of, kind, strict=True)]
            names = [f"{one}/{share}" for one, share in zip(class_of, kinds, strict=True)]
            places[0].append(_places(where, [f"share/{name}" for name in names], last))
            places[1].append(_places(where, [f"device/{family}/{name}" for name in names], last))
            traffic = [of_framework("traffic", run.framework) if i == MEMORY else "" for i in kind]
            places[2].append(_places(where, traffic, last))
            own = [f"{KERNEL_KINDS[i]}/{run.framework}" for i in kind]  # of a framework's own kernels
            places[3].append(_places(where, own, last))
            kernels = model_kernels(run.model, run.flash)
            updates = 0.0 if run.optimizer == "none" else kernels.tensors * figures.update_launches
            per_run.append(
                (
                    len(unique),
                    cache / bandwidth,
                    kernels.parameters
                    * update_bytes(run.precision, run.optimizer)
                    / bandwidth
                    * run.update_share,
                    updates * run.update_share,
                    kernels.parameters
                    * figures.frameworks[run.framework].summed_bytes.get(run.precision.compute, 0)
                    / bandwidth,
                )
            )
            run_places.append(
                _places(
                    where,
                    [
                        f"device/{family}/memory",
                        f"device/{family}/fixed",
                        of_framework("fixed", run.framework),
                        of_framework("floor", run.framework),
                    ],
                    last,
                )
            )
            starts.append(at)
            at += len(unique)
        (
            self.flop_s,
            self.row_s,
            self.edge_s,
            self.move_s,
            self.converts,
            self.on_board,
            self.launches,
            self.fixed,
            self.host,
            self.counts,
            self.reach,
        ) = (np.concatenate(column) for column in columns)
        self.share, self.own, self.traffic, self.brought = (np.concatenate(place) for place in places)
        kernels_of_run, self.cache_s, self.update_s, self.updates, self.summed_s = np.array(per_run).T
        self.run_of = np.repeat(np.arange(len(runs)), kernels_of_run.astype(int))
        self.places = np.array(run_places).T
        self.starts = np.array(starts)
        self.memory_bound = self.share == last
        self.where = where

    def log_predicted(self, z: Array) -> Array:
        """Logarithm of the predicted step of each run."""
        v = np.append(z, 0.0)
        by_name = {name: v[self.where[name]] for name in SHARED}
        memory, device_fixed, fixed, floor = v[self.places]
        speed = np.exp(-(v[self.share] + v[self.own] + v[self.brought] + by_name["board"] * self.on_board))
        speed = speed * (1 + self.reach / np.exp(by_name["fast_products"]))
        tiles_s = self.row_s * np.exp(by_name["rows"]) + self.edge_s * np.exp(by_name["sides"])
        flop_s = np.where(self.memory_bound, 0.0, (self.flop_s + tiles_s) * speed)
        slow = np.exp(-by_name["memory"] - memory - by_name["old_memory"] * self.old) * (
            1 + self.bandwidth / np.exp(by_name["fast_memory"])
        )
        passes = np.where(self.memory_bound, np.exp(by_name["traffic"] + v[self.traffic]), 1.0)
        passes = passes + self.converts * np.exp(by_name["layout"])
        fixed_s = np.exp(by_name["fixed"] + fixed + device_fixed)
        busy_s = kernel_s(
            flop_s,
            self.move_s * slow[self.run_of] * passes,
            (self.cache_s * slow)[self.run_of],
            fixed_s[self.run_of] * self.fixed,
            self.overlap,
        )
        device_s = np.add.reduceat(busy_s * self.launches * self.counts, self.starts)
        launches, launch_s = (
            np.add.reduceat(self.launches * self.host * self.counts, self.starts),
            np.exp(by_name["floor"] + floor),
        )
        step_s = smooth_max(device_s, launches * launch_s) + self.summed_s * slow
        step_s = step_s + smooth_max(self.update_s * slow + self.updates * fixed_s, self.updates * launch_s)
        beside_s = self.communication_s
        step_s = np.maximum(step_s, beside_s) + self.taken * np.minimum(step_s, beside_s)
        # exposed time is known by the constants before the fit: no less than a tenth may be left of a step
        whole_s = np.maximum(step_s * self.repeated + self.exposed_s, 0.1 * step_s) * self.slower
        return np.asarray(np.log(whole_s))

    def log_errors(self, z: Array) -> Array:
        """log(predicted step / published step)."""
        return self.log_predicted(z) - self.log_step_s


def _classes(run: Run, kind: npt.NDArray[np.int64], figures: RateConstants) -> tuple[list[str], Array]:
    """For each kernel the class of its format, and what large products reach in it: with fp8 products alone
    are of eight bits."""
    format = run.precision.compute
    if format != "fp8":
        return [CLASS[format]] * len(kind), np.full(len(kind), matmul_flops(run.device, format, figures))
    eight, rest = (matmul_flops(run.device, entry, figures) for entry in ("fp8", "bf16"))
    product = kind == MATMUL
    return ["fp8" if entry else "half" for entry in product], np.where(product, eight, rest)


def _on_board(run: Run, kind: npt.NDArray[np.int64]) -> Array:
    """1 for kernels of tensor cores on a graphics board, else 0."""
    board = is_graphics_board(run.device) and CLASS[run.precision.compute] != "fp32"
    return np.isin(kind, ON_BOARDS).astype(float) * board


def _unique(run: Run, figures: RateConstants) -> tuple[Array, Array]:
    kernels = model_kernels(run.model, run.flash)
    table = np.stack(
        [
            kernels.kind,
            kernels.flops,
            kernels.row_flops,
            kernels.edge_flops,
            kernels.moved,
            kernels.weights,
            kernels.launches,
            kernels.fixed,
            kernels.host,
        ],
        1,
    )
    again = recompute_flags(run.model, run.recompute, figures.frameworks[run.framework].stops_early)
    times = 1.0 + (again[kernels.layer] & ~kernels.backward)
    unique, place = np.unique(table, axis=0, return_inverse=True)
    return unique, np.bincount(place.ravel(), weights=times)


def _places(where: dict[str, int], names: Sequence[str], last: int) -> npt.NDArray[np.int64]:
    return np.array([where.get(name, last) for name in names])


def of_framework(what: str, name: str) -> str:
    """The parameter that a framework has."""
    return f"{what}/{AS.get(what, {}).get(name, name)}"


Flags = npt.NDArray[np.bool_]
ROW_SIGMA = {"cnn": 0.05, "transformer": 0.15, "other": 0.15}
SERIES_POWER = 0.7  # 0: every run counts as much; 1: every series does
STEP = 1e-5  # of a parameter, for derivatives
STEPS, TRIES, ENOUGH = 60, 8, 1e-6  # of the descent; of its damping; share of the cost that is worth a step
FIRST_DAMPING, LEAST_DAMPING, WEAKER, STRONGER = 1e-3, 1e-7, 0.2, 8.0


class Solver:
    """Fits to some of the runs that may be fitted; predicts all."""

    def __init__(self, runs: Sequence[Run], prior: Prior, figures: RateConstants) -> None:
        self.prior, self._all = prior, Problem(runs, prior, figures)
        self._fitted = np.array([run.fitted for run in runs])
        runs = [run for run in runs if run.fitted]
        self.problem = Problem(runs, prior, figures)
        self._series = [(run.source, run.series) for run in runs]
        self._sigma = np.array([ROW_SIGMA[network_class(run.model)] for run in runs])
        self._groups = _groups(prior, runs, figures)
        # one device may be far from the mean of all
        self._odd = np.array([name.startswith("device/") for name in prior.names])

    def log_errors(self, z: Array) -> Array:
        """log(predicted step / published step) of every run."""
        return self._all.log_errors(z)

    def fit(self, kept: Flags | None = None, start: Array | None = None) -> Array:
        """The parameters z of the least cost over the runs that are kept."""
        prior = self.prior
        everyone = np.ones(len(self._series), np.bool_)
        weight = self._weights(everyone if kept is None else kept[self._fitted])
        u = np.zeros(len(prior.names)) if start is None else (start - prior.mean) / prior.sigma
        error, damping = self._error(u), FIRST_DAMPING
        cost = self._cost(u, error * weight)
        for _ in range(STEPS):
            slopes = self._slopes(u, error)
            x = error * weight
            soft = 1 / np.sqrt(1 + x**2)
            own = np.where(self._odd, 1 / np.sqrt(1 + u**2), 1.0)
            gradient = slopes.T @ (weight * x * soft) + own * u
            weighted = slopes * (weight * np.sqrt(soft))[:, None]
            curvature = weighted.T @ weighted + np.diag(own)
            for _ in range(TRIES):
                damped = curvature + damping * np.diag(np.diag(curvature))
                moved = u - np.linalg.solve(damped, gradient)
                moved_error = self._error(moved)
                moved_cost = self._cost(moved, moved_error * weight)
                if moved_cost < cost:
                    break
                damping *= STRONGER
            else:
                break
            gained, damping = cost - moved_cost, max(damping * WEAKER, LEAST_DAMPING)
            u, error, cost = moved, moved_error, moved_cost
            if gained < ENOUGH * cost:
                break
        return np.asarray(prior.mean + u * prior.sigma)

    def _error(self, u: Array) -> Array:
        return self.problem.log_errors(self.prior.mean + u * self.prior.sigma)

    def _cost(self, u: Array, x: Array) -> float:
        return float(_soft(x).sum() + np.where(self._odd, _soft(u), u**2).sum())

    def _weights(self, kept: Flags) -> Array:
        """Runs of one series share a weight; those that are not kept have none."""
        sizes = Counter(one for one, is_kept in zip(self._series, kept, strict=True) if is_kept)
        share = np.array([max(sizes[entry], 1) ** (-SERIES_POWER / 2) for entry in self._series])
        return np.where(kept, share / self._sigma, 0.0)

    def _slopes(self, u: Array, error: Array) -> Array:
        out = np.zeros((len(error), len(u)))
        for group in self._groups:
            moved = u.copy()
            moved[[at for at, _ in group]] += STEP
            slope = (self._error(moved) - error) / STEP
            for at, mine in group:
                out[mine, at] = slope[mine]
        return out


def _soft(values: Array) -> Array:
    """Square for small values, and linear for large ones."""
    return np.asarray(2 * (np.sqrt(1 + values**2) - 1))


def _groups(prior: Prior, runs: Sequence[Run], figures: RateConstants) -> list[list[tuple[int, Flags]]]:
    """Parameters that no run has two of, together, with the runs that have each: one difference gives the
    derivatives by all of a group."""
    families = np.array([device_family(run.device, figures) for run in runs])
    classes = np.array([CLASS[run.precision.compute] for run in runs])
    frameworks = np.array([run.framework for run in runs])
    everyone = np.ones(len(runs), np.bool_)

    def of_class(name: Sequence[str]) -> Flags:
        """Runs with kernels of this class and kind; what is not a product runs in sixteen bits beside fp8."""
        also = name[0] == "half" and name[1] != "matmul"
        return np.asarray((classes == name[0]) | (also & (classes == "fp8")))

    groups: dict[tuple[str, str], list[tuple[int, Flags]]] = {}
    for at, name in enumerate(prior.names):
        what, *rest = name.split("/")
        if what == "share":
            key, mine = (what, rest[1]), of_class(rest)
        elif what == "device" and len(rest) == 3:
            key, mine = (what, rest[2]), (families == rest[0]) & of_class(rest[1:])
        elif what == "device":
            key, mine = (what, rest[1]), families == rest[0]
        elif rest:
            having = [framework for framework in FRAMEWORKS if of_framework(what, framework) == name]
            key, mine = ("framework", what), np.isin(frameworks, having)
        else:
            key, mine = (name, ""), everyone
        groups.setdefault(key, []).append((at, mine))
    return list(groups.values())
