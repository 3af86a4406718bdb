"""TicTac: its models, what an order gains in training and inference, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.hardware.catalog import load_hardware
from planner.model.catalog import load_model
from planner.servers.ordering import schedule
from planner.servers.orders import Timeline, count_download_orders, simulate_timeline, straggler_shares
from planner.servers.synthesis import profile_for
from planner.servers.validation.ordering_abstract import ForwardPass
from planner.simulator import simulate
from planner.simulator.cluster import Cluster, Node
from planner.simulator.policy import Mode
from planner.simulator.run import RunOptions
from planner.units import GBIT_BYTES_PER_S, MIB
from planner.validation.row import Paper, Row, Section, compute_once

POINTS = 0.05  # how far our largest gain may be from the published one
PRECISION, MAX_STEPS = 0.02, 150
STRAGGLER_STEPS = 60
STRAGGLER_POINTS = 0.01  # where there is nothing to gain, workers differ by their computation alone
HOW = (
    "simulated TIC over no order on synthesized profiles of a K80, 1 server and 4 workers, training sync; "
    "28 Gbit/s at the server, a quarter of it at a worker, for nothing is published for NC6"
)
PAPER = Paper("tictac", HOW)
GIVEN, CHECKS = PAPER.figures, PAPER.checks


@PAPER.check()
def check_table(section: Section) -> Iterator[Row]:
    """Yields rows comparing the tensors and bytes of our ten networks with the paper's."""
    for given in section.figures["models"]:
        name, model = given["model"], load_model(given["model"])
        published = f"{given['tensors']}, {given['mib']:.2f} MiB"
        ours = f"{len(model.tensors)}, {model.bytes / MIB:.2f} MiB"
        yield section.equal(
            name, f"{name}: parameter tensors and their size", published, ours, how="the catalog"
        )


@dataclass(frozen=True)
class Gains:
    """Relative gains of TIC over no order, by batch factor, and of TAC over TIC at the standard batch.
    `stragglers` are the largest straggler shares without and with TIC at the standard batch."""

    model: str
    ops: int
    training: tuple[float, ...]
    inference: tuple[float, ...]
    tac_over_tic: float
    stragglers: tuple[float, float]


@compute_once
def measured_gains() -> tuple[Gains, ...]:
    """Simulated gains of all models of Figure 11."""
    return tuple(_measure_gains(given) for given in GIVEN["table"]["models"])


def _measure_gains(case: dict[str, Any]) -> Gains:
    """Gains of a model in training and inference under each order, measured by simulation."""
    there = GIVEN["gains"]
    server, bandwidth = (there[f"{who}_gbit_per_s"] * GBIT_BYTES_PER_S for who in ("server", "worker"))
    nodes = (Node(server, server), *[Node(bandwidth, bandwidth)] * there["workers"])
    cluster = Cluster(nodes, tuple(range(1, there["workers"] + 1)), (0,))
    model, hardware = load_model(case["model"]), load_hardware(there["hardware"])
    by_name: dict[str, list[float]] = {"training": [], "inference": []}
    tac_over_tic, stragglers = 0.0, (0.0, 0.0)
    for workload, gain in by_name.items():
        training = workload == "training"
        mode: Mode = "sync" if training else "async"
        for factor in there["batch_factors"]:
            profile = profile_for(model, int(case["batch"] * factor), hardware, training=training)
            policies = {
                name: schedule(profile, name, bandwidth_bytes_per_s=bandwidth).policy
                for name in (("fifo", "tic", "tac") if training and factor == 1 else ("fifo", "tic"))
            }
            rates = {
                name: simulate(
                    profile, cluster, policy, mode, precision=PRECISION, max_steps=MAX_STEPS
                ).samples_per_s
                for name, policy in policies.items()
            }
            gain.append(rates["tic"] / rates["fifo"] - 1)
            if "tac" in rates:
                tac_over_tic = rates["tac"] / rates["tic"] - 1
                options = RunOptions(steps=STRAGGLER_STEPS, until="all")
                without, ordered = (
                    simulate_timeline(profile, cluster, policies[name], mode, options)
                    for name in ("fifo", "tic")
                )
                stragglers = _straggler_share(without), _straggler_share(ordered)
    training_gains, inference_gains = map(tuple, by_name.values())
    return Gains(case["model"], case["ops"], training_gains, inference_gains, tac_over_tic, stragglers)


def _straggler_share(timeline: Timeline) -> float:
    """Largest straggler share of any step."""
    return float(straggler_shares(timeline).max())


def _gain_rows(section: Section, workload: str) -> Iterator[Row]:
    """Yields rows comparing the gains of each model with the range in the paper."""
    most, slowest = section.figures[f"{workload}_most"], -section.figures["slow_down_most"]
    by_name = {gain.model: getattr(gain, workload) for gain in measured_gains()}
    top = max(by_name, key=lambda model: max(by_name[model]))
    what = f"{workload}: the largest gain of all models and batches ({top})"
    yield section.close("most", what, 100 * most, 100 * max(by_name[top]), 100 * POINTS, unit="points")
    for model, values in by_name.items():
        what = f"{workload}, {model}: gains at 0.5, 1 and 2 times the batch"
        published, ours = f"{slowest:.1%} to {most:+.1%}", " ".join(f"{value:+.1%}" for value in values)
        holds, claim = slowest <= min(values) and max(values) <= most + POINTS, "in this range, to 5 points"
        yield section.stated(model, what, published, ours, holds, claim)


