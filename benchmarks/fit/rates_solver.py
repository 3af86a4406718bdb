"""Finds the parameters of least cost (rates_fit.py): Gauss and Newton's steps, damped as Levenberg and
Marquardt do, each run's and each device's square weighted so that it counts as the soft function does.

All runs are laid out once; a fit without some of them gives those no weight. So leaving out every source in
turn takes seconds, which is what lets a change of the formula be judged by runs that no fit has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from fit_runs import FitRun as Run
from rates_fit import FRAMEWORKS, Array, Prior, Problem, of_framework

from planner.device.rates import CLASS, RateConstants, family_of, network_of

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
        self._sigma = np.array([ROW_SIGMA[network_of(run.model)] for run in runs])
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
    families = np.array([family_of(run.device, figures) for run in runs])
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