@PAPER.check("gains")
def check_training(section: Section) -> Iterator[Row]:
    """Yields rows comparing gains in training."""
    return _gain_rows(section, "training")


@PAPER.check("gains")
def check_inference(section: Section) -> Iterator[Row]:
    """Yields rows comparing gains in inference, which exceed those in training."""
    yield from _gain_rows(section, "inference")
    ours, other = (
        float(np.mean([getattr(gain, load) for gain in measured_gains()]))
        for load in ("inference", "training")
    )
    what = "inference: mean gain of all models and batches"
    words = f"{ours:+.1%}; {other:+.1%} in training"
    yield section.stated("mean", what, "higher than in training", words, ours > other, "higher")


@PAPER.check("gains")
def check_size(section: Section) -> Iterator[Row]:
    """Yields rows checking the rank correlation between gains and network size."""
    from scipy.stats import spearmanr

    ops, values = (
        [gain.ops for gain in measured_gains()],
        [np.mean(gain.training) for gain in measured_gains()],
    )
    correlation = float(spearmanr(ops, values).statistic)
    what, claimed = (
        "training: mean gain against the number of ops, ten networks",
        "gains grow with a network's ops",
    )
    yield section.stated(
        "ops", what, claimed, f"rank correlation {correlation:+.2f}", correlation > 0, "above zero"
    )


@PAPER.check()
def check_tac(section: Section) -> Iterator[Row]:
    """Yields rows comparing TAC's largest gain over TIC with the paper's."""
    most = section.figures["marginal"]
    worst = max(measured_gains(), key=lambda gain: gain.tac_over_tic)
    ours, holds = f"{worst.tac_over_tic:+.1%} ({worst.model})", worst.tac_over_tic <= most
    what = "training: the largest gain of TAC over TIC, ten networks"
    yield section.stated("most", what, "marginally worse", ours, holds, f"at most {most:.0%}")


@PAPER.check()
def check_stragglers(section: Section) -> Iterator[Row]:
    """Yields rows comparing the longest wait for the slowest worker in a step, without order and with TIC."""
    most, how = 100 * section.figures["most"], f"{HOW}; the largest of {STRAGGLER_STEPS} steps"
    claim = f"not above, to {100 * STRAGGLER_POINTS:g} point"
    for gain in measured_gains():
        without, ordered = gain.stragglers
        what = f"{gain.model}: share of a step spent waiting for the slowest worker"
        ours, holds = f"{without:.1%} to {ordered:.1%}", ordered <= without + STRAGGLER_POINTS
        yield section.stated(gain.model, what, "an order reduces it", ours, holds, claim, how=how)
    worst = round(100 * max(gain.stragglers[0] for gain in measured_gains()), 1)
    what = "without order: the largest such share of all networks"
    yield section.at_least("most", what, most, worst, most, unit="%", how=how)


@PAPER.check()
def check_overlap(section: Section) -> Iterator[Row]:
    """Yields rows checking how overlap correlates with step time, and how much steps vary with TAC."""
    given = section.figures
    bandwidth = given["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S
    forward = ForwardPass(given["model"], given["hardware"], bandwidth)
    steps = {name: forward.steps(name, given["steps"]) for name in ("fifo", "tac")}
    alphas = np.concatenate([step.overlap(forward.communication_s) for step in steps.values()])
    times = np.concatenate([step.step_s for step in steps.values()])
    r_squared, fastest = float(np.corrcoef(alphas, times)[0, 1] ** 2), float(times.min())
    # What 95% of steps reach, of the fastest.
    reached = {name: float(np.percentile(fastest / step.step_s, 5)) for name, step in steps.items()}
    how = f"{given['steps']} simulated forward passes each with and without TAC, 1 Gbit/s, N = C"
    what = "Inception-v2: R^2 of step time against the overlap coefficient"
    yield section.at_least("r-squared", what, given["r_squared"], r_squared, 0.95, how=how)
    share = "95% of steps reach this share of the fastest"
    what = f"Inception-v2 without order: {share}"
    yield section.near("none", what, given["percentile_none"], reached["fifo"], 0.25, how=how)
    what = f"Inception-v2 with TAC: {share}"
    yield section.near("tac", what, given["percentile_tac"], reached["tac"], 0.05, how=how)


@PAPER.check()
def check_orders(section: Section) -> Iterator[Row]:
    """Yields rows that count distinct download orders in 1,000 steps without an enforced order."""
    given, there = section.figures, GIVEN["overlap"]
    bandwidth = there["bandwidth_gbit_per_s"] * GBIT_BYTES_PER_S
    forward = ForwardPass(given["model"], there["hardware"], bandwidth)
    seen, _ = count_download_orders(forward.steps("fifo", given["steps"]).timeline)
    what = "ResNet-50 v2 without order: different orders in 1,000 steps"
    how = "simulated; an order is drawn for each step, as TensorFlow requests do"
    yield section.close("unique", what, given["steps"], seen, 0, unit="orders", how=how)
